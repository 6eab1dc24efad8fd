//! `spec.settings`, validated, with defaults.

use ipnet::IpNet;
use portolan_crds as given;
use portolan_plan::{
    CaptureSettings, ConntrackSettings, Dataplane, DiskSettings, Drift, HostFirewall,
    ListenSettings, MasqueradeSettings, Period, PortRange, Settings, SettingsPatch, SyncSettings,
    TimeoutSettings,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::detection::local_detection;
use super::field::{FieldError, address, bounded, cidr, kernel_name, label, scheduler};

/// The field of the settings with this name.
pub(super) fn path(field: &str) -> String {
    format!("spec.settings.{field}")
}

pub(super) fn wrong(field: &str, problem: impl Into<String>) -> FieldError {
    FieldError::new(path(field), problem)
}

/// The settings in force for this spec.
pub(super) fn settings(given: given::SettingsSpec) -> Result<Settings, FieldError> {
    let mut settings = Settings::default();
    if let Some(text) = given.scheduler {
        settings.scheduler = scheduler(&text, path("scheduler"))?;
    }
    if let Some(texts) = given.node_port_addresses {
        settings.node_port_addresses = node_port_addresses(&texts)?;
    }
    if let Some(detection) = given.local_detection {
        settings.local_detection = local_detection(&detection)?;
    }
    if let Some(masquerade) = given.masquerade {
        masquerade_settings(&masquerade, &mut settings.masquerade)?;
    }
    if let Some(texts) = given
        .external_ips
        .and_then(|external| external.allowed_cidrs)
    {
        settings.external_ips.allowed_cidrs = cidrs(&texts, "externalIPs.allowedCIDRs")?;
    }
    if let Some(texts) = given.exclude_cidrs {
        settings.exclude_cidrs = cidrs(&texts, "excludeCIDRs")?;
    }
    if let Some(text) = given.node_port_range {
        let range = text.parse::<PortRange>();
        settings.node_port_range =
            range.map_err(|error| wrong("nodePortRange", format!("{error}")))?;
    }
    if let Some(capture) = given.capture {
        capture_settings(&capture, &mut settings.capture)?;
    }
    bits_differ(&settings)?;
    settings.drop_invalid = given.drop_invalid.unwrap_or(settings.drop_invalid);
    settings.dataplane = dataplane(given.dataplane);
    settings.host_firewall = host_firewall(given.host_firewall);
    settings.drift = drift(given.drift);
    conntrack(given.conntrack.unwrap_or_default(), &mut settings.conntrack)?;
    // An idle connection must live as long as its conntrack entry (S-221).
    let longest = Period::seconds(MAX_IPVS_TIMEOUT_SECONDS);
    settings.timeouts.tcp = settings.conntrack.tcp_established.min(longest);
    timeouts(given.timeouts.unwrap_or_default(), &mut settings.timeouts)?;
    sync(given.sync.unwrap_or_default(), &mut settings.sync)?;
    let deadline = given.drain.and_then(|drain| drain.deadline);
    set_whole(&mut settings.drain.deadline, deadline, "drain.deadline")?;
    disk(given.disk.unwrap_or_default(), &mut settings.disk)?;
    listen(
        &given.healthz.unwrap_or_default(),
        &mut settings.healthz,
        "healthz",
    )?;
    listen(
        &given.metrics.unwrap_or_default(),
        &mut settings.metrics,
        "metrics",
    )?;
    if let Some(text) = given.device {
        settings.device = kernel_name(&text, path("device"))?;
    }
    if let Some(text) = given.service_proxy_name.filter(|text| !text.is_empty()) {
        settings.service_proxy_name = label(&text, path("serviceProxyName"))?.to_string();
    }
    Ok(settings)
}

fn dataplane(given: Option<given::DataplaneMode>) -> Dataplane {
    match given {
        None | Some(given::DataplaneMode::Ipvs) => Dataplane::Ipvs,
        Some(given::DataplaneMode::Nftables) => Dataplane::Nftables,
    }
}

fn host_firewall(given: Option<given::HostFirewallMode>) -> HostFirewall {
    match given {
        None | Some(given::HostFirewallMode::Open) => HostFirewall::Open,
        Some(given::HostFirewallMode::Respect) => HostFirewall::Respect,
    }
}

fn drift(given: Option<given::DriftMode>) -> Drift {
    match given {
        None | Some(given::DriftMode::Repair) => Drift::Repair,
        Some(given::DriftMode::Report) => Drift::Report,
    }
}

fn bits_differ(settings: &Settings) -> Result<(), FieldError> {
    if settings.capture.bit != settings.masquerade.bit {
        return Ok(());
    }
    let problem = format!(
        "bit {} of the packet mark is spec.settings.masquerade.bit too; write another one of 0 to 31",
        settings.capture.bit
    );
    Err(wrong("capture.bit", problem))
}

/// The meaning of an empty object: a spec with every field that has a default.
///
/// # Errors
/// A default is not valid in a spec, which a test excludes.
pub fn default_spec() -> Result<given::SettingsSpec, FieldError> {
    converted(&Settings::default())
}

/// The given fields only, each with its nested defaults.
pub(super) fn patch(given: &given::SettingsSpec) -> Result<SettingsPatch, FieldError> {
    let of_nodes: Map<String, Value> = converted(&SettingsPatch::default())?;
    let present: Map<String, Value> = converted(given)?;
    if let Some(shared) = present.keys().find(|field| !of_nodes.contains_key(*field)) {
        let problem = "affects what all nodes share; set it in spec.settings";
        return Err(wrong(shared, problem));
    }
    let mut whole: Map<String, Value> = converted(&settings(given.clone())?)?;
    whole.retain(|field, _| present.contains_key(field));
    converted(&whole)
}

/// The same fields in another type, by their names in manifests.
fn converted<T: DeserializeOwned>(fields: &impl Serialize) -> Result<T, FieldError> {
    let value = serde_json::to_value(fields);
    value
        .and_then(serde_json::from_value)
        .map_err(|error| FieldError::new("spec.settings", error.to_string()))
}

/// `primary` alone, or ranges (S-34).
fn node_port_addresses(texts: &[String]) -> Result<Vec<String>, FieldError> {
    let range = |(index, text): (usize, &String)| match text.as_str() {
        "all" | "primary" | "localhost" => Ok(text.clone()),
        text => Ok(cidr(text, path(&format!("nodePortAddresses[{index}]")))?.to_string()),
    };
    texts.iter().enumerate().map(range).collect()
}

pub(super) fn cidrs(texts: &[String], field: &str) -> Result<Vec<IpNet>, FieldError> {
    let range = |(index, text): (usize, &String)| cidr(text, path(&format!("{field}[{index}]")));
    texts.iter().enumerate().map(range).collect()
}

fn masquerade_settings(
    given: &given::MasqueradeSpec,
    settings: &mut MasqueradeSettings,
) -> Result<(), FieldError> {
    if let Some(bit) = given.bit {
        settings.bit = bounded(bit, 0, 31, path("masquerade.bit"))?;
    }
    settings.all = given.all.unwrap_or(settings.all);
    Ok(())
}

fn capture_settings(
    given: &given::CaptureSpec,
    settings: &mut CaptureSettings,
) -> Result<(), FieldError> {
    if let Some(bit) = given.bit {
        settings.bit = bounded(bit, 0, 31, path("capture.bit"))?;
    }
    if let Some(priority) = given.rule_priority {
        settings.rule_priority = bounded(priority, 1, 32_763, path("capture.rulePriority"))?;
    }
    if let Some(table) = given.table {
        settings.table = bounded(table, 256, MAX_ROUTING_TABLE, path("capture.table"))?;
    }
    Ok(())
}

fn timeouts(given: given::TimeoutsSpec, timeouts: &mut TimeoutSettings) -> Result<(), FieldError> {
    let set = |period: &mut Period, text, field| {
        set_whole(period, text, field)?;
        if *period > Period::seconds(MAX_IPVS_TIMEOUT_SECONDS) {
            let problem =
                format!("{period} is longer than IPVS counts, {MAX_IPVS_TIMEOUT_SECONDS}s");
            return Err(wrong(field, problem));
        }
        Ok(())
    };
    set(&mut timeouts.tcp, given.tcp, "timeouts.tcp")?;
    set(&mut timeouts.tcp_fin, given.tcp_fin, "timeouts.tcpFin")?;
    set(&mut timeouts.udp, given.udp, "timeouts.udp")
}

fn conntrack(
    given: given::ConntrackSpec,
    conntrack: &mut ConntrackSettings,
) -> Result<(), FieldError> {
    conntrack.max_per_core = given.max_per_core.unwrap_or(conntrack.max_per_core);
    conntrack.min = given.min.unwrap_or(conntrack.min);
    conntrack.tcp_be_liberal = given.tcp_be_liberal.unwrap_or(conntrack.tcp_be_liberal);
    set_whole(
        &mut conntrack.tcp_established,
        given.tcp_established,
        "conntrack.tcpEstablished",
    )?;
    set_whole(
        &mut conntrack.tcp_close_wait,
        given.tcp_close_wait,
        "conntrack.tcpCloseWait",
    )?;
    set_whole(
        &mut conntrack.udp_timeout,
        given.udp_timeout,
        "conntrack.udpTimeout",
    )?;
    set_whole(
        &mut conntrack.udp_stream_timeout,
        given.udp_stream_timeout,
        "conntrack.udpStreamTimeout",
    )
}

fn sync(given: given::SyncSpec, sync: &mut SyncSettings) -> Result<(), FieldError> {
    set(&mut sync.period, given.period, "sync.period")?;
    set(&mut sync.min_period, given.min_period, "sync.minPeriod")?;
    if sync.period < Period::seconds(1) {
        return Err(wrong(
            "sync.period",
            format!("{} is shorter than 1s", sync.period),
        ));
    }
    if sync.min_period > sync.period {
        let problem = format!(
            "{} is longer than spec.settings.sync.period, {}",
            sync.min_period, sync.period
        );
        return Err(wrong("sync.minPeriod", problem));
    }
    Ok(())
}

fn disk(given: given::DiskSpec, disk: &mut DiskSettings) -> Result<(), FieldError> {
    set(&mut disk.max_age, given.max_age, "disk.maxAge")?;
    set(&mut disk.grace, given.grace, "disk.grace")
}

fn listen(
    given: &given::ListenSpec,
    listen: &mut ListenSettings,
    field: &str,
) -> Result<(), FieldError> {
    listen.port = given.port.unwrap_or(listen.port);
    match given.bind_address.as_deref() {
        None => {}
        // Both forms disable the listener, as in kube-proxy's configuration.
        Some("") => listen.port = 0,
        Some(text) => {
            listen.bind_address = address(text, path(&format!("{field}.bindAddress")))?;
        }
    }
    Ok(())
}

fn set(period: &mut Period, text: Option<String>, field: &str) -> Result<(), FieldError> {
    if let Some(text) = text {
        *period = text
            .parse()
            .map_err(|error| wrong(field, format!("{error}")))?;
    }
    Ok(())
}

/// Maximum number of a routing table. The CRD has the same limit.
const MAX_ROUTING_TABLE: u32 = i32::MAX.unsigned_abs();
/// Maximum duration that the kernel stores, in seconds.
const MAX_TIMEOUT_SECONDS: u32 = i32::MAX.unsigned_abs();
/// Maximum duration of an IPVS timeout, in seconds. The kernel counts clock ticks, up to 1000 per second.
pub(crate) const MAX_IPVS_TIMEOUT_SECONDS: u32 = MAX_TIMEOUT_SECONDS / 1000;

/// A duration that the kernel counts in seconds.
fn set_whole(period: &mut Period, text: Option<String>, field: &str) -> Result<(), FieldError> {
    set(period, text, field)?;
    let milliseconds = period.as_milliseconds();
    if !milliseconds.is_multiple_of(1000) || *period > Period::seconds(MAX_TIMEOUT_SECONDS) {
        return Err(wrong(
            field,
            format!("{period} is not 0 to {MAX_TIMEOUT_SECONDS} whole seconds"),
        ));
    }
    Ok(())
}
