//! Converts settings to and from the wire. A field that an older controller does not send keeps its default if zero
//! is not a valid value.

use portolan_plan::{
    CaptureSettings, ConntrackSettings, Dataplane, DiskSettings, DrainSettings, Drift,
    ExternalIpSettings, HostFirewall, ListenSettings, LocalDetection, MasqueradeSettings, Period,
    PortRange, Settings, SyncSettings, TimeoutSettings,
};

use crate::field::{DecodeError, address, bounded, cidrs, name, octets, ranges};
use crate::wire;
use crate::wire::local_detection::{ClusterCidr, Mode, NodeCidr};

pub(crate) fn to_wire(settings: &Settings) -> wire::Settings {
    wire::Settings {
        dataplane_nftables: settings.dataplane == Dataplane::Nftables,
        scheduler: settings.scheduler.to_string(),
        node_port_addresses: settings.node_port_addresses.clone(),
        local_detection: Some(detection_to_wire(&settings.local_detection)),
        masquerade_bit: settings.masquerade.bit.into(),
        masquerade_all: settings.masquerade.all,
        capture_bit: settings.capture.bit.into(),
        capture_rule_priority: settings.capture.rule_priority,
        capture_table: settings.capture.table,
        host_firewall_respect: settings.host_firewall == HostFirewall::Respect,
        node_port_first: settings.node_port_range.first.into(),
        node_port_last: settings.node_port_range.last.into(),
        external_ip_allowed_cidrs: cidrs(&settings.external_ips.allowed_cidrs),
        exclude_cidrs: cidrs(&settings.exclude_cidrs),
        timeout_tcp: settings.timeouts.tcp.as_milliseconds(),
        timeout_tcp_fin: settings.timeouts.tcp_fin.as_milliseconds(),
        timeout_udp: settings.timeouts.udp.as_milliseconds(),
        conntrack_max_per_core: settings.conntrack.max_per_core,
        conntrack_min: settings.conntrack.min,
        conntrack_tcp_established: settings.conntrack.tcp_established.as_milliseconds(),
        conntrack_tcp_close_wait: settings.conntrack.tcp_close_wait.as_milliseconds(),
        conntrack_udp_timeout: settings.conntrack.udp_timeout.as_milliseconds(),
        conntrack_udp_stream_timeout: settings.conntrack.udp_stream_timeout.as_milliseconds(),
        conntrack_tcp_be_liberal: settings.conntrack.tcp_be_liberal,
        sync_period: settings.sync.period.as_milliseconds(),
        sync_min_period: settings.sync.min_period.as_milliseconds(),
        drain_deadline: settings.drain.deadline.as_milliseconds(),
        drift_report_only: settings.drift == Drift::Report,
        drop_invalid: settings.drop_invalid,
        device: settings.device.to_string(),
        disk_max_age: settings.disk.max_age.as_milliseconds(),
        disk_grace: settings.disk.grace.as_milliseconds(),
        healthz_address: octets(settings.healthz.bind_address),
        healthz_port: settings.healthz.port.into(),
        metrics_address: octets(settings.metrics.bind_address),
        metrics_port: settings.metrics.port.into(),
        service_proxy_name: settings.service_proxy_name.clone(),
    }
}

fn detection_to_wire(detection: &LocalDetection) -> wire::LocalDetection {
    let mode = match detection {
        LocalDetection::NodeCidr => Mode::NodeCidr(NodeCidr {}),
        LocalDetection::ClusterCidr { cluster_cidrs } => Mode::ClusterCidr(ClusterCidr {
            cidrs: cidrs(cluster_cidrs),
        }),
        LocalDetection::BridgeInterface { bridge } => Mode::BridgeInterface(bridge.clone()),
        LocalDetection::InterfaceNamePrefix { prefix } => Mode::InterfaceNamePrefix(prefix.clone()),
    };
    wire::LocalDetection { mode: Some(mode) }
}

/// Fills in defaults for fields that an older controller does not know, if empty or zero is not a valid value.
fn with_defaults(mut settings: wire::Settings) -> wire::Settings {
    let default = to_wire(&Settings::default());
    if settings.scheduler.is_empty() {
        settings.scheduler = default.scheduler;
    }
    if settings.device.is_empty() {
        settings.device = default.device;
    }
    if settings.sync_period == 0 {
        settings.sync_period = default.sync_period;
    }
    if settings.healthz_address.is_empty() {
        settings.healthz_address = default.healthz_address;
        settings.healthz_port = default.healthz_port;
    }
    if settings.metrics_address.is_empty() {
        settings.metrics_address = default.metrics_address;
        settings.metrics_port = default.metrics_port;
    }
    if settings.capture_table == 0 {
        settings.capture_bit = default.capture_bit;
        settings.capture_rule_priority = default.capture_rule_priority;
        settings.capture_table = default.capture_table;
    }
    if settings.node_port_first == 0 {
        settings.node_port_first = default.node_port_first;
        settings.node_port_last = default.node_port_last;
    }
    settings.local_detection = settings.local_detection.or(default.local_detection);
    settings
}

pub(crate) fn from_wire(settings: wire::Settings) -> Result<Settings, DecodeError> {
    let settings = with_defaults(settings);
    let bit = bounded(settings.masquerade_bit, 31, "settings.masquerade_bit")?;
    let node_port_range = node_ports_from_wire(&settings)?;
    let conntrack = conntrack_from_wire(&settings);
    let capture = capture_from_wire(&settings)?;
    let drift = drift_from_wire(&settings);
    Ok(Settings {
        dataplane: dataplane_from_wire(&settings),
        scheduler: name(&settings.scheduler, 15, "settings.scheduler")?.into(),
        node_port_addresses: settings.node_port_addresses,
        local_detection: detection_from_wire(settings.local_detection)?,
        masquerade: MasqueradeSettings {
            bit,
            all: settings.masquerade_all,
        },
        node_port_range,
        capture,
        host_firewall: match settings.host_firewall_respect {
            true => HostFirewall::Respect,
            false => HostFirewall::Open,
        },
        external_ips: ExternalIpSettings {
            allowed_cidrs: ranges(
                &settings.external_ip_allowed_cidrs,
                "settings.external_ip_allowed_cidrs",
            )?,
        },
        exclude_cidrs: ranges(&settings.exclude_cidrs, "settings.exclude_cidrs")?,
        timeouts: TimeoutSettings {
            tcp: Period::milliseconds(settings.timeout_tcp),
            tcp_fin: Period::milliseconds(settings.timeout_tcp_fin),
            udp: Period::milliseconds(settings.timeout_udp),
        },
        conntrack,
        sync: SyncSettings {
            period: Period::milliseconds(settings.sync_period),
            min_period: Period::milliseconds(settings.sync_min_period),
        },
        drain: DrainSettings {
            deadline: Period::milliseconds(settings.drain_deadline),
        },
        drift,
        drop_invalid: settings.drop_invalid,
        device: name(&settings.device, 15, "settings.device")?.into(),
        disk: DiskSettings {
            max_age: Period::milliseconds(settings.disk_max_age),
            grace: Period::milliseconds(settings.disk_grace),
        },
        healthz: ListenSettings {
            bind_address: address(&settings.healthz_address, "settings.healthz_address")?,
            port: bounded(settings.healthz_port, MAX_PORT, "settings.healthz_port")?,
        },
        metrics: ListenSettings {
            bind_address: address(&settings.metrics_address, "settings.metrics_address")?,
            port: bounded(settings.metrics_port, MAX_PORT, "settings.metrics_port")?,
        },
        service_proxy_name: settings.service_proxy_name,
    })
}

/// The highest port number.
const MAX_PORT: u32 = 65_535;

fn dataplane_from_wire(settings: &wire::Settings) -> Dataplane {
    match settings.dataplane_nftables {
        true => Dataplane::Nftables,
        false => Dataplane::Ipvs,
    }
}

fn drift_from_wire(settings: &wire::Settings) -> Drift {
    match settings.drift_report_only {
        true => Drift::Report,
        false => Drift::Repair,
    }
}

fn node_ports_from_wire(settings: &wire::Settings) -> Result<PortRange, DecodeError> {
    Ok(PortRange {
        first: bounded(
            settings.node_port_first,
            MAX_PORT,
            "settings.node_port_first",
        )?,
        last: bounded(settings.node_port_last, MAX_PORT, "settings.node_port_last")?,
    })
}

fn capture_from_wire(settings: &wire::Settings) -> Result<CaptureSettings, DecodeError> {
    Ok(CaptureSettings {
        bit: bounded(settings.capture_bit, 31, "settings.capture_bit")?,
        rule_priority: settings.capture_rule_priority,
        table: settings.capture_table,
    })
}

fn conntrack_from_wire(settings: &wire::Settings) -> ConntrackSettings {
    ConntrackSettings {
        max_per_core: settings.conntrack_max_per_core,
        min: settings.conntrack_min,
        tcp_established: Period::milliseconds(settings.conntrack_tcp_established),
        tcp_close_wait: Period::milliseconds(settings.conntrack_tcp_close_wait),
        udp_timeout: Period::milliseconds(settings.conntrack_udp_timeout),
        udp_stream_timeout: Period::milliseconds(settings.conntrack_udp_stream_timeout),
        tcp_be_liberal: settings.conntrack_tcp_be_liberal,
    }
}

fn detection_from_wire(
    detection: Option<wire::LocalDetection>,
) -> Result<LocalDetection, DecodeError> {
    let field = "settings.local_detection";
    match detection.and_then(|detection| detection.mode) {
        Some(Mode::NodeCidr(NodeCidr {})) => Ok(LocalDetection::NodeCidr),
        Some(Mode::ClusterCidr(ClusterCidr { cidrs })) => Ok(LocalDetection::ClusterCidr {
            cluster_cidrs: ranges(&cidrs, field)?,
        }),
        Some(Mode::BridgeInterface(bridge)) => Ok(LocalDetection::BridgeInterface {
            bridge: name(&bridge, 15, field)?.into(),
        }),
        Some(Mode::InterfaceNamePrefix(prefix)) => Ok(LocalDetection::InterfaceNamePrefix {
            prefix: name(&prefix, 14, field)?.into(),
        }),
        None => Err(DecodeError::Missing { field }),
    }
}
