//! Checks an installation by the status in the API server.

use anyhow::Context as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use portolan_crds::{ProxyConfig, ProxyPlan, condition as kind};

use crate::operator::lease::CHECK_LEADER;

/// Conditions of the ProxyConfig that must be True.
const OF_CONFIG: [&str; 3] = [
    kind::ACCEPTED,
    kind::AGENTS_MANAGED,
    kind::ONLY_SERVICE_PROXY,
];

/// A line for each check, and whether it passed. The answer itself proves that the client's path to the API server
/// works.
///
/// # Errors
/// The API server does not answer.
pub async fn check(client: &Client) -> anyhow::Result<Vec<(bool, String)>> {
    let configs: Api<ProxyConfig> = Api::all(client.clone());
    let plans: Api<ProxyPlan> = Api::all(client.clone());
    let config = configs
        .get_opt("default")
        .await
        .context("read ProxyConfig default")?;
    let plans = plans
        .list(&ListParams::default())
        .await
        .context("list ProxyPlans")?;
    let mut lines = Vec::new();
    match &config {
        None => lines.push((
            false,
            format!("there is no ProxyConfig default; {CHECK_LEADER}"),
        )),
        Some(config) => {
            let status = config.status.as_ref();
            let conditions = status.map_or(&[][..], |status| &status.conditions);
            lines.extend(OF_CONFIG.map(|kind| judge("ProxyConfig default", conditions, kind)));
        }
    }
    if plans.items.is_empty() {
        lines.push((
            false,
            format!("there is no ProxyPlan, so no node has a plan; {CHECK_LEADER}"),
        ));
    }
    lines.extend(plans.items.iter().map(|plan| {
        let status = plan.status.as_ref();
        let conditions = status.map_or(&[][..], |status| &status.conditions);
        judge(
            &format!("node {}", plan.name_any()),
            conditions,
            kind::APPLIED,
        )
    }));
    Ok(lines)
}

fn judge(object: &str, conditions: &[Condition], kind: &str) -> (bool, String) {
    match conditions.iter().find(|condition| condition.type_ == kind) {
        None => (false, format!("{object}: {kind} is not reported")),
        Some(Condition {
            status,
            reason,
            message,
            ..
        }) => (
            status == "True",
            format!("{object}: {kind} {status} ({reason}): {message}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::publish::{Judged, Verdict, condition};

    #[test]
    fn a_condition_that_is_not_true_or_not_reported_is_shown_with_its_object() {
        let of = |verdict| {
            let judged = Judged {
                verdict,
                reason: "Why",
            };
            [condition(
                kind::APPLIED,
                judged,
                "words",
                None,
                SystemTime::now(),
            )]
        };
        let judged = judge("node a", &of(Verdict::True), kind::APPLIED);
        assert_eq!(
            judged,
            (true, "node a: Applied True (Why): words".to_owned())
        );
        assert!(!judge("node a", &of(Verdict::Unknown), kind::APPLIED).0);
        let judged = judge("node a", &[], kind::APPLIED);
        assert_eq!(
            judged,
            (false, "node a: Applied is not reported".to_owned())
        );
    }
}
