//! Laws of plans: keys, hashes, staged changes, and the document.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::BTreeMap;

use portolan_plan::{
    BucketHashes, Buckets, Change, Entry, EntryHash, EntryKey, NodePlan, Period, PlanDocument,
    PlanHash, StagedChanges, strategies,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// A stand-in for the encoded bytes: any function of the value works.
fn hash(key: &EntryKey, entry: &Entry) -> EntryHash {
    EntryHash::of(key, format!("{entry:?}").as_bytes())
}

fn upsert((key, entry): &(EntryKey, Entry)) -> Change {
    Change::Upsert {
        key: key.clone(),
        hash: hash(key, entry),
        entry: Some(entry.clone()),
    }
}

fn plan(entries: &[(EntryKey, Entry)]) -> NodePlan {
    let hashed = |(key, entry): &(EntryKey, Entry)| (key.clone(), hash(key, entry), entry.clone());
    NodePlan::from_entries(entries.iter().map(hashed))
}

fn sum(entries: &BTreeMap<EntryKey, Entry>) -> PlanHash {
    entries
        .iter()
        .fold(PlanHash::default(), |sum, (key, entry)| {
            sum.with(hash(key, entry))
        })
}

proptest! {
    #[test]
    fn a_key_reads_back_from_its_text((key, _) in strategies::entry()) {
        prop_assert_eq!(key.to_string().parse::<EntryKey>().unwrap(), key);
    }

    #[test]
    fn any_text_is_a_key_or_an_error_that_quotes_it(text in ".{0,60}") {
        match text.parse::<EntryKey>() {
            Ok(key) => prop_assert_eq!(key.to_string(), text),
            Err(error) => prop_assert_eq!(error.text, text),
        }
    }

    #[test]
    fn a_plan_does_not_depend_on_the_order_of_its_entries(entries in strategies::entries()) {
        let mut reversed = entries.clone();
        reversed.reverse();
        prop_assert_eq!(plan(&entries), plan(&reversed));
    }

    #[test]
    fn changes_lead_to_the_plan_made_from_scratch(
        start in strategies::entries(),
        changes in vec((strategies::entry(), any::<bool>()), 0..12),
    ) {
        let mut expected: BTreeMap<_, _> = start.iter().cloned().collect();
        let mut staged = StagedChanges::delta();
        for (entry, remove) in &changes {
            if *remove {
                expected.remove(&entry.0);
                staged.push(Change::Remove { key: entry.0.clone() });
            } else {
                expected.insert(entry.0.clone(), entry.1.clone());
                staged.push(upsert(entry));
            }
        }
        let mut changed = plan(&start);
        changed.apply(staged, sum(&expected)).unwrap();
        let scratch: Vec<_> = expected.into_iter().collect();
        prop_assert_eq!(&changed, &plan(&scratch));
        prop_assert_eq!(changed.hash(), changed.usable_hash());
    }

    #[test]
    fn a_snapshot_leaves_nothing_of_what_was_there(
        old in strategies::entries(),
        new in strategies::entries(),
    ) {
        let mut staged = StagedChanges::snapshot();
        for entry in &new {
            staged.push(upsert(entry));
        }
        let mut changed = plan(&old);
        changed.apply(staged, plan(&new).hash()).unwrap();
        prop_assert_eq!(changed, plan(&new));
    }

    /// I-2.
    #[test]
    fn changes_that_lead_elsewhere_than_announced_change_nothing(
        start in strategies::entries(),
        change in strategies::entry(),
        announced in any::<u128>(),
    ) {
        let before = plan(&start);
        let mut staged = StagedChanges::delta();
        staged.push(upsert(&change));
        let mut after = before.clone();
        match after.apply(staged, PlanHash(announced)) {
            Ok(()) => prop_assert_eq!(after.hash(), PlanHash(announced)),
            Err(_) => prop_assert_eq!(after, before),
        }
    }

    #[test]
    fn an_unreadable_value_keeps_the_last_good_one_and_counts_as_received(
        start in strategies::entries(),
        bytes in vec(any::<u8>(), 1..20),
    ) {
        let mut plan = plan(&start);
        let (key, entry) = start.last().cloned().unwrap();
        let (before, usable) = (plan.hash(), plan.usable_hash());
        let received = EntryHash::of(&key, &bytes);
        let expected = before.without(hash(&key, &entry)).with(received);
        prop_assert_eq!(plan.unread().count(), 0);
        let mut staged = StagedChanges::delta();
        staged.push(Change::Upsert { key: key.clone(), hash: received, entry: None });
        plan.apply(staged, expected).unwrap();
        prop_assert_eq!(plan.unread().collect::<Vec<_>>(), [&key]);
        prop_assert_eq!(plan.hash(), expected);
        prop_assert_eq!(plan.usable_hash(), usable);
        if let (EntryKey::Local(service), Entry::Local(local)) = (&key, &entry) {
            prop_assert!(plan.locals().any(|(id, held)| id == service && held == local));
        }
    }

    #[test]
    fn bucket_hashes_add_up_to_the_hash_of_the_plan(entries in strategies::entries()) {
        let plan = plan(&entries);
        let hashes = plan.bucket_hashes();
        prop_assert_eq!(hashes.total(), plan.hash());
        let read = BucketHashes::from_bytes(&hashes.to_bytes()).unwrap();
        prop_assert_eq!(hashes.differing(&read), Buckets::default());
    }

    /// The differing buckets of any plan turn an agent's old plan into it.
    #[test]
    fn the_differing_buckets_lead_from_one_plan_to_another(
        (start, end) in (strategies::entries(), strategies::entries()),
    ) {
        let (mut from, to) = (plan(&start), plan(&end));
        let differing = from.bucket_hashes().differing(&to.bucket_hashes());
        let mut staged = StagedChanges::of_buckets(differing);
        let sent = end.iter().filter(|(key, _)| differing.contains(key.bucket()));
        sent.for_each(|entry| staged.push(upsert(entry)));
        from.apply(staged, to.hash()).unwrap();
        prop_assert_eq!(from, to);
    }

    #[test]
    fn a_patch_leads_from_one_list_to_another(
        (start, end) in (strategies::entries(), strategies::entries()),
    ) {
        let list = |entries: &[(EntryKey, Entry)]| entries.iter().find_map(|(_, entry)| match entry {
            Entry::List(list) => Some((**list).clone()),
            _ => None,
        }).unwrap_or_default();
        let (from, to) = (list(&start), list(&end));
        let (gone, new) = from.patch_to(&to);
        prop_assert_eq!(from.patched(&gone, &new), to);
        prop_assert_eq!(from.patch_to(&from), Default::default());
    }

    #[test]
    fn a_document_survives_json(entries in strategies::entries()) {
        let document = PlanDocument::from_plan(&plan(&entries), Vec::new()).unwrap();
        let text = serde_json::to_string(&document).unwrap();
        prop_assert_eq!(&serde_json::from_str::<PlanDocument>(&text).unwrap(), &document);
    }

    #[test]
    fn a_document_reads_back_as_the_same_plan(entries in strategies::entries()) {
        let mut document = PlanDocument::from_plan(&plan(&entries), Vec::new()).unwrap();
        let read = document.clone().into_plan().unwrap();
        let mut again = PlanDocument::from_plan(&read, Vec::new()).unwrap();
        // A plan read from a document has no encoded bytes to hash.
        document.hash = String::new();
        again.hash = String::new();
        prop_assert_eq!(again, document);
    }

    #[test]
    fn a_period_reads_back_from_its_text(milliseconds in 0u64..10_000_000_000) {
        let period = Period::milliseconds(milliseconds);
        prop_assert_eq!(period.to_string().parse::<Period>().unwrap(), period);
    }

    #[test]
    fn no_text_makes_a_period_panic(text in ".{0,30}") {
        drop(text.parse::<Period>());
    }
}

#[test]
fn periods_are_written_as_kubernetes_writes_them() {
    let table = [
        ("30s", 30_000),
        ("1m30s", 90_000),
        ("24h", 86_400_000),
        ("250ms", 250),
        ("0s", 0),
    ];
    for (text, milliseconds) in table {
        assert_eq!(
            text.parse::<Period>().unwrap(),
            Period::milliseconds(milliseconds),
            "{text}"
        );
        assert_eq!(Period::milliseconds(milliseconds).to_string(), text);
    }
    for wrong in ["", "5", "5x", "-1s", "1.5h", "s", "99999999999999999999h"] {
        assert!(wrong.parse::<Period>().is_err(), "{wrong:?} was read");
    }
}

#[test]
fn a_key_of_a_kind_not_known_here_is_kept_as_it_is() {
    let key = EntryKey::from_peer("mirror/shop/cart");
    assert_eq!(key, EntryKey::Other("mirror/shop/cart".into()));
    assert_eq!(key.to_string(), "mirror/shop/cart");
}

#[test]
fn a_document_of_another_version_is_refused_by_its_number() {
    let text = include_str!("documents/version-2.json");
    let document: PlanDocument = serde_json::from_str(text).unwrap();
    let error = document.into_plan().unwrap_err().to_string();
    assert_eq!(
        error,
        "version: 2 is not supported; this program reads version 1"
    );
}

#[test]
fn a_document_with_an_unknown_key_is_refused_by_its_name() {
    let text = include_str!("documents/version-2.json").replace("\"eligible\"", "\"elegible\"");
    let error = serde_json::from_str::<PlanDocument>(&text)
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("unknown field `elegible`"), "{error}");
}
