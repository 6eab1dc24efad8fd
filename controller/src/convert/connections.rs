//! Limits and timeouts of connection tracking (S-178, S-179), and the timeouts of IPVS (S-105, S-221, S-248).

use portolan_crds::{ConntrackSpec, SettingsSpec, TimeoutsSpec};
use portolan_plan::Period;

use super::fields::Given;
use super::finding::Outcome;
use super::translation::{Mode, Translation};
use crate::from_kube::{FieldError, MAX_IPVS_TIMEOUT_SECONDS};

/// Nanoseconds in a second.
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The field of a number of connections.
type Count = fn(&mut ConntrackSpec) -> &mut Option<u32>;
/// The field of a timeout of connection tracking.
type Time = fn(&mut ConntrackSpec) -> &mut Option<String>;
/// The field of an IPVS timeout.
type Timeout = fn(&mut TimeoutsSpec) -> &mut Option<String>;

/// The kernel's timeout of UDP flows in IPVS, in seconds.
const IPVS_UDP_SECONDS: u32 = 300;

/// A note on a time that is 0.
const KEPT: &str = "0 keeps the kernel's value";

/// A note on a timeout of UDP flows in mode ipvs.
const BOTH_COUNT_UDP: &str = "IPVS and connection tracking both remove idle UDP flows, and the lower timeout counts, \
    as with kube-proxy: ipvs.udpTimeout, 5m if the kernel's is kept, and conntrack.udpStreamTimeout, 2m";

/// Whether a time is set to something else than 0, which keeps the kernel's value.
fn is_set(given: &Given<Period>) -> bool {
    given.value.is_some_and(|time| time > Period::default())
}

impl Translation {
    /// A duration that the kernel counts in whole seconds; kube-proxy truncates it.
    pub(super) fn seconds(&mut self, field: &str) -> Result<Given<Period>, FieldError> {
        self.fields
            .time(field)?
            .and_then(|time| match time / NANOS_PER_SECOND {
                0 if time > 0 => Err(
                    "shorter than a second; write whole seconds, or 0s to keep the kernel's value"
                        .into(),
                ),
                seconds => Ok(Some(Period::milliseconds(seconds * 1000))),
            })
    }

    /// Converts limits and timeouts of connection tracking.
    pub(super) fn connections(&mut self) -> Result<(), FieldError> {
        let counts: [(&str, u32, Count); 2] = [
            ("maxPerCore", 32_768, |spec| &mut spec.max_per_core),
            ("min", 131_072, |spec| &mut spec.min),
        ];
        for (name, default, place) in counts {
            let name = format!("conntrack.{name}");
            let given = self.fields.integer(&name)?.and_then(|count| {
                let problem = || {
                    format!("{count} is negative, and kube-proxy rejects it too; write 0 or more")
                };
                u32::try_from(count).map(Some).map_err(|_| problem())
            })?;
            let set = |settings: &mut SettingsSpec, count| {
                *place(settings.conntrack.get_or_insert_default()) = Some(count);
            };
            let note = match (given.value, name.as_str()) {
                (Some(0), "conntrack.maxPerCore") => {
                    "0 keeps the kernel's maximum, whatever conntrack.min is"
                }
                _ => "",
            };
            self.carry(&given, default, &name, set, note);
        }
        self.established()?;
        let close_wait = self.seconds("conntrack.tcpCloseWaitTimeout")?;
        let is_kept = close_wait.value == Some(Period::default());
        self.carry(
            &close_wait,
            Period::seconds(3_600),
            "conntrack.tcpCloseWait",
            set_time(|spec| &mut spec.tcp_close_wait),
            if is_kept { KEPT } else { "" },
        );
        self.udp()?;
        let liberal = self.fields.flag("conntrack.tcpBeLiberal")?;
        let set = |settings: &mut SettingsSpec, liberal| {
            settings.conntrack.get_or_insert_default().tcp_be_liberal = Some(liberal);
        };
        self.carry(&liberal, false, "conntrack.tcpBeLiberal", set, "");
        Ok(())
    }

    /// Idle TCP connections, in connection tracking and in IPVS.
    fn established(&mut self) -> Result<(), FieldError> {
        let given = self.seconds("conntrack.tcpEstablishedTimeout")?;
        let usual = Period::seconds(86_400);
        let time = given.value.unwrap_or(usual);
        let is_kept = time == Period::default();
        let set = set_time(|spec| &mut spec.tcp_established);
        let target = "conntrack.tcpEstablished";
        let of_ipvs = match self.mode {
            Mode::Ipvs => Some(self.seconds("ipvs.tcpTimeout")?),
            Mode::Iptables | Mode::Nftables => None,
        };
        match (&of_ipvs, is_kept) {
            (_, false) => self.carry(&given, usual, target, set, ""),
            (None, true) if self.mode == Mode::Iptables => self.put(
                Outcome::ChangesMeaning,
                &given,
                &format!("{target}: 0s"),
                |settings| set(settings, Period::default()),
                "0 keeps the kernel's value, and timeouts.tcp, the timeout of IPVS, becomes 0s too. IPVS then \
                 resets idle connections after the kernel's 15 minutes; with kube-proxy's rules they lasted as \
                 long as in connection tracking, by default 5 days. Write spec.settings.timeouts.tcp: 120h to \
                 keep that",
            ),
            (Some(of_ipvs), true) if !is_set(of_ipvs) => self.carry(
                &given,
                usual,
                target,
                set,
                "0 keeps the kernel's value, and timeouts.tcp, the timeout of IPVS, becomes 0s too: IPVS resets \
                 idle connections after the kernel's 15 minutes, as with kube-proxy",
            ),
            (_, true) => self.carry(&given, usual, target, set, KEPT),
        }
        if let Some(of_ipvs) = of_ipvs {
            self.ipvs_tcp(&of_ipvs, time);
        }
        Ok(())
    }

    /// The timeout of idle TCP connections in IPVS, which follows that of connection tracking if it is not set (S-221).
    fn ipvs_tcp(&mut self, given: &Given<Period>, established: Period) {
        if is_set(given) {
            let set = set_timeout(|spec| &mut spec.tcp);
            self.carry(given, Period::default(), "timeouts.tcp", set, "");
        } else if established == Period::default() {
            self.note(Outcome::Same, given, "");
        } else {
            let longest = Period::seconds(MAX_IPVS_TIMEOUT_SECONDS);
            let note = format!(
                "timeouts.tcp follows conntrack.tcpEstablished and becomes {}; kube-proxy keeps the kernel's \
                 timeout, so IPVS resets idle connections after 15 minutes. Write spec.settings.timeouts.tcp: 15m \
                 to keep that",
                established.min(longest)
            );
            self.note(Outcome::ChangesMeaning, given, &note);
        }
    }

    /// Timeouts of UDP flows in connection tracking, and the timeouts of IPVS that remain.
    fn udp(&mut self) -> Result<(), FieldError> {
        if self.mode == Mode::Ipvs {
            let fin = self.seconds("ipvs.tcpFinTimeout")?;
            let set = set_timeout(|spec| &mut spec.tcp_fin);
            self.carry(&fin, Period::default(), "timeouts.tcpFin", set, "");
            let udp = self.seconds("ipvs.udpTimeout")?;
            let set = set_timeout(|spec| &mut spec.udp);
            self.carry(&udp, Period::default(), "timeouts.udp", set, BOTH_COUNT_UDP);
        }
        let times: [(&str, Time); 2] = [
            ("conntrack.udpTimeout", |spec| &mut spec.udp_timeout),
            ("conntrack.udpStreamTimeout", |spec| {
                &mut spec.udp_stream_timeout
            }),
        ];
        let longest = Period::seconds(MAX_IPVS_TIMEOUT_SECONDS);
        let mut of_ipvs = Period::seconds(IPVS_UDP_SECONDS);
        for (field, place) in times {
            let given = self.seconds(field)?;
            let time = given.value.unwrap_or_default();
            let set = set_time(place);
            if self.mode == Mode::Iptables && time > of_ipvs {
                // IPVS must not remove a flow sooner than connection tracking alone would.
                of_ipvs = time.min(longest);
                self.put(
                    Outcome::CarriedOver,
                    &given,
                    &format!("{field}: {time}, timeouts.udp: {of_ipvs}"),
                    |settings| {
                        set(settings, time);
                        set_timeout(|spec| &mut spec.udp)(settings, of_ipvs);
                    },
                    "IPVS removes idle UDP flows, too, after 5 minutes by default, and the lower timeout counts",
                );
                continue;
            }
            let note = match self.mode {
                Mode::Ipvs => BOTH_COUNT_UDP,
                Mode::Iptables | Mode::Nftables => "",
            };
            self.carry(&given, Period::default(), field, set, note);
        }
        Ok(())
    }
}

fn set_time(place: Time) -> impl Fn(&mut SettingsSpec, Period) + Copy {
    move |settings, time| {
        *place(settings.conntrack.get_or_insert_default()) = Some(time.to_string());
    }
}

fn set_timeout(place: Timeout) -> impl Fn(&mut SettingsSpec, Period) + Copy {
    move |settings, time| {
        *place(settings.timeouts.get_or_insert_default()) = Some(time.to_string());
    }
}
