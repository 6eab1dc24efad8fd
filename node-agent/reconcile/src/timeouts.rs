//! The timeouts after which IPVS removes idle connections (S-105).

use std::fmt;

use portolan_plan::{Period, TimeoutSettings};

/// Timeouts of IPVS connections in seconds. In desired state, 0 keeps the kernel's value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// The timeout of idle established TCP connections.
    pub tcp: u32,
    /// The timeout of TCP connections after a FIN.
    pub tcp_fin: u32,
    /// The timeout of UDP flows.
    pub udp: u32,
}

impl Timeouts {
    /// The timeouts of the settings, rounded up to the kernel's whole seconds. A time that exceeds the kernel's range
    /// becomes the maximum value, so that the kernel rejects it and the failure is reported.
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

    /// Whether the `found` timeouts satisfy these.
    pub fn are_met_by(&self, found: &Self) -> bool {
        found.with(self) == *found
    }

    /// These timeouts, overridden by the non-zero ones of `wanted`.
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

/// Formats in the order of `ipvsadm --set`.
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
