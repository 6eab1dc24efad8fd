//! The default settings, spelled out.

use crate::{
    CaptureSpec, ConntrackSpec, DetectionMode, DiskSpec, DrainSpec, DriftMode, ExternalIpsSpec,
    HostFirewallMode, ListenSpec, LocalDetectionSpec, MasqueradeSpec, SettingsSpec, SyncSpec,
    TimeoutsSpec,
};

impl ConntrackSpec {
    fn written_out() -> Self {
        let text = |text: &str| Some(text.to_owned());
        Self {
            max_per_core: Some(32_768),
            min: Some(131_072),
            tcp_established: text("24h"),
            tcp_close_wait: text("1h"),
            udp_timeout: text("0s"),
            udp_stream_timeout: text("0s"),
            tcp_be_liberal: Some(false),
        }
    }
}

impl SettingsSpec {
    /// The meaning of an empty object: every field that has a default is filled in.
    pub fn written_out() -> Self {
        let text = |text: &str| Some(text.to_owned());
        let listen = |address, port| {
            Some(ListenSpec {
                bind_address: text(address),
                port: Some(port),
            })
        };
        Self {
            scheduler: text("rr"),
            node_port_addresses: Some(vec!["primary".into()]),
            local_detection: Some(LocalDetectionSpec {
                mode: Some(DetectionMode::NodeCidr),
                ..Default::default()
            }),
            masquerade: Some(MasqueradeSpec {
                bit: Some(14),
                all: Some(false),
            }),
            node_port_range: text("30000-32767"),
            capture: Some(CaptureSpec {
                bit: Some(12),
                rule_priority: Some(90),
                table: Some(10_270),
            }),
            host_firewall: Some(HostFirewallMode::Open),
            external_ips: Some(ExternalIpsSpec {
                allowed_cidrs: Some(vec!["0.0.0.0/0".into(), "::/0".into()]),
            }),
            exclude_cidrs: Some(Vec::new()),
            timeouts: Some(TimeoutsSpec {
                tcp: text("24h"),
                tcp_fin: text("0s"),
                udp: text("0s"),
            }),
            conntrack: Some(ConntrackSpec::written_out()),
            sync: Some(SyncSpec {
                period: text("30s"),
                min_period: text("0s"),
            }),
            drain: Some(DrainSpec {
                deadline: text("1m"),
            }),
            drift: Some(DriftMode::Repair),
            drop_invalid: Some(true),
            device: text("kube-ipvs0"),
            disk: Some(DiskSpec {
                max_age: text("10m"),
                grace: text("1m"),
            }),
            healthz: listen("0.0.0.0", 10256),
            metrics: listen("127.0.0.1", 10249),
            service_proxy_name: text(""),
        }
    }
}
