//! Limits and timeouts of connection tracking (S-178, S-179).

use portolan_crds::{ConntrackSpec, SettingsSpec};
use portolan_plan::Period;

use super::fields::Given;
use super::translation::Translation;
use crate::from_kube::FieldError;

/// Nanoseconds in a second.
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The field of a number of connections.
type Count = fn(&mut ConntrackSpec) -> &mut Option<u32>;
/// The field of a timeout of connection tracking.
type Time = fn(&mut ConntrackSpec) -> &mut Option<String>;

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
            self.carry(&given, default, &name, set, "");
        }
        let times: [(&str, &str, u32, Time); 4] = [
            (
                "conntrack.tcpEstablishedTimeout",
                "conntrack.tcpEstablished",
                86_400,
                |spec| &mut spec.tcp_established,
            ),
            (
                "conntrack.tcpCloseWaitTimeout",
                "conntrack.tcpCloseWait",
                3_600,
                |spec| &mut spec.tcp_close_wait,
            ),
            ("conntrack.udpTimeout", "conntrack.udpTimeout", 0, |spec| {
                &mut spec.udp_timeout
            }),
            (
                "conntrack.udpStreamTimeout",
                "conntrack.udpStreamTimeout",
                0,
                |spec| &mut spec.udp_stream_timeout,
            ),
        ];
        for (field, target, default, place) in times {
            let given = self.seconds(field)?;
            let set = |settings: &mut SettingsSpec, period: Period| {
                *place(settings.conntrack.get_or_insert_default()) = Some(period.to_string());
            };
            self.carry(&given, Period::seconds(default), target, set, "");
        }
        let liberal = self.fields.flag("conntrack.tcpBeLiberal")?;
        let set = |settings: &mut SettingsSpec, liberal| {
            settings.conntrack.get_or_insert_default().tcp_be_liberal = Some(liberal);
        };
        self.carry(&liberal, false, "conntrack.tcpBeLiberal", set, "");
        Ok(())
    }
}
