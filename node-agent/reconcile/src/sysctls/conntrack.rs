//! The kernel settings of connection tracking.

use std::sync::Arc;

use portolan_plan::{ConntrackSettings, Period};

use crate::host::Machine;

/// The maximum number of tracked connections, regardless of the number of processors (S-178).
const MAX_TRACKED: u32 = 1_048_576;
/// The average number of tracked connections per hash bucket, at most.
const TRACKED_PER_BUCKET: u32 = 4;
/// The maximum number of tracked connections.
pub(super) const MAX: &str = "net.netfilter.nf_conntrack_max";
/// The number of buckets of the hash table.
pub(super) const BUCKETS: &str = "net.netfilter.nf_conntrack_buckets";

/// The limits and timeouts of connection tracking (S-178, S-179). A value of 0 keeps the kernel's.
pub(super) fn settings(
    settings: &ConntrackSettings,
    machine: &Machine,
) -> impl Iterator<Item = (Arc<str>, Arc<str>)> {
    let scaled = settings.max_per_core.saturating_mul(machine.processors);
    let limit = if scaled > settings.min {
        scaled.min(MAX_TRACKED)
    } else {
        settings.min
    };
    let limits = settings.max_per_core > 0 && machine.processors > 0 && machine.limits_conntrack;
    let limits = [
        ("nf_conntrack_buckets", limit / TRACKED_PER_BUCKET),
        ("nf_conntrack_max", limit),
    ]
    .map(|(name, value)| (name, limits.then(|| value.to_string())));
    let seconds = |period: Period| {
        let milliseconds = period.as_milliseconds();
        (milliseconds > 0).then(|| milliseconds.div_ceil(1000).to_string())
    };
    let rest = [
        (
            "nf_conntrack_tcp_timeout_established",
            seconds(settings.tcp_established),
        ),
        (
            "nf_conntrack_tcp_timeout_close_wait",
            seconds(settings.tcp_close_wait),
        ),
        ("nf_conntrack_udp_timeout", seconds(settings.udp_timeout)),
        (
            "nf_conntrack_udp_timeout_stream",
            seconds(settings.udp_stream_timeout),
        ),
        (
            "nf_conntrack_tcp_be_liberal",
            settings.tcp_be_liberal.then(|| "1".to_owned()),
        ),
    ];
    limits.into_iter().chain(rest).filter_map(|(name, value)| {
        let name = format!("net.netfilter.{name}");
        Some((name.into(), value?.into()))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use portolan_plan::{NodeEntry, Settings};

    use super::*;
    use crate::host::HostNetwork;
    use crate::sysctls;

    fn tracking(machine: Machine, settings: ConntrackSettings) -> Vec<String> {
        let settings = Settings {
            conntrack: settings,
            ..Settings::default()
        };
        let node = NodeEntry {
            settings,
            ..NodeEntry::default()
        };
        let host = HostNetwork {
            machine,
            ..HostNetwork::default()
        };
        let all = sysctls(&node, &host, &BTreeSet::new()).into_iter();
        all.filter_map(|(name, value)| {
            let name = name.strip_prefix("net.netfilter.nf_conntrack_")?;
            Some(format!("{name}={value}"))
        })
        .collect()
    }

    #[test]
    fn tracked_connections_are_limited_by_processors_within_bounds() {
        let limits = |processors, max_per_core, min| {
            let machine = Machine {
                processors,
                limits_conntrack: true,
                ..Machine::default()
            };
            let settings = ConntrackSettings {
                max_per_core,
                min,
                tcp_established: Period::seconds(0),
                tcp_close_wait: Period::seconds(0),
                ..ConntrackSettings::default()
            };
            tracking(machine, settings).join(" ")
        };
        for (processors, max_per_core, min, limit) in [
            (2, 32_768, 131_072, "buckets=32768 max=131072"),
            (8, 32_768, 131_072, "buckets=65536 max=262144"),
            (64, 32_768, 131_072, "buckets=262144 max=1048576"),
            (64, 32_768, 4_000_000, "buckets=1000000 max=4000000"),
            (u32::MAX, u32::MAX, 1, "buckets=262144 max=1048576"),
            (8, 0, 131_072, ""),
            (0, 32_768, 131_072, ""),
        ] {
            assert_eq!(limits(processors, max_per_core, min), limit, "S-178");
        }
    }

    #[test]
    fn limits_of_the_whole_machine_are_not_set_in_another_network_namespace() {
        let inside = Machine {
            processors: 8,
            ..Machine::default()
        };
        let found = tracking(inside, ConntrackSettings::default());
        let wanted = [
            "tcp_timeout_close_wait=3600",
            "tcp_timeout_established=86400",
        ];
        assert_eq!(found, wanted, "S-178, S-179");
    }

    #[test]
    fn timeouts_of_tracked_connections_are_set_where_the_settings_name_them() {
        let settings = ConntrackSettings {
            max_per_core: 0,
            tcp_established: Period::milliseconds(1500),
            tcp_close_wait: Period::seconds(0),
            udp_timeout: Period::seconds(20),
            udp_stream_timeout: Period::seconds(90),
            tcp_be_liberal: true,
            ..ConntrackSettings::default()
        };
        let found = tracking(Machine::default(), settings);
        assert_eq!(
            found,
            [
                "tcp_be_liberal=1",
                "tcp_timeout_established=2",
                "udp_timeout=20",
                "udp_timeout_stream=90",
            ],
            "S-179, S-235"
        );
    }
}
