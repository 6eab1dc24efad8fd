//! How long IPVS remembers idle connections (S-105).

use std::fmt;

use portolan_plan::{Period, TimeoutSettings};

/// Timeouts of IPVS connections in seconds. Where they are wanted, 0 leaves what the kernel has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Idle established TCP connections.
    pub tcp: u32,
    /// TCP connections after a FIN.
    pub tcp_fin: u32,
    /// UDP flows.
    pub udp: u32,
}

impl Timeouts {
    /// What settings ask for, in the kernel's whole seconds. A time that no kernel can count stays
    /// too long, so that the kernel refuses it and the failure says so.
    pub fn of(settings: &TimeoutSettings) -> Self {
        let seconds = |period: Period| {
            let seconds = period.as_milliseconds().div_ceil(1000);
            u32::try_from(seconds).unwrap_or(u32::MAX)
        };
        Self {
            tcp: seconds(settings.tcp),
            tcp_fin: seconds(settings.tcp_fin),
            udp: seconds(settings.udp),
        }
    }

    /// Whether what was `found` is what these ask for.
    pub fn are_met_by(&self, found: &Self) -> bool {
        found.with(self) == *found
    }

    /// These, and where others ask for something, that.
    #[must_use]
    pub fn with(&self, wanted: &Self) -> Self {
        let one = |held, wanted| if wanted == 0 { held } else { wanted };
        Self {
            tcp: one(self.tcp, wanted.tcp),
            tcp_fin: one(self.tcp_fin, wanted.tcp_fin),
            udp: one(self.udp, wanted.udp),
        }
    }
}

/// As operators give them to `ipvsadm --set`.
impl fmt::Display for Timeouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tcp, tcp_fin, udp } = self;
        write!(f, "tcp {tcp} s, tcpFin {tcp_fin} s, udp {udp} s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: Timeouts = Timeouts {
        tcp: 900,
        tcp_fin: 120,
        udp: 300,
    };

    #[test]
    fn zero_leaves_what_the_kernel_has() {
        let wanted = Timeouts {
            udp: 60,
            ..Timeouts::default()
        };
        assert!(Timeouts::default().are_met_by(&HELD), "S-105");
        assert!(!wanted.are_met_by(&HELD), "S-105");
        let held = HELD.with(&wanted);
        assert_eq!(held, Timeouts { udp: 60, ..HELD }, "S-105");
        assert!(wanted.are_met_by(&held));
    }

    #[test]
    fn the_kernel_counts_whole_seconds() {
        let settings = TimeoutSettings {
            tcp: Period::milliseconds(1),
            tcp_fin: Period::seconds(7),
            udp: Period::milliseconds(u64::MAX),
        };
        let wanted = Timeouts {
            tcp: 1,
            tcp_fin: 7,
            udp: u32::MAX,
        };
        assert_eq!(Timeouts::of(&settings), wanted);
    }
}
