//! The stored content of a revision: the settings, and which template the agents' DaemonSets have.

use portolan_crds::{OverrideSpec, ProxyConfig as Given, SettingsSpec};
use portolan_planner::model::{Override, Revision};
use portolan_rollout_policy::State;
use serde::{Deserialize, Serialize};

use super::agents::AgentsRecord;
use super::field::FieldError;
use super::settings::{patch, settings};

/// The stored content.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Content {
    settings: SettingsSpec,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    overrides: Vec<OverrideSpec>,
    /// The agents; `None` if the controller does not manage agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    agents: Option<AgentsRecord>,
}

impl Content {
    pub(super) fn of(object: &Given, agents: Option<&AgentsRecord>) -> Self {
        Self {
            settings: object.spec.settings.clone().unwrap_or_default(),
            overrides: object.spec.overrides.clone().unwrap_or_default(),
            agents: agents.cloned(),
        }
    }

    pub(super) fn read(text: &str) -> serde_json::Result<Self> {
        serde_json::from_str(text)
    }

    /// Its canonical text.
    pub(super) fn text(&self) -> Result<String, FieldError> {
        serde_json::to_string(self).map_err(|error| FieldError::new("spec", error.to_string()))
    }

    /// The part that nodes receive.
    pub(super) fn settings_text(&self) -> Result<String, FieldError> {
        let mut settings = self.clone();
        settings.agents = None;
        settings.text()
    }

    pub(super) fn revision(&self, number: Option<u64>) -> Result<Revision, FieldError> {
        let one = |(index, given): (usize, &OverrideSpec)| {
            let labels = given.node_selector.match_labels.iter();
            if given.node_selector.match_labels.is_empty() {
                let field = format!("spec.overrides[{index}].nodeSelector.matchLabels");
                let problem = "empty; write at least one label, or the settings into spec.settings";
                return Err(FieldError::new(field, problem));
            }
            let place = format!("spec.overrides[{index}].settings");
            let settings = patch(&given.settings).map_err(|error| error.within(&place))?;
            Ok(Override {
                labels: labels
                    .map(|(name, value)| (name.as_str().into(), value.as_str().into()))
                    .collect(),
                settings,
            })
        };
        let overrides = self.overrides.iter().enumerate().map(one);
        Ok(Revision {
            number,
            settings: settings(self.settings.clone())?,
            overrides: overrides.collect::<Result<_, _>>()?,
        })
    }
}

/// The agents of a revision; `None` if it has none, or it is unreadable.
#[must_use]
pub fn agents_of(state: &State, number: u64) -> Option<AgentsRecord> {
    agents_in(&state.revision(number)?.content)
}

/// The agents in the content of a revision; `None` if it has none, or it is unreadable.
#[must_use]
pub fn agents_in(content: &str) -> Option<AgentsRecord> {
    Content::read(content).ok()?.agents
}

/// The state with agents in all revisions. A revision without agents was recorded by a controller that did not manage
/// them, so no change brought the agents there were: it gets the agents of the current revision, else `agents`.
#[must_use]
pub fn with_agents(mut state: State, agents: Option<&AgentsRecord>) -> State {
    let current = agents_of(&state, state.current);
    let Some(agents) = current.as_ref().or(agents) else {
        return state;
    };
    for held in &mut state.history {
        if let Ok(mut content) = Content::read(&held.content)
            && content.agents.is_none()
        {
            content.agents = Some(agents.clone());
            if let Ok(text) = content.text() {
                held.content = text.into();
            }
        }
    }
    state
}

#[cfg(test)]
mod tests {
    use super::super::agents::Sha256;
    use super::*;

    fn agents(template: &str) -> AgentsRecord {
        AgentsRecord {
            sha256: Sha256::of(template),
            image: Some(format!("r/portolan-agent:{template}")),
        }
    }

    #[test]
    fn agents_are_stored_with_settings_and_settings_alone_distinguish_revisions() {
        let (agents, other) = (agents("1"), agents("2"));
        let object = Given::new("default", portolan_crds::ProxyConfigSpec::default());
        let with = Content::of(&object, Some(&agents));
        let without = Content::of(&object, None);
        assert_ne!(with.text().unwrap(), without.text().unwrap());
        assert_eq!(with.settings_text().unwrap(), without.text().unwrap());
        let first = State::first(without.text().unwrap().into(), 1, 0);
        assert_eq!(agents_of(&first, 1), None);
        let given = with_agents(first.clone(), Some(&agents));
        assert_eq!(agents_of(&given, 1), Some(agents));
        assert_eq!(given.history[0].content, with.text().unwrap().into());
        // Stored agents stay.
        assert_eq!(with_agents(given.clone(), Some(&other)), given);
        assert_eq!(with_agents(first.clone(), None), first);
        // An earlier revision gets the agents in force, not the ones asked for.
        let mut older = given.clone();
        older.history.insert(0, first.history[0].clone());
        older.history[0].number = 0;
        let filled = with_agents(older, Some(&other));
        assert_eq!(agents_of(&filled, 0), agents_of(&given, 1));
    }
}
