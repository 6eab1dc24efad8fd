//! Converts the addresses of node ports (S-32 to S-36, S-234).

use ipnet::IpNet;
use portolan_crds::SettingsSpec;

use super::finding::Outcome;
use super::translation::{List, Mode, Translation};
use crate::from_kube::FieldError;

const ALL: &str = "all";
const PRIMARY: &str = "primary";
const LOCALHOST: &str = "localhost";

impl Translation {
    pub(super) fn node_ports(&mut self) -> Result<(), FieldError> {
        let given = self.fields.texts("nodePortAddresses")?;
        let default = match self.mode {
            Mode::Nftables => PRIMARY,
            Mode::Iptables | Mode::Ipvs => ALL,
        };
        let texts = given.value.clone().unwrap_or_else(|| vec![default.into()]);
        let mut ours = texts.clone();
        // Mode iptables includes loopback addresses in all addresses, and in ranges.
        if self.answers_on_loopback && texts.iter().any(|text| holds_loopback(text)) {
            ours.push(LOCALHOST.into());
        }
        if ours == [PRIMARY] {
            self.note(Outcome::Same, &given, "");
            return Ok(());
        }
        let mut note = "";
        let is_word = |text: &String| [ALL, PRIMARY, LOCALHOST].contains(&text.as_str());
        if texts.iter().any(|text| text == ALL) {
            note =
                "all local addresses; [primary], Portolan's default, are those of the Node object";
        } else if !texts.iter().any(is_word) {
            // For kube-proxy, a missing family means all of its addresses; for Portolan, none (S-33).
            for (range, mark) in [("0.0.0.0/0", '.'), ("::/0", ':')] {
                if !texts.iter().any(|text| text.contains(mark)) {
                    ours.push(range.into());
                    note = "for a family that is not in the list, kube-proxy uses all addresses, and Portolan \
                        none, so all are written; remove the range of length 0 if that is not intended";
                }
            }
        }
        if ours == [ALL] {
            ours.clear();
        }
        let outcome = match given.value {
            Some(_) => Outcome::CarriedOver,
            None => Outcome::FilledIn,
        };
        let becomes = format!("nodePortAddresses: {}", List(ours.clone()));
        let set = |settings: &mut SettingsSpec| settings.node_port_addresses = Some(ours);
        self.put(outcome, &given, &becomes, set, note);
        Ok(())
    }
}

/// Whether kube-proxy would serve node ports on a loopback address in this range.
fn holds_loopback(text: &str) -> bool {
    let range = || text.parse::<IpNet>();
    text == ALL
        || range().is_ok_and(|range| range.network().is_loopback() || range.prefix_len() == 0)
}
