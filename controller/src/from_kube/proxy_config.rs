//! ProxyConfig: the wanted settings, and the settings that nodes have during a rollout.

use std::sync::Arc;

use portolan_crds::ProxyConfig as Given;
use portolan_planner::model::{ProxyConfig, Revision, Staged};
use portolan_rollout_policy::{Stage, State};

use super::content::Content;
use super::field::{FieldError, own_name};
use super::guard::guarding;
use super::rollout::{asked, rollout_state};

/// A ProxyConfig. During a rollout, its status determines the settings of each node.
///
/// # Errors
/// [`FieldError`] names the invalid field, and what is allowed.
pub fn proxy_config(object: &Given) -> Result<ProxyConfig, FieldError> {
    let asked = proxy_config_at_once(object)?;
    let status = object.status.as_ref();
    let Some(stored) = status.and_then(|status| status.rollout.as_ref()) else {
        return Ok(asked);
    };
    let state = rollout_state(stored)?;
    if object.spec.rollout.is_none() {
        return at_once(asked.name, object, number(&state, object)?);
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
        guarding: asked.guarding,
    })
}

/// A ProxyConfig without a maintained status: all nodes have the wanted settings.
///
/// # Errors
/// [`FieldError`] names the invalid field, and what is allowed.
pub fn proxy_config_at_once(object: &Given) -> Result<ProxyConfig, FieldError> {
    let name = own_name(&object.metadata)?;
    if &*name != ProxyConfig::DEFAULT {
        let problem = format!("{name:?} has no effect; the only ProxyConfig is named \"default\"");
        return Err(FieldError::new("metadata.name", problem));
    }
    asked(object, None)?;
    at_once(name, object, None)
}

fn at_once(name: Arc<str>, object: &Given, number: Option<u64>) -> Result<ProxyConfig, FieldError> {
    Ok(ProxyConfig {
        name,
        current: Arc::new(Content::of(object, None).revision(number)?),
        staged: None,
        guarding: guarding(object)?,
    })
}

/// The number of the wanted settings. If revisions differ only in their agents, the current one.
fn number(state: &State, object: &Given) -> Result<Option<u64>, FieldError> {
    let wanted = Content::of(object, None).text()?;
    let is_it = |held: &&portolan_rollout_policy::Revision| {
        let content = Content::read(&held.content).ok();
        let text = content.and_then(|content| content.settings_text().ok());
        text.is_some_and(|text| text == wanted)
    };
    let current = state.revision(state.current).filter(is_it);
    let known = current.or_else(|| state.history.iter().rev().find(is_it));
    Ok(known.map(|known| known.number))
}

/// A revision of the history.
///
/// # Errors
/// [`FieldError`] if it is missing or invalid.
pub fn stored_revision(state: &State, number: u64) -> Result<Revision, FieldError> {
    let field = format!("status.rollout.history[default-{number}]");
    let Some(held) = state.revision(number) else {
        let problem = "missing, so the settings of nodes are unknown; remove spec.rollout to give all nodes \
                       the settings in spec.settings";
        return Err(FieldError::new(field, problem));
    };
    let content = Content::read(&held.content)
        .map_err(|error| FieldError::new(field.clone(), error.to_string()))?;
    let read = content.revision(Some(number));
    read.map_err(|error| FieldError::new(field, error.to_string()))
}
