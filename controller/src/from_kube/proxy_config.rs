//! ProxyConfig: what is asked for, and what nodes have while a change is on its way.

use std::sync::Arc;

use portolan_crds::{OverrideSpec, ProxyConfig as Given, SettingsSpec};
use portolan_planner::model::{Override, ProxyConfig, Revision, Staged};
use portolan_rollout::{Stage, State};
use serde::{Deserialize, Serialize};

use super::field::{FieldError, own_name};
use super::rollout::{asked, rollout_state};
use super::settings::{patch, settings};

/// What a revision is made of, as it is remembered.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Content {
    settings: SettingsSpec,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    overrides: Vec<OverrideSpec>,
}

impl Content {
    pub(super) fn of(object: &Given) -> Self {
        Self {
            settings: object.spec.settings.clone().unwrap_or_default(),
            overrides: object.spec.overrides.clone().unwrap_or_default(),
        }
    }

    /// Its one spelling.
    pub(super) fn text(&self) -> Result<String, FieldError> {
        serde_json::to_string(self).map_err(|error| FieldError::new("spec", error.to_string()))
    }

    fn revision(&self, number: Option<u64>) -> Result<Revision, FieldError> {
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

/// A ProxyConfig: what nodes are served by it, which is what its status says while it has waves.
///
/// # Errors
/// [`FieldError`] names the field that makes no sense, and what is allowed.
pub fn proxy_config(object: &Given) -> Result<ProxyConfig, FieldError> {
    let asked = proxy_config_at_once(object)?;
    let status = object.status.as_ref();
    let Some(stored) = status.and_then(|status| status.rollout.as_ref()) else {
        return Ok(asked);
    };
    let state = rollout_state(stored)?;
    if object.spec.rollout.is_none() {
        let text = Content::of(object).text()?;
        let known = state.history.iter().find(|held| *held.content == *text);
        let number = known.map(|known| known.number);
        return at_once(asked.name, object, number);
    }
    let staged = match &state.stage {
        Stage::Rolling(progress) => Some(Arc::new(Staged {
            revision: stored_revision(&state, progress.target)?,
            reach: progress.reach.clone(),
        })),
        Stage::Complete | Stage::RolledBack { .. } => None,
    };
    Ok(ProxyConfig {
        name: asked.name,
        current: Arc::new(stored_revision(&state, state.current)?),
        staged,
    })
}

/// A ProxyConfig of which nobody keeps a status: all nodes have what is asked for.
///
/// # Errors
/// [`FieldError`] names the field that makes no sense, and what is allowed.
pub fn proxy_config_at_once(object: &Given) -> Result<ProxyConfig, FieldError> {
    let name = own_name(&object.metadata)?;
    if &*name != ProxyConfig::DEFAULT {
        let problem =
            format!("{name:?} is in force nowhere; the one ProxyConfig is named \"default\"");
        return Err(FieldError::new("metadata.name", problem));
    }
    asked(object)?;
    at_once(name, object, None)
}

fn at_once(name: Arc<str>, object: &Given, number: Option<u64>) -> Result<ProxyConfig, FieldError> {
    Ok(ProxyConfig {
        name,
        current: Arc::new(Content::of(object).revision(number)?),
        staged: None,
    })
}

/// A revision of the history.
///
/// # Errors
/// [`FieldError`] when it is missing, or makes no sense.
pub fn stored_revision(state: &State, number: u64) -> Result<Revision, FieldError> {
    let field = format!("status.rollout.history[default-{number}]");
    let Some(held) = state.revision(number) else {
        let problem = "missing; nobody knows what nodes have; take spec.rollout out to give all of them \
                       what spec.settings says";
        return Err(FieldError::new(field, problem));
    };
    let content: Content = serde_json::from_str(&held.content)
        .map_err(|error| FieldError::new(field.clone(), error.to_string()))?;
    let read = content.revision(Some(number));
    read.map_err(|error| FieldError::new(field, error.to_string()))
}
