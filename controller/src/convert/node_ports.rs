//! Where node ports answer (S-32 to S-36).

use super::fields::Given;
use super::finding::Outcome;
use super::translation::{List, Mode, Translation};
use crate::from_kube::FieldError;

/// What `localhost` stands for: ranges that Portolan knows, and where no node port of its answers (S-35).
const LOCALHOST: [&str; 2] = ["127.0.0.0/8", "::1/128"];

impl Translation {
    pub(super) fn node_ports(&mut self) -> Result<(), FieldError> {
        let given = self.fields.texts("nodePortAddresses")?;
        let default = match self.mode {
            Mode::Nftables => "primary",
            Mode::Iptables | Mode::Ipvs => "all",
        };
        let texts = given.value.clone().unwrap_or_else(|| vec![default.into()]);
        let has = |word: &str| texts.iter().any(|text| text == word);
        if has("all") {
            let outcome = match given.value {
                Some(_) => Outcome::CarriedOver,
                None => Outcome::FilledIn,
            };
            self.put(
                outcome,
                &given,
                "nodePortAddresses: []",
                |settings| settings.node_port_addresses = Some(Vec::new()),
                "all local addresses; [primary], Portolan's default, are those of the Node object",
            );
            return Ok(());
        }
        if texts == ["primary"] {
            self.note(Outcome::Same, &given, "");
            return Ok(());
        }
        self.ranges(&given, &texts);
        Ok(())
    }

    fn ranges(&mut self, given: &Given<Vec<String>>, texts: &[String]) {
        let is_word = |text: &String| text == "primary" || text == "localhost";
        let (words, mut ranges): (Vec<_>, Vec<_>) = texts.iter().cloned().partition(is_word);
        let mut notes = Vec::new();
        let mut outcome = Outcome::CarriedOver;
        if words.iter().any(|word| word == "localhost") {
            ranges.extend(LOCALHOST.map(str::to_owned));
            if self.mode != Mode::Ipvs {
                outcome = Outcome::NoEqual;
                notes.push("no node port of Portolan answers on loopback addresses: use an address of the node");
            }
        }
        if words.iter().any(|word| word == "primary") {
            outcome = Outcome::NoEqual;
            notes.push(
                "primary stands alone in Portolan: add ranges that nodes have their primary addresses from",
            );
        } else {
            // To kube-proxy a family that is missing means all of its addresses, to Portolan none (S-33).
            for (range, mark) in [("0.0.0.0/0", '.'), ("::/0", ':')] {
                if !ranges.iter().any(|text| text.contains(mark)) {
                    ranges.push(range.into());
                    notes.push(
                        "kube-proxy takes all addresses of a family that the list lacks, so they are written; take \
                         the range of length 0 out if that was not meant",
                    );
                }
            }
        }
        let becomes = format!("nodePortAddresses: {}", List(ranges.clone()));
        let set = |settings: &mut portolan_crds::SettingsSpec| {
            settings.node_port_addresses = Some(ranges);
        };
        self.put(outcome, given, &becomes, set, &notes.join(". "));
    }
}
