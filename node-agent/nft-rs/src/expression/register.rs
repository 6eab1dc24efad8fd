//! Registers.

use std::fmt;

/// The number of the first register of four bytes (`NFT_REG32_00`).
const FIRST: u32 = 8;
/// The number of registers of four bytes.
const COUNT: u32 = 16;

/// A register of four bytes. Longer values also use the registers after it.
///
/// The registers of 16 bytes, which the kernel and `nft` still use for the same memory, are R0, R4, R8 and R12.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Register(u32);

impl Register {
    /// The first of 16.
    pub const R0: Self = Self(FIRST);
    /// The register 4 bytes after the first.
    pub const R1: Self = Self(9);
    /// The register 8 bytes after the first.
    pub const R2: Self = Self(10);
    /// The register 12 bytes after the first.
    pub const R3: Self = Self(11);
    /// The register 16 bytes after the first.
    pub const R4: Self = Self(12);
    /// The register 32 bytes after the first.
    pub const R8: Self = Self(16);
    /// The register 48 bytes after the first.
    pub const R12: Self = Self(20);
    /// The last one.
    pub const R15: Self = Self(23);

    /// The register of 4 bytes with this index, 0 to 15; `None` beyond.
    #[must_use]
    pub const fn new(index: u8) -> Option<Self> {
        if (index as u32) < COUNT {
            Some(Self(FIRST.saturating_add(index as u32)))
        } else {
            None
        }
    }

    /// The register this many registers (of 4 bytes) after this one. The kernel refuses one beyond the last.
    #[must_use]
    pub const fn after(self, registers: u32) -> Self {
        Self(self.0.saturating_add(registers))
    }

    /// Its number in messages: that of a register of 16 bytes if one begins in the same place, as `nft` and the kernel
    /// write it.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::R0 => 1,
            Self::R4 => 2,
            Self::R8 => 3,
            Self::R12 => 4,
            Self(other) => other,
        }
    }

    /// The register with a number. Those of 16 bytes (1 to 4) become the first of 4 bytes in the same place.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        match number {
            1 => Self::R0,
            2 => Self::R4,
            3 => Self::R8,
            4 => Self::R12,
            other => Self(other),
        }
    }
}

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.checked_sub(FIRST) {
            Some(index) if index < COUNT => write!(f, "r{index}"),
            _ => write!(f, "register {}", self.0),
        }
    }
}
