//! `spec.guard`, `status.guard`, and the annotation that approves a loss.

use std::ops::RangeInclusive;

use portolan_crds::{GuardMode as Given, GuardSpec, GuardStatus, ProxyConfig};
use portolan_plan::Period;
use portolan_planner::model::{GuardMode, GuardPolicy, Guarding, StoredLoss};

use super::field::{FieldError, bounded};
use super::rollout::seconds;

/// The annotation of the ProxyConfig that approves a loss.
const APPROVE: &str = "proxy.portolan.dev/approve";
/// Allowed values of `window`, in seconds: the time in which vanished endpoints count as one loss.
const WINDOW_SECONDS: RangeInclusive<u64> = 1..=3600;
/// Allowed values of `releaseAfter`, in seconds: the maximum time for which a loss is held.
const RELEASE_AFTER_SECONDS: RangeInclusive<u64> = 1..=u64::MAX;

/// The policy for mass losses of endpoints, and the stored loss.
///
/// # Errors
/// [`FieldError`] names the invalid field of `spec.guard`, and what is allowed.
pub(super) fn guarding(object: &ProxyConfig) -> Result<Guarding, FieldError> {
    let status = object
        .status
        .as_ref()
        .and_then(|status| status.guard.as_ref());
    let stored = |status: &GuardStatus| StoredLoss {
        id: status.id.as_str().into(),
        since: seconds(Some(&status.since)),
    };
    let annotations = object.metadata.annotations.as_ref();
    let approved = annotations.and_then(|all| all.get(APPROVE));
    Ok(Guarding {
        policy: policy(object.spec.guard.as_ref())?,
        stored: status.map(stored),
        approved: approved.map(|id| id.trim().into()),
        object: object.metadata.uid.as_deref().map(Into::into),
    })
}

fn policy(given: Option<&GuardSpec>) -> Result<GuardPolicy, FieldError> {
    let defaults = GuardPolicy::default();
    let Some(given) = given else {
        return Ok(defaults);
    };
    let path = |field: &str| format!("spec.guard.{field}");
    Ok(GuardPolicy {
        mode: match given.mode {
            None | Some(Given::Report) => GuardMode::Report,
            Some(Given::Hold) => GuardMode::Hold,
        },
        max_loss_percent: bounded(
            given
                .max_endpoint_loss_percent
                .unwrap_or(defaults.max_loss_percent),
            1,
            99,
            path("maxEndpointLossPercent"),
        )?,
        min_endpoints: bounded(
            given.min_endpoints.unwrap_or(defaults.min_endpoints),
            1,
            1_000_000,
            path("minEndpoints"),
        )?,
        window: time(
            given.window.as_deref(),
            defaults.window,
            WINDOW_SECONDS,
            path("window"),
        )?,
        release_after: time(
            given.release_after.as_deref(),
            defaults.release_after,
            RELEASE_AFTER_SECONDS,
            path("releaseAfter"),
        )?,
    })
}

/// A duration in whole seconds.
fn time(
    given: Option<&str>,
    default: u64,
    allowed: RangeInclusive<u64>,
    field: String,
) -> Result<u64, FieldError> {
    let Some(text) = given else {
        return Ok(default);
    };
    let period: Period = match text.parse() {
        Ok(period) => period,
        Err(error) => return Err(FieldError::new(field, format!("{error}"))),
    };
    let seconds = period.as_milliseconds() / 1000;
    if allowed.contains(&seconds) {
        return Ok(seconds);
    }
    let problem = match *allowed.end() {
        u64::MAX => format!("{text} is too short; write 1s or more"),
        _ => format!("{text} is too short or too long; write 1s to 1h"),
    };
    Err(FieldError::new(field, problem))
}
