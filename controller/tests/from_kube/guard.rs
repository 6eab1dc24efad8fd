//! `spec.guard`, the stored loss, and its approval.

use portolan_controller::from_kube;
use portolan_crds::ProxyConfig;
use portolan_planner::model::{GuardMode, GuardPolicy, Guarding};

/// The guard settings of a ProxyConfig with this spec, annotations and status.
fn guarding(spec: &str, annotations: &str, status: &str) -> Result<Guarding, String> {
    let text = format!(
        "apiVersion: proxy.portolan.dev/v1alpha1\nkind: ProxyConfig\nmetadata: {{name: default, annotations: {annotations}}}\n\
         spec: {spec}\nstatus: {status}\n"
    );
    let object: ProxyConfig = serde_saphyr::from_str(&text).unwrap();
    let read = from_kube::proxy_config(&object);
    read.map(|config| config.guarding)
        .map_err(|error| error.to_string())
}

fn policy(guard: &str) -> Result<GuardPolicy, String> {
    guarding(&format!("{{guard: {guard}}}"), "{}", "{}").map(|guarding| guarding.policy)
}

#[test]
fn unset_fields_have_defaults() {
    assert_eq!(guarding("{}", "{}", "{}").unwrap(), Guarding::default());
    assert_eq!(policy("{}").unwrap(), GuardPolicy::default());
    let all = "{mode: Hold, maxEndpointLossPercent: 20, minEndpoints: 1000, window: 2m, releaseAfter: 1h}";
    let all = policy(all).unwrap();
    let wanted = GuardPolicy {
        mode: GuardMode::Hold,
        max_loss_percent: 20,
        min_endpoints: 1000,
        window: 120,
        release_after: 3600,
    };
    assert_eq!(all, wanted);
}

#[test]
fn invalid_values_are_named() {
    let refused = [
        "{maxEndpointLossPercent: 0}",
        "{maxEndpointLossPercent: 100}",
        "{minEndpoints: 0}",
        "{window: soon}",
        "{window: 500ms}",
        "{window: 1h1s}",
        "{releaseAfter: 0s}",
    ];
    let errors: Vec<_> = refused
        .iter()
        .map(|guard| policy(guard).unwrap_err())
        .collect();
    insta::assert_snapshot!(errors.join("\n"), @r#"
    spec.guard.maxEndpointLossPercent: 0 is not between 1 and 99
    spec.guard.maxEndpointLossPercent: 100 is not between 1 and 99
    spec.guard.minEndpoints: 0 is not between 1 and 1000000
    spec.guard.window: "soon" is not a duration; write whole numbers with units h, m, s or ms, like 30s or 1m30s
    spec.guard.window: 500ms is too short or too long; write 1s to 1h
    spec.guard.window: 1h1s is too short or too long; write 1s to 1h
    spec.guard.releaseAfter: 0s is too short; write 1s or more
    "#);
}

#[test]
fn stored_and_approved_losses_are_read() {
    let status = "{guard: {id: loss-1, mode: Hold, since: '2026-11-23T20:00:00Z', releaseTime: '2026-11-23T20:30:00Z', \
                  lostEndpoints: 250, readyEndpoints: 300, message: gone}}";
    let approve = "{proxy.portolan.dev/approve: ' loss-1 '}";
    let read = guarding("{}", approve, status).unwrap();
    let stored = read.stored.unwrap();
    assert_eq!((&*stored.id, stored.since), ("loss-1", 1_795_464_000));
    assert_eq!(read.approved.as_deref(), Some("loss-1"));
}
