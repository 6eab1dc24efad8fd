//! Fields with the same meaning in both configurations, and the notes about results.

use std::fmt::{self, Display};

use portolan_crds::{DataplaneMode, HostFirewallMode, SettingsSpec};
use portolan_plan::Period;

use super::fields::{Fields, Given, wrong};
use super::finding::{Finding, Outcome};
use crate::from_kube::{FieldError, default_spec};

/// Default bit by which Portolan marks packets for IPVS.
const DEFAULT_CAPTURE_BIT: u8 = 12;

/// How kube-proxy programs nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Iptables,
    Ipvs,
    Nftables,
}

impl Mode {
    /// Its name, which is also the name of its section.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Ipvs => "ipvs",
            Self::Nftables => "nftables",
        }
    }

    /// The section with the packet marks; ipvs has none of its own.
    fn marks(self) -> &'static str {
        match self {
            Self::Iptables | Self::Ipvs => "iptables",
            Self::Nftables => "nftables",
        }
    }
}

/// A list as YAML has it in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct List(pub(super) Vec<String>);

impl Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", self.0.join(", "))
    }
}

/// A conversion in progress.
pub(super) struct Translation {
    pub(super) fields: Fields,
    pub(super) mode: Mode,
    /// Whether kube-proxy serves node ports on loopback addresses if it serves them on all.
    pub(super) answers_on_loopback: bool,
    /// Portolan's defaults.
    pub(super) defaults: SettingsSpec,
    settings: SettingsSpec,
    findings: Vec<Finding>,
}

impl Translation {
    pub(super) fn new(mut fields: Fields) -> Result<Self, FieldError> {
        let given = fields.text("mode")?;
        let mode = match given.value.as_deref() {
            None | Some("iptables") => Mode::Iptables,
            Some("ipvs") => Mode::Ipvs,
            Some("nftables") => Mode::Nftables,
            Some(_) => {
                let shown = given.shown.as_deref().unwrap_or_default();
                let problem = format!(
                    "{shown} is not a mode of kube-proxy on Linux; write ipvs, iptables or nftables"
                );
                return Err(wrong("mode", problem));
            }
        };
        let mut translation = Self {
            fields,
            mode,
            answers_on_loopback: false,
            defaults: default_spec()?,
            settings: SettingsSpec::default(),
            findings: Vec::new(),
        };
        translation.mode(&given);
        Ok(translation)
    }

    fn mode(&mut self, given: &Given<String>) {
        match self.mode {
            Mode::Ipvs => {
                // The one mode that does not drop them (S-173).
                self.put(
                    Outcome::CarriedOver,
                    given,
                    "dropInvalid: false, hostFirewall: Respect",
                    |settings| {
                        settings.drop_invalid = Some(false);
                        settings.host_firewall = Some(HostFirewallMode::Respect);
                    },
                    "Portolan programs IPVS, too. In this mode kube-proxy accepts packets that connection \
                     tracking considers invalid; true, Portolan's default, drops them, so that they cannot \
                     reset valid connections. In this mode the host's chain INPUT filters clients of node \
                     ports; Open, Portolan's default, accepts all, like kube-proxy's other modes",
                );
            }
            Mode::Iptables => self.note(
                Outcome::ChangesMeaning,
                given,
                "Portolan programs IPVS by default: spec.settings.scheduler chooses the endpoint of a connection \
                 (rr: in turn), and no longer a random rule. Kernels need IPVS: `portolan-agent doctor` checks a \
                 node. With spec.settings.dataplane: nftables, rules still choose at random, without IPVS",
            ),
            Mode::Nftables => self.put(
                Outcome::CarriedOver,
                given,
                "dataplane: nftables",
                |settings| settings.dataplane = Some(DataplaneMode::Nftables),
                "rules choose endpoints at random, as before, and kernels do not need IPVS",
            ),
        }
    }

    pub(super) fn into_parts(self) -> (&'static str, SettingsSpec, Vec<Finding>) {
        (self.mode.name(), self.settings, self.findings)
    }

    /// Notes the result for a field. An unset field is noted only if it matters.
    pub(super) fn note<T>(&mut self, outcome: Outcome, given: &Given<T>, note: &str) {
        if given.shown.is_none() && matches!(outcome, Outcome::Same | Outcome::NotNeeded) {
            return;
        }
        self.findings.push(Finding {
            field: given.field.clone(),
            value: given.shown.clone(),
            outcome,
            becomes: None,
            note: note.into(),
        });
    }

    /// Converts a field with the same meaning in both: `set` writes it to `target`; `default` is kube-proxy's.
    pub(super) fn carry<T: Clone + Display>(
        &mut self,
        given: &Given<T>,
        default: T,
        target: &str,
        set: impl Fn(&mut SettingsSpec, T),
        note: &str,
    ) {
        let value = given.value.clone().unwrap_or(default);
        let becomes = format!("spec.settings.{target}: {value}");
        let mut with = self.defaults.clone();
        set(&mut with, value.clone());
        if with == self.defaults {
            return self.note(Outcome::Same, given, "");
        }
        set(&mut self.settings, value);
        let outcome = match given.value {
            Some(_) => Outcome::CarriedOver,
            None => Outcome::FilledIn,
        };
        self.write(outcome, given, becomes, note);
    }

    /// Writes a value other than the default into the settings.
    pub(super) fn put<T>(
        &mut self,
        outcome: Outcome,
        given: &Given<T>,
        becomes: &str,
        set: impl FnOnce(&mut SettingsSpec),
        note: &str,
    ) {
        set(&mut self.settings);
        self.write(outcome, given, format!("spec.settings.{becomes}"), note);
    }

    fn write<T>(&mut self, outcome: Outcome, given: &Given<T>, becomes: String, note: &str) {
        self.findings.push(Finding {
            field: given.field.clone(),
            value: given.shown.clone(),
            outcome,
            becomes: Some(becomes),
            note: note.into(),
        });
    }

    /// Converts packet marks, masquerading, sync intervals, and the fields of mode ipvs.
    pub(super) fn traffic(&mut self) -> Result<(), FieldError> {
        let marks = self.mode.marks();
        let bit = self.fields.integer(&format!("{marks}.masqueradeBit"))?;
        let bit = bit.and_then(|bit| {
            let bounded = u8::try_from(bit).ok().filter(|bit| *bit <= 31);
            let problem =
                || format!("{bit} is not between 0 and 31, and kube-proxy rejects it too");
            bounded.map(Some).ok_or_else(problem)
        })?;
        if bit.value == Some(DEFAULT_CAPTURE_BIT) {
            self.put(
                Outcome::CarriedOver,
                &bit,
                "masquerade.bit: 12, capture.bit: 14",
                |settings| {
                    settings.masquerade.get_or_insert_default().bit = Some(DEFAULT_CAPTURE_BIT);
                    settings.capture.get_or_insert_default().bit = Some(14);
                },
                "bit 12, by which Portolan marks packets for IPVS, is the masquerade bit here",
            );
        } else {
            self.carry(
                &bit,
                14,
                "masquerade.bit",
                |settings, bit| settings.masquerade.get_or_insert_default().bit = Some(bit),
                "",
            );
        }
        let all = self.fields.flag(&format!("{marks}.masqueradeAll"))?;
        self.carry(
            &all,
            false,
            "masquerade.all",
            |settings, all| settings.masquerade.get_or_insert_default().all = Some(all),
            "",
        );
        self.sync()?;
        match self.mode {
            Mode::Ipvs => self.ipvs(),
            Mode::Iptables => self.local_host(),
            Mode::Nftables => Ok(()),
        }
    }

    fn sync(&mut self) -> Result<(), FieldError> {
        let section = self.mode.name();
        // 0 is what is not set for kube-proxy (S-184).
        let set = |time| Ok(Some(milliseconds(time)).filter(|period| *period > Period::default()));
        let period = self.fields.time(&format!("{section}.syncPeriod"))?;
        let period = period.and_then(set)?;
        let min = self.fields.time(&format!("{section}.minSyncPeriod"))?;
        let min = min.and_then(set)?;
        let least = match self.mode {
            Mode::Ipvs => Period::default(),
            Mode::Iptables | Mode::Nftables => Period::seconds(1),
        };
        let longest = period.value.unwrap_or(Period::seconds(30));
        let shortest = min.value.unwrap_or(least);
        if shortest > longest {
            let problem = format!(
                "{shortest} is longer than {section}.syncPeriod, {longest}, and kube-proxy rejects that too; \
                 write at most that"
            );
            return Err(wrong(&min.field, problem));
        }
        self.period(&period);
        self.carry(
            &min,
            least,
            "sync.minPeriod",
            |settings, period| {
                settings.sync.get_or_insert_default().min_period = Some(period.to_string());
            },
            "a pass of Portolan processes changes only; with 0s, its default, they reach nodes sooner",
        );
        Ok(())
    }

    fn period(&mut self, given: &Given<Period>) {
        let set = |settings: &mut SettingsSpec, period: Period| {
            settings.sync.get_or_insert_default().period = Some(period.to_string());
        };
        let least = Period::seconds(1);
        if given.value.is_some_and(|period| period < least) {
            self.put(
                Outcome::ChangesMeaning,
                given,
                "sync.period: 1s",
                |settings| set(settings, least),
                "Portolan compares everything at most once per second; changes do not wait for it",
            );
        } else {
            self.carry(given, Period::seconds(30), "sync.period", set, "");
        }
    }

    fn ipvs(&mut self) -> Result<(), FieldError> {
        let scheduler = self.fields.text("ipvs.scheduler")?;
        self.carry(
            &scheduler,
            "rr".into(),
            "scheduler",
            |settings, name| settings.scheduler = Some(name),
            "",
        );
        self.strict_arp()?;
        self.excluded()
    }

    /// S-109, S-248: kube-proxy binds external addresses to each node, where the kernel answers ARP for them.
    fn strict_arp(&mut self) -> Result<(), FieldError> {
        let strict = self.fields.flag("ipvs.strictARP")?;
        match strict.value {
            Some(true) => self.note(
                Outcome::NotNeeded,
                &strict,
                "Portolan assigns no Service address to a node, so nodes answer ARP for none",
            ),
            None | Some(false) => self.note(
                Outcome::ChangesMeaning,
                &strict,
                "every node with kube-proxy answers ARP for external IPs and load balancer addresses; nodes with \
                 Portolan answer for none. Where clients depend on it, announce the addresses before nodes \
                 move: MetalLB, kube-vip, or a route to nodes. `arping ADDRESS` from a client's network shows who \
                 answers",
            ),
        }
        Ok(())
    }

    fn excluded(&mut self) -> Result<(), FieldError> {
        let ranges = self.fields.texts("ipvs.excludeCIDRs")?;
        match ranges.value.clone() {
            None => self.note(Outcome::Same, &ranges, ""),
            Some(texts) => self.put(
                Outcome::ChangesMeaning,
                &ranges,
                &format!("excludeCIDRs: {}", List(texts.clone())),
                |settings| settings.exclude_cidrs = Some(texts),
                "Portolan leaves virtual servers of other programs alone in any range; but it does not serve \
                 Service addresses in these ranges: remove the ranges if there are some",
            ),
        }
        Ok(())
    }

    fn local_host(&mut self) -> Result<(), FieldError> {
        let given = self.fields.flag("iptables.localhostNodePorts")?;
        self.answers_on_loopback = given.value != Some(false);
        let outcome = match given.value {
            Some(true) => Outcome::CarriedOver,
            None => Outcome::FilledIn,
            Some(false) => Outcome::Same,
        };
        let note = match self.answers_on_loopback {
            true => {
                "agents forward TCP connections to node ports on 127.0.0.1 if nodePortAddresses has \
                 `localhost`, but not UDP"
            }
            false => "node ports do not answer on loopback addresses",
        };
        self.note(outcome, &given, note);
        let given = self.fields.flag("iptables.snatNodeInternalIP")?;
        match given.value {
            None | Some(false) => self.note(Outcome::Same, &given, ""),
            Some(true) => self.note(
                Outcome::NoEqual,
                &given,
                "masqueraded packets get the address of the interface that they leave by; add those addresses \
                 to rules of your networks",
            ),
        }
        Ok(())
    }
}

/// A duration as in settings, rounded up.
fn milliseconds(nanoseconds: u64) -> Period {
    Period::milliseconds(nanoseconds.div_ceil(1_000_000))
}
