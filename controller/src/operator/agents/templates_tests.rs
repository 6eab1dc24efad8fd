//! Only what the namespace has recorded becomes a pod template.

use portolan_crds::{ProxyConfig, ProxyConfigSpec};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use super::super::template::tests::TEXT;
use super::super::wanted::{Unrecorded, WantedAgents};
use super::*;

fn template(tag: &str) -> Template {
    let image = format!("portolan-agent:{tag}");
    Template::read(&TEXT.replace("portolan-agent:1", &image)).unwrap()
}

fn recorded(tag: &str) -> Recorded {
    Recorded::of(&template(tag))
}

/// The ConfigMap with these keys and texts.
fn map(data: impl IntoIterator<Item = (String, String)>) -> ConfigMap {
    let data: BTreeMap<_, _> = data.into_iter().collect();
    let metadata = json!({"name": "portolan-agents-history", "resourceVersion": "7"});
    serde_json::from_value(json!({"metadata": metadata, "data": data})).unwrap()
}

fn key(recorded: &Recorded) -> String {
    recorded.record.sha256.to_string()
}

fn with(recorded: &[&Recorded]) -> Templates {
    let entries = recorded.iter().map(|one| (key(one), one.text.clone()));
    Templates::read(&map(entries))
}

fn content(recorded: &Recorded) -> String {
    json!({"agents": recorded.record}).to_string()
}

/// A ProxyConfig whose nodes have revision 0, and receive the last one if there are more.
fn config(contents: &[String]) -> ProxyConfig {
    let mut config = ProxyConfig::new("default", ProxyConfigSpec::default());
    let name = |number: usize| format!("default-{number}");
    let history = contents.iter().enumerate();
    let history: Vec<_> = history
        .map(|(number, content)| json!({"revision": name(number), "content": content}))
        .collect();
    let last = contents.len().saturating_sub(1);
    let mut rollout = json!({
        "phase": "Complete", "currentRevision": name(0), "targetRevision": name(last), "history": history,
    });
    if last > 0 {
        rollout["reached"] = json!({"wave": "Canary"});
    }
    config.status = Some(serde_json::from_value(json!({"rollout": rollout})).unwrap());
    config
}

#[test]
fn a_template_is_read_only_under_its_own_hash() {
    let one = recorded("1");
    assert_eq!(one.record.image.as_deref(), Some("r/portolan-agent:1"));
    assert_eq!(with(&[&one]).get(&one.record), Some(template("1")));
    let forged = one.text.replace("portolan-agent:1", "portolan-agent:evil");
    assert_ne!(forged, one.text);
    let templates = Templates::read(&map([(key(&one), forged)]));
    assert_eq!(templates.get(&one.record), None);
    assert_eq!(Templates::default().get(&one.record), None);
}

#[test]
fn a_status_refers_to_templates_and_brings_none() {
    let (one, evil) = (recorded("1"), recorded("evil"));
    let templates = with(&[&one]);
    let read = |contents: &[String]| WantedAgents::read(&config(contents), &templates);
    let wanted = read(&[content(&one)]).unwrap().unwrap();
    assert_eq!(wanted.current, template("1"));
    // By its hash, as the current revision and as the next one.
    let unrecorded = Unrecorded(evil.record.sha256.clone());
    assert_eq!(read(&[content(&evil)]).unwrap_err(), unrecorded);
    let both = [content(&one), content(&evil)];
    assert_eq!(read(&both).unwrap_err(), unrecorded);
    // In place of the hash.
    let mut whole = template("evil").value();
    let inline = json!({"agents": whole}).to_string();
    assert!(read(&[inline]).unwrap().is_none());
    // Beside the hash of a recorded one.
    whole["sha256"] = key(&one).into();
    let inline = json!({"agents": whole}).to_string();
    assert_eq!(read(&[inline]).unwrap().unwrap().current, template("1"));
}

#[test]
fn a_new_template_replaces_those_that_no_revision_refers_to() {
    let [one, two, three] = ["1", "2", "3"].map(recorded);
    let templates = with(&[&one, &two]);
    let contents = [content(&one), "{}".to_owned(), "no JSON".to_owned()];
    let contents = || contents.iter().map(String::as_str);
    assert_eq!(templates.with(&one, contents()), None);
    let kept = templates.with(&three, contents()).unwrap();
    assert_eq!(kept, with(&[&one, &three]));
    let owner = Owner {
        map: "proxy/portolan-agents".parse().unwrap(),
        uid: "u-1".into(),
    };
    let object = kept.object(&owner);
    assert_eq!(object["metadata"]["resourceVersion"], "7");
    assert_eq!(object["metadata"]["name"], "portolan-agents-history");
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u-1");
    let stored: ConfigMap = serde_json::from_value(object).unwrap();
    assert_eq!(Templates::read(&stored), kept);
    // Any version of a ConfigMap that does not exist would be a conflict.
    let first = Templates::default().with(&one, contents()).unwrap();
    assert_eq!(
        first.object(&owner)["metadata"].get("resourceVersion"),
        None
    );
}

/// Number of texts in the pool: three templates, one for which no revision asks, and one that is no template.
const POOL: usize = 5;

fn pool() -> [String; POOL] {
    let [one, two, three, evil] = ["1", "2", "3", "evil"].map(|tag| recorded(tag).text);
    [one, two, three, evil, "{}".to_owned()]
}

/// The content of a revision, with anything as its agents.
fn contents() -> impl Strategy<Value = String> {
    let text = (0..POOL).prop_map(|index| pool()[index].clone());
    let agents = prop_oneof![
        4 => text.clone().prop_map(|text| json!({"sha256": Sha256::of(&text)})),
        1 => text.prop_map(|text| serde_json::from_str::<Value>(&text).unwrap()),
        1 => any::<String>().prop_map(|text| json!({"sha256": text})),
    ];
    prop_oneof![
        4 => agents.prop_map(|agents| json!({"agents": agents}).to_string()),
        1 => any::<String>(),
    ]
}

proptest! {
    /// Whatever the status contains: each wanted template is the text of an entry that has this text's key.
    #[test]
    fn whatever_a_status_contains_a_pod_template_is_recorded(
        entries in btree_map(0..POOL, 0..POOL, 0..=POOL),
        contents in vec(contents(), 0..4),
    ) {
        let pool = pool();
        let keys = pool.each_ref().map(|text| Sha256::of(text).to_string());
        let data = entries.iter().map(|(key, text)| (keys[*key].clone(), pool[*text].clone()));
        let templates = Templates::read(&map(data));
        let genuine: Vec<_> = (0..POOL)
            .filter(|index| entries.get(index) == Some(index))
            .map(|index| pool[index].clone())
            .collect();
        if let Ok(Some(wanted)) = WantedAgents::read(&config(&contents), &templates) {
            for template in [Some(&wanted.current), wanted.target.as_ref()].into_iter().flatten() {
                prop_assert!(genuine.contains(&template.value().to_string()));
            }
        }
    }
}
