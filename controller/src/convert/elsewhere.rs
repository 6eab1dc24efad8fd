//! Fields without a place in a ProxyConfig: fields of other modes and systems, of kube-proxy's own process, and
//! unknown ones.

use portolan_crds::{ExternalIpsSpec, SettingsSpec};

use super::fields::Given;
use super::finding::Outcome;
use super::translation::Translation;
use crate::from_kube::FieldError;

/// The type of a field, with kube-proxy's default.
#[derive(Clone, Copy)]
enum Plain {
    Text(&'static str),
    Flag(bool),
    Whole(i32),
    Number(f64),
    /// In milliseconds.
    Time(u64),
    Texts,
}

/// A field, its type and default, and the meaning of another value.
type Row = (&'static str, Plain, Outcome, &'static str);

/// Fields of kube-proxy that a ProxyConfig does not have.
const ROWS: [Row; 16] = {
    use Outcome::{NoEqual, NotNeeded};
    use Plain::{Flag, Number, Text, Time, Whole};
    const NO_API: &str = "nodes with Portolan do not read from the API server";
    const OLD: &str = "for kube-proxy's userspace mode, which was removed";
    [
        (
            "bindAddressHardFail",
            Flag(false),
            NoEqual,
            "an agent that cannot listen keeps running and retries: `portolan-agent doctor` and the metric \
          portolan_closed_ports report it",
        ),
        (
            "enableProfiling",
            Flag(false),
            NoEqual,
            "agents have no /debug/pprof; use their metrics and logs",
        ),
        (
            "showHiddenMetricsForVersion",
            Text(""),
            NoEqual,
            "agents have the metrics of kube-proxy that docs/reference/agent-metrics.md lists",
        ),
        (
            "hostnameOverride",
            Text(""),
            NoEqual,
            "agents take the name of their node from --node, which the chart sets from the pod",
        ),
        ("oomScoreAdj", Whole(-999), NoEqual, "agents set -999"),
        ("configSyncPeriod", Time(900_000), NotNeeded, NO_API),
        ("clientConnection.kubeconfig", Text(""), NotNeeded, NO_API),
        (
            "clientConnection.acceptContentTypes",
            Text(""),
            NotNeeded,
            NO_API,
        ),
        (
            "clientConnection.contentType",
            Text("application/vnd.kubernetes.protobuf"),
            NotNeeded,
            NO_API,
        ),
        ("clientConnection.qps", Number(5.0), NotNeeded, NO_API),
        ("clientConnection.burst", Whole(10), NotNeeded, NO_API),
        (
            "conntrack.max",
            Whole(0),
            NoEqual,
            "only old versions of kube-proxy read it; write spec.settings.conntrack.maxPerCore and min",
        ),
        (
            "logging.verbosity",
            Whole(0),
            NoEqual,
            "set the log filter of agents: agents.log of the chart, or PORTOLAN_LOG, for example debug",
        ),
        ("portRange", Text(""), NotNeeded, OLD),
        ("udpIdleTimeout", Time(250), NotNeeded, OLD),
        ("windowsRunAsService", Flag(false), NotNeeded, WINDOWS),
    ]
};

/// Fields of sections for other modes.
const OF_MODES: [(&str, Plain); 18] = {
    use Plain::{Flag, Text, Texts, Time, Whole};
    [
        ("iptables.localhostNodePorts", Flag(true)),
        ("iptables.masqueradeAll", Flag(false)),
        ("iptables.masqueradeBit", Whole(14)),
        ("iptables.minSyncPeriod", Time(1000)),
        ("iptables.snatNodeInternalIP", Flag(false)),
        ("iptables.syncPeriod", Time(30_000)),
        ("ipvs.excludeCIDRs", Texts),
        ("ipvs.minSyncPeriod", Time(0)),
        ("ipvs.scheduler", Text("")),
        ("ipvs.strictARP", Flag(false)),
        ("ipvs.syncPeriod", Time(30_000)),
        ("ipvs.tcpFinTimeout", Time(0)),
        ("ipvs.tcpTimeout", Time(0)),
        ("ipvs.udpTimeout", Time(0)),
        ("nftables.masqueradeAll", Flag(false)),
        ("nftables.masqueradeBit", Whole(14)),
        ("nftables.minSyncPeriod", Time(1000)),
        ("nftables.syncPeriod", Time(30_000)),
    ]
};

const WINDOWS: &str = "for Windows, which Portolan does not support; keep kube-proxy there";

/// The gate of external IPs.
pub(super) const EXTERNAL_IPS_GATE: &str = "featureGates.AllowServiceExternalIPs";

/// Gates for features that Portolan always has.
const ALWAYS_ON: [&str; 12] = [
    "EndpointSliceProxying",
    "EndpointSliceTerminatingCondition",
    "IPv6DualStack",
    "KubeProxyDrainingTerminatingNodes",
    "LoadBalancerIPMode",
    "PreferSameTrafficDistribution",
    "ProxyTerminatingEndpoints",
    "SCTPSupport",
    "ServiceInternalTrafficPolicy",
    "ServiceTrafficDistribution",
    "SupportIPVSProxyMode",
    "TopologyAwareHints",
];

impl Translation {
    /// Converts all remaining fields.
    pub(super) fn elsewhere(&mut self) -> Result<(), FieldError> {
        for (field, plain, outcome, note) in ROWS {
            let (given, is_default) = self.plain(field, plain)?;
            match outcome {
                Outcome::NoEqual if is_default => self.note(Outcome::Same, &given, ""),
                outcome => self.note_set(outcome, &given, note),
            }
        }
        let unread = format!("kube-proxy does not read it in mode {}", self.mode.name());
        for (field, plain) in OF_MODES {
            let (given, _) = self.plain(field, plain)?;
            self.note_set(Outcome::NotNeeded, &given, &unread);
        }
        for (prefix, note) in [
            (
                "logging.",
                "for kube-proxy's own log; agents log to standard error",
            ),
            ("winkernel.", WINDOWS),
        ] {
            for field in self.fields.left(prefix) {
                let given = self.fields.any(&field);
                self.note_set(Outcome::NotNeeded, &given, note);
            }
        }
        self.gates()?;
        self.unknown();
        Ok(())
    }

    /// Notes a field if it is set.
    pub(super) fn note_set<T>(&mut self, outcome: Outcome, given: &Given<T>, note: &str) {
        if given.shown.is_some() {
            self.note(outcome, given, note);
        }
    }

    /// A field of this type, and whether it has kube-proxy's default.
    fn plain(&mut self, field: &str, plain: Plain) -> Result<(Given<()>, bool), FieldError> {
        fn compared<T: PartialEq>(given: Given<T>, default: &T) -> (Given<()>, bool) {
            let is_default = given.value.as_ref().is_none_or(|value| value == default);
            let (field, shown) = (given.field, given.shown);
            let value = given.value.map(drop);
            (
                Given {
                    field,
                    shown,
                    value,
                },
                is_default,
            )
        }
        let fields = &mut self.fields;
        Ok(match plain {
            Plain::Text(default) => compared(fields.text(field)?, &default.to_owned()),
            Plain::Flag(default) => compared(fields.flag(field)?, &default),
            Plain::Whole(default) => compared(fields.integer(field)?, &default),
            Plain::Number(default) => compared(fields.number(field)?, &default),
            Plain::Time(default) => compared(fields.time(field)?, &(default * 1_000_000)),
            Plain::Texts => compared(fields.texts(field)?, &Vec::new()),
        })
    }

    fn gates(&mut self) -> Result<(), FieldError> {
        for field in self.fields.left("featureGates.") {
            let given = self.fields.flag(&field)?;
            let name = field.strip_prefix("featureGates.").unwrap_or_default();
            let on = given.value == Some(true);
            if field == EXTERNAL_IPS_GATE {
                self.external_ips(&given, on);
                continue;
            }
            if on && ALWAYS_ON.contains(&name) {
                self.note(Outcome::Same, &given, "Portolan always does this");
            } else {
                self.note(
                    Outcome::NoEqual,
                    &given,
                    "Portolan has no feature gates; if this one changes how kube-proxy serves Services, \
                     e2e/semantics.yaml describes what Portolan does",
                );
            }
        }
        Ok(())
    }

    /// S-237: kube-proxy 1.36 and later serves external IPs only with this gate, which is on by default until 1.40.
    fn external_ips(&mut self, given: &Given<bool>, on: bool) {
        if on {
            return self.note(Outcome::Same, given, "");
        }
        let nowhere = ExternalIpsSpec {
            allowed_cidrs: Some(Vec::new()),
        };
        let set = |settings: &mut SettingsSpec| settings.external_ips = Some(nowhere);
        let becomes = "externalIPs: {allowedCIDRs: []}";
        self.put(
            Outcome::CarriedOver,
            given,
            becomes,
            set,
            "no external IP is served",
        );
    }

    fn unknown(&mut self) {
        for field in self.fields.left("") {
            let given = self.fields.any(&field);
            self.note(
                Outcome::Unknown,
                &given,
                "misspelt, or of another version of kube-proxy, which only logs a warning for unknown fields",
            );
        }
    }
}
