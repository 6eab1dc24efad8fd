//! Listen addresses, and the detection of local pods.

use std::collections::BTreeSet;
use std::net::IpAddr;

use portolan_crds::{DetectionMode, ListenSpec, LocalDetectionSpec, SettingsSpec};

use super::fields::{Given, wrong};
use super::finding::Outcome;
use super::translation::{List, Translation};
use crate::from_kube::FieldError;

/// An address and a port, as kube-proxy writes them.
type Listen = (IpAddr, u16);

/// Why agents cannot all listen on this address.
fn not_for_every_node(target: &str, address: IpAddr) -> Option<&'static str> {
    let is_health = target == "healthz";
    let is_loopback = address.to_canonical().is_loopback();
    if address.is_unspecified() || is_loopback && !is_health {
        return None;
    }
    Some(match (is_health, is_loopback) {
        (true, true) => {
            "the kubelet probes the readiness of agents at the node's address, so agents listen on all addresses, \
             and health checks become open to all clients of the node. Restrict access with the nodes' firewall, or \
             write `bindAddress` beside the port into values of the chart, whose probe follows it"
        }
        (true, false) => {
            "an address of one node, and all nodes have the same ProxyConfig, so agents listen on all addresses, \
             and health checks become open to all clients of the node; restrict access with the nodes' firewall"
        }
        (false, _) => {
            "an address of one node, and all nodes have the same ProxyConfig, so agents listen on 127.0.0.1 only; \
             to collect metrics from other machines write spec.settings.metrics.bindAddress: 0.0.0.0"
        }
    })
}

impl Translation {
    /// Converts `bindAddress` and the addresses of health checks and metrics.
    pub(super) fn addresses(&mut self) -> Result<(), FieldError> {
        let bind = self.fields.text("bindAddress")?.and_then(|text| {
            let problem = || format!("{text:?} is not an IP address; write one like 0.0.0.0 or ::");
            text.parse::<IpAddr>().map(Some).map_err(|_| problem())
        })?;
        if bind.value.is_some_and(|address| !address.is_unspecified()) {
            self.note(
                Outcome::NoEqual,
                &bind,
                "kube-proxy uses it as the primary address of the node and does not listen there; Portolan \
                 reads the node's addresses from its Node object; check them there",
            );
        } else {
            self.note(Outcome::Same, &bind, "");
        }
        // The family of this address determines the defaults of the others (S-146).
        let is_ipv6 = bind
            .value
            .is_some_and(|address| address.to_canonical().is_ipv6());
        let (any, loopback) = if is_ipv6 {
            (
                IpAddr::from([0u16; 8]),
                IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
            )
        } else {
            (IpAddr::from([0u8; 4]), IpAddr::from([127, 0, 0, 1]))
        };
        self.listen("healthzBindAddress", (any, 10256), "healthz", |settings| {
            &mut settings.healthz
        })?;
        self.listen(
            "metricsBindAddress",
            (loopback, 10249),
            "metrics",
            |settings| &mut settings.metrics,
        )
    }

    fn listen(
        &mut self,
        field: &str,
        default: Listen,
        target: &str,
        place: fn(&mut SettingsSpec) -> &mut Option<ListenSpec>,
    ) -> Result<(), FieldError> {
        let read = |text: String| listen(&text, default.1).map(Some);
        let given = self.fields.text(field)?.and_then(read)?;
        let (address, port) = given.value.unwrap_or(default);
        if let Some(problem) = not_for_every_node(target, address) {
            return self.listen_everywhere(&given, target, port, place, problem);
        }
        let usual = place(&mut self.defaults).clone().unwrap_or_default();
        // An unspecified address means both families in Portolan; in kube-proxy only the IPv6 one does.
        let of_spec = usual.bind_address.and_then(|text| text.parse().ok());
        let same =
            |other: IpAddr| other == address || other.is_unspecified() && address.is_unspecified();
        if usual.port == Some(port) && of_spec.is_some_and(same) {
            self.note(Outcome::Same, &given, "");
            return Ok(());
        }
        let outcome = match given.value {
            Some(_) => Outcome::CarriedOver,
            None => Outcome::FilledIn,
        };
        let becomes = format!("{target}: {{bindAddress: {address:?}, port: {port}}}");
        let spec = ListenSpec {
            bind_address: Some(address.to_string()),
            port: Some(port),
        };
        self.put(
            outcome,
            &given,
            &becomes,
            |settings| *place(settings) = Some(spec),
            "",
        );
        Ok(())
    }

    /// Converts the port without the address.
    fn listen_everywhere(
        &mut self,
        given: &Given<Listen>,
        target: &str,
        port: u16,
        place: fn(&mut SettingsSpec) -> &mut Option<ListenSpec>,
        problem: &str,
    ) -> Result<(), FieldError> {
        let becomes = format!("{target}: {{port: {port}}}");
        let spec = ListenSpec {
            bind_address: None,
            port: Some(port),
        };
        let set = |settings: &mut SettingsSpec| *place(settings) = Some(spec);
        self.put(Outcome::NoEqual, given, &becomes, set, problem);
        Ok(())
    }

    /// Converts the detection of packets of a node's own pods (S-204).
    pub(super) fn local_detection(&mut self) -> Result<(), FieldError> {
        let mode = self.fields.text("detectLocalMode")?;
        let ranges = self.fields.text("clusterCIDR")?;
        let bridge = self.fields.text("detectLocal.bridgeInterface")?;
        let prefix = self.fields.text("detectLocal.interfaceNamePrefix")?;
        let unread = |this: &mut Self, given: &Given<String>| {
            this.note(
                Outcome::NotNeeded,
                given,
                "kube-proxy does not read it with this detectLocalMode",
            );
        };
        match mode.value.as_deref() {
            None | Some("ClusterCIDR") => {
                unread(self, &bridge);
                unread(self, &prefix);
                return self.cluster_ranges(&mode, &ranges);
            }
            Some("NodeCIDR") => {
                self.note(Outcome::Same, &mode, "");
                unread(self, &bridge);
                unread(self, &prefix);
            }
            Some("BridgeInterface") => {
                self.interface(&mode, &bridge, "localDetection.bridge", |name| {
                    LocalDetectionSpec {
                        mode: Some(DetectionMode::BridgeInterface),
                        bridge: Some(name),
                        ..LocalDetectionSpec::default()
                    }
                })?;
                unread(self, &prefix);
            }
            Some("InterfaceNamePrefix") => {
                self.interface(&mode, &prefix, "localDetection.prefix", |name| {
                    LocalDetectionSpec {
                        mode: Some(DetectionMode::InterfaceNamePrefix),
                        prefix: Some(name),
                        ..LocalDetectionSpec::default()
                    }
                })?;
                unread(self, &bridge);
            }
            Some(_) => {
                let shown = mode.shown.as_deref().unwrap_or_default();
                let problem = format!(
                    "{shown} is not a known mode; write ClusterCIDR, NodeCIDR, BridgeInterface or \
                     InterfaceNamePrefix"
                );
                return Err(wrong(&mode.field, problem));
            }
        }
        unread(self, &ranges);
        Ok(())
    }

    fn interface(
        &mut self,
        mode: &Given<String>,
        given: &Given<String>,
        target: &str,
        spec: impl FnOnce(String) -> LocalDetectionSpec,
    ) -> Result<(), FieldError> {
        let word = mode.value.clone().unwrap_or_default();
        let Some(name) = given.value.clone() else {
            let problem = format!(
                "missing, and detectLocalMode {word} needs it; write the name that pods' \
                                   interfaces have"
            );
            return Err(wrong(&given.field, problem));
        };
        let becomes = format!("localDetection.mode: {word}");
        self.put(Outcome::CarriedOver, mode, &becomes, |_| {}, "");
        let becomes = format!("{target}: {name}");
        let set = |settings: &mut SettingsSpec| settings.local_detection = Some(spec(name));
        self.put(Outcome::CarriedOver, given, &becomes, set, "");
        Ok(())
    }

    fn cluster_ranges(
        &mut self,
        mode: &Given<String>,
        given: &Given<String>,
    ) -> Result<(), FieldError> {
        let Some(text) = given.value.clone() else {
            self.note(
                Outcome::ChangesMeaning,
                given,
                "without it kube-proxy cannot recognize pods and masquerades no client of a cluster IP; \
                 Portolan masquerades all clients except the pods of the node, whose ranges it reads from \
                 spec.podCIDRs of the Node. If Nodes have none (addresses assigned by Calico or AWS), write \
                 spec.settings.localDetection: {mode: InterfaceNamePrefix, prefix: cali} or prefix: eni",
            );
            self.note(
                Outcome::NotNeeded,
                mode,
                "it has no effect without clusterCIDR",
            );
            return Ok(());
        };
        let ranges: Vec<String> = text.split(',').map(str::to_owned).collect();
        let families: BTreeSet<bool> = ranges.iter().map(|range| range.contains(':')).collect();
        if families.len() < ranges.len() {
            let problem = "more than one range of a family, and kube-proxy rejects that too; write one of each";
            return Err(wrong(&given.field, problem));
        }
        let outcome = match mode.value {
            Some(_) => Outcome::CarriedOver,
            None => Outcome::FilledIn,
        };
        self.put(
            outcome,
            mode,
            "localDetection.mode: ClusterCIDR",
            |_| {},
            "",
        );
        let note = match ranges.as_slice() {
            [_] => "if Services have addresses of the other family, too, add its pod range",
            _ => "",
        };
        let becomes = format!("localDetection.clusterCIDRs: {}", List(ranges.clone()));
        let spec = LocalDetectionSpec {
            mode: Some(DetectionMode::ClusterCidr),
            cluster_cidrs: Some(ranges),
            ..LocalDetectionSpec::default()
        };
        let set = |settings: &mut SettingsSpec| settings.local_detection = Some(spec);
        self.put(Outcome::CarriedOver, given, &becomes, set, note);
        Ok(())
    }
}

/// An address with a port, or an address alone for the default port.
fn listen(text: &str, usual: u16) -> Result<Listen, String> {
    let problem = || {
        format!(
            "{text:?} is not an address with a port from 1 to 65535; write one like 0.0.0.0:{usual} or [::]:{usual}"
        )
    };
    let address = |text: &str| text.parse::<IpAddr>().ok();
    if let Some(address) = address(text) {
        return Ok((address, usual));
    }
    let (host, port) = text.rsplit_once(':').ok_or_else(problem)?;
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let host = match bare {
        Some(bare) => address(bare),
        None => address(host).filter(IpAddr::is_ipv4),
    };
    let port = port.parse().ok().filter(|port| *port > 0);
    host.zip(port).ok_or_else(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_and_without_ports_are_read() {
        let read =
            |text: &str| listen(text, 10256).map(|(address, port)| format!("{address} {port}"));
        for (text, expected) in [
            ("0.0.0.0:10256", "0.0.0.0 10256"),
            ("127.0.0.1", "127.0.0.1 10256"),
            ("::", ":: 10256"),
            ("[::1]:1", "::1 1"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(expected));
        }
        for text in [
            ":10256",
            "10256",
            "0.0.0.0:0",
            "0.0.0.0:65536",
            "node:80",
            "[0.0.0.0:80",
            "[::1]",
            "::1:x",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
