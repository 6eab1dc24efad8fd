//! Overrides and waves: the settings of nodes during a rollout, which depend only on stored state.

use portolan_controller::from_kube;
use portolan_controller::operator::rollout::rollout_status;
use portolan_crds::{ProxyConfig, ProxyConfigStatus, RolloutStatus};
use portolan_planner::model::{self, Node};
use portolan_rollout_policy::{By, Health, OnFailure, Policy, Report, Share, State};

/// A ProxyConfig of a generation with this spec, in YAML.
fn given(generation: i64, spec: &str) -> ProxyConfig {
    let text = format!(
        "apiVersion: proxy.portolan.dev/v1alpha1\nkind: ProxyConfig\nmetadata: {{name: default, generation: {generation}}}\nspec: {spec}\n"
    );
    serde_saphyr::from_str(&text).unwrap()
}

fn node(name: &str, zone: &str, labels: &[(&str, &str)]) -> Node {
    let labels = labels.iter();
    Node {
        name: name.into(),
        zone: (!zone.is_empty()).then(|| zone.into()),
        labels: labels
            .map(|(name, value)| ((*name).into(), (*value).into()))
            .collect(),
        addresses: Vec::new(),
        pod_cidrs: Vec::new(),
        ready: true,
        deleted: false,
        scaled_away: false,
        ignored: Vec::new(),
    }
}

fn scheduler(config: &model::ProxyConfig, node: &Node) -> String {
    let settings = config.revision_of(node).settings_of(node);
    settings.scheduler.to_string()
}

const OVERRIDES: &str = "{settings: {scheduler: rr, sync: {period: 10s, minPeriod: 5s}}, overrides: [
    {name: edge, nodeSelector: {matchLabels: {pool: edge}}, settings: {scheduler: mh, sync: {period: 1m}}},
    {name: new, nodeSelector: {matchLabels: {pool: edge, age: new}}, settings: {scheduler: wlc}}]}";

#[test]
fn overrides_are_for_nodes_with_all_labels_and_a_later_one_wins() {
    let config = from_kube::proxy_config(&given(1, OVERRIDES)).unwrap();
    let with = |labels: &[(&str, &str)]| scheduler(&config, &node("a", "", labels));
    assert_eq!(with(&[]), "rr");
    assert_eq!(with(&[("pool", "edge")]), "mh");
    assert_eq!(with(&[("age", "new")]), "rr");
    assert_eq!(with(&[("age", "new"), ("pool", "edge")]), "wlc");
}

#[test]
fn a_field_of_an_override_takes_the_place_of_the_whole_field() {
    let config = from_kube::proxy_config(&given(1, OVERRIDES)).unwrap();
    let edge = node("a", "", &[("pool", "edge")]);
    let sync = config.current.settings_of(&edge).sync;
    assert_eq!(
        (sync.period.to_string(), sync.min_period.to_string()),
        ("1m".into(), "0s".into())
    );
}

#[test]
fn invalid_values_are_named_with_their_field() {
    let refused = |spec: &str| {
        from_kube::proxy_config(&given(1, spec))
            .unwrap_err()
            .to_string()
    };
    let with = |settings: &str| {
        refused(&format!(
            "{{overrides: [{{name: a, nodeSelector: {{matchLabels: {{a: b}}}}, settings: {{{settings}}}}}]}}"
        ))
    };
    assert!(with("scheduler: fair").starts_with("spec.overrides[0].settings.scheduler: "));
    let shared = with("serviceProxyName: other");
    assert!(
        shared.starts_with(
            "spec.overrides[0].settings.serviceProxyName: affects what all nodes share"
        )
    );
    let unselected =
        refused("{overrides: [{name: a, nodeSelector: {matchLabels: {}}, settings: {}}]}");
    assert!(unselected.starts_with("spec.overrides[0].nodeSelector.matchLabels: empty"));
    for (field, value) in [
        ("maxParallel", "0"),
        ("maxParallel", "0%"),
        ("maxParallel", "some"),
        ("maxUnavailable", "101%"),
        ("soak", "soon"),
        ("rollbackTo", "five"),
    ] {
        let problem = refused(&format!("{{rollout: {{{field}: {value}}}}}"));
        assert!(
            problem.starts_with(&format!("spec.rollout.{field}: ")),
            "{problem}"
        );
    }
}

#[test]
fn unset_fields_of_the_policy_have_defaults() {
    let policy = |spec: &str| from_kube::asked(&given(1, spec), None).unwrap().policy;
    assert_eq!(policy("{}"), None);
    assert_eq!(policy("{rollout: {}}"), Some(Policy::default()));
    let whole = policy(
        "{rollout: {canary: {count: 2}, soak: 1m30s, by: All, maxParallel: 7, maxUnavailable: 5%, \
         onFailure: Pause, paused: true, rollbackTo: default-3, \
         gates: {maxFailedNodes: 1, maxDriftedNodes: 2, programmingP99: 1500ms}}}",
    );
    let whole = whole.unwrap();
    assert_eq!((whole.canaries, whole.soak, whole.by), (2, 90, By::All));
    let shares = (whole.max_parallel, whole.max_unavailable);
    assert_eq!(shares, (Share::Count(7), Share::Percent(5)));
    assert_eq!((whole.on_failure, whole.paused), (OnFailure::Pause, true));
    assert_eq!(whole.rollback_to, Some(3));
    let gates = (
        whole.gates.max_failed,
        whole.gates.max_drifted,
        whole.gates.programming_p99,
    );
    assert_eq!(gates, (1, 2, 1500));
}

/// The next decision, computed only from the stored state.
fn decide(config: &mut ProxyConfig, reports: &mut [(Node, Report)], now: u64) -> RolloutStatus {
    let status = config.status.clone().unwrap_or_default();
    let before = status.rollout.clone().unwrap_or_default();
    let asked = from_kube::asked(config, None).unwrap();
    let mut state = match before.history.is_empty() {
        true => State::first(asked.content.clone(), asked.generation, now),
        false => from_kube::rollout_state(&before).unwrap(),
    };
    state = state.adopt(&asked, now);
    if let Some(policy) = &asked.policy {
        let nodes = reports
            .iter()
            .map(|(node, report)| portolan_rollout_policy::Node {
                name: node.name.clone(),
                zone: node.zone.clone().unwrap_or_default(),
                agent: portolan_rollout_policy::Agent::Stays,
                affected: true,
                report: report.clone(),
            });
        let nodes: Vec<_> = nodes.collect();
        state = state.advance(policy, &nodes, now);
    }
    let after = rollout_status(&state, asked.policy.as_ref(), None, &before);
    assert_eq!(
        from_kube::rollout_state(&after).unwrap(),
        state,
        "nothing is lost"
    );
    config.status = Some(ProxyConfigStatus {
        rollout: Some(after.clone()),
        ..status
    });
    // All nodes apply the settings they get.
    let served = from_kube::proxy_config(config).unwrap();
    for (node, report) in reports {
        report.applied = served.revision_of(node).number;
    }
    after
}

#[test]
fn every_controller_serves_the_stored_revision_in_each_wave() {
    let sound = Report {
        health: Health::Sound,
        applied: None,
        drifted: false,
        lag: Some(3),
    };
    let names = [
        ("a", "z1"),
        ("b", "z1"),
        ("c", "z2"),
        ("d", "z2"),
        ("e", ""),
    ];
    let mut reports = names.map(|(name, zone)| (node(name, zone, &[]), sound.clone()));
    let mut config = given(3, "{settings: {scheduler: rr}, rollout: {soak: 0s}}");
    let first = decide(&mut config, &mut reports, 100);
    assert_eq!(first.current_revision, "default-3");
    config.metadata.generation = Some(4);
    config.spec = given(4, "{settings: {scheduler: mh}, rollout: {soak: 0s}}").spec;
    let mut served = Vec::new();
    let mut waves = Vec::new();
    for step in 0..40 {
        let status = decide(&mut config, &mut reports, 101 + step);
        let now = from_kube::proxy_config(&config).unwrap();
        let have = reports
            .iter()
            .filter(|(node, _)| scheduler(&now, node) == "mh");
        served.push(have.count());
        waves.push(status.wave);
    }
    waves.dedup();
    let waves: Vec<_> = waves
        .iter()
        .map(|wave| wave.as_deref().unwrap_or(""))
        .collect();
    assert_eq!(
        waves,
        ["canary", "nodes without a zone", "zone z1", "zone z2", ""]
    );
    assert!(served.is_sorted(), "{served:?}");
    assert_eq!((served[0], served[39]), (1, 5));
    let end = config.status.unwrap().rollout.unwrap();
    assert_eq!(
        (end.current_revision, end.target_revision),
        ("default-4".into(), "default-4".into())
    );
    let history: Vec<_> = end
        .history
        .iter()
        .map(|held| held.content.as_str())
        .collect();
    assert_eq!(history[0], r#"{"settings":{"scheduler":"rr"}}"#);
}

#[test]
fn without_waves_all_nodes_have_the_spec_and_the_stored_state_is_ignored() {
    let mut config = given(1, "{settings: {scheduler: rr}}");
    decide(&mut config, &mut [], 100);
    config.spec = given(2, "{settings: {scheduler: mh}}").spec;
    let served = from_kube::proxy_config(&config).unwrap();
    assert_eq!(scheduler(&served, &node("a", "", &[])), "mh");
    // With waves, no node has it before the decision.
    config.spec = given(2, "{settings: {scheduler: mh}, rollout: {}}").spec;
    let served = from_kube::proxy_config(&config).unwrap();
    assert_eq!(scheduler(&served, &node("a", "", &[])), "rr");
    // Without any decision, only the wanted settings exist.
    config.status = None;
    let served = from_kube::proxy_config(&config).unwrap();
    assert_eq!(scheduler(&served, &node("a", "", &[])), "mh");
    let at_once = from_kube::proxy_config_at_once(&config).unwrap();
    assert_eq!(at_once, served);
}
