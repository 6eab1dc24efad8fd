//! A hundred years of rotation, with agents that have yesterday's CA bundle, and what wrong clocks leave.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use super::*;

pub(crate) const NAME: &str = "portolan-controller";
const DAY: u64 = 24 * 3600;
/// Some day in 2026.
const START: u64 = 1_795_000_000;

/// Whether an agent with this CA bundle accepts a certificate at a time.
pub(crate) fn believes(bundle: &str, pair: &Pair, now: u64) -> Result<(), rustls::Error> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider);
    let verifier = verifier.build().unwrap();
    let name = ServerName::try_from(NAME).unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now));
    let certificate = pair.certificate().unwrap();
    let verified = verifier.verify_server_cert(certificate, &[], &name, &[], now);
    verified.map(drop)
}

#[test]
fn rotation_depends_on_the_time_alone() {
    let first = Keyring::new(NAME, START).unwrap();
    let renewal = START + 54 * DAY;
    assert_eq!(first.due(START), Due::Nothing(renewal));
    assert_eq!(first.due(renewal - 1), Due::Nothing(renewal));
    assert_eq!(first.due(renewal), Due::Renew);
    assert!(first.after(NAME, START).unwrap().is_none());
    let renewed = first.after(NAME, renewal).unwrap().unwrap();
    assert_eq!(renewed.due(renewal), Due::Nothing(renewal + 54 * DAY));
    assert_eq!(renewed.bundle(), first.bundle());
    // The CA is replaced after three fifths of ten years.
    let old = Keyring {
        serving: authority::serving(&first.authority, NAME, START + 2190 * DAY).unwrap(),
        ..first
    };
    let now = START + 2190 * DAY;
    assert_eq!(old.due(now - 1), Due::Nothing(now));
    assert_eq!(old.due(now), Due::Announce);
    let announced = old.after(NAME, now).unwrap().unwrap();
    assert_eq!(announced.serving, old.serving);
    assert_eq!(announced.due(now), Due::Nothing(now + DAY));
    let switched = announced.after(NAME, now + DAY).unwrap().unwrap();
    assert_ne!(switched.serving, old.serving);
    assert_eq!(switched.due(now + DAY), Due::Nothing(now + 2 * DAY));
    let forgotten = switched.after(NAME, now + 2 * DAY).unwrap().unwrap();
    assert!(forgotten.retired.is_empty());
    assert!(!switched.bundle().starts_with(&old.bundle()));
    assert!(switched.bundle().contains(&old.bundle()));
    assert!(!forgotten.bundle().contains(&old.bundle()));
}

#[test]
fn agents_with_the_bundle_of_yesterday_trust_the_certificate_of_today_for_a_century() {
    let mut keyring = Keyring::new(NAME, START).unwrap();
    let mut bundles = vec![(START, keyring.bundle())];
    let mut authorities = 0;
    let mut now = START;
    while now < START + 100 * 365 * DAY {
        while let Some(after) = keyring.after(NAME, now).unwrap() {
            authorities += usize::from(after.authority != keyring.authority);
            keyring = after;
        }
        bundles.push((now, keyring.bundle()));
        // The bundles that were published within the last day.
        while bundles.get(1).is_some_and(|(since, _)| *since <= now - DAY) {
            bundles.remove(0);
        }
        let pair = keyring.pair().unwrap();
        for (_, bundle) in &bundles {
            believes(bundle, &pair, now).unwrap();
        }
        let Due::Nothing(next) = keyring.due(now) else {
            panic!("something is due after all was done");
        };
        // It is good until then, also for an agent whose clock is behind.
        believes(&keyring.bundle(), &pair, next).unwrap();
        believes(&keyring.bundle(), &pair, now - 3000).unwrap();
        now = next;
    }
    assert!((15..=17).contains(&authorities), "{authorities}");
}

#[test]
fn serial_numbers_differ_and_keys_are_printed_nowhere() {
    let one = Keyring::new(NAME, START).unwrap();
    let two = Keyring::new(NAME, START).unwrap();
    assert_ne!(one.authority.name, two.authority.name);
    assert!(!format!("{one:?}").contains("PRIVATE"));
    let text = serde_json::to_string(&one).unwrap();
    assert_eq!(serde_json::from_str::<Keyring>(&text).unwrap(), one);
    assert!(believes(&two.bundle(), &one.pair().unwrap(), START).is_err());
}

/// What clocks that were three months or years ahead left, and the step that corrects it.
#[test]
fn what_a_wrong_clock_left_is_corrected_at_once() {
    let good = Keyring::new(NAME, START).unwrap();
    let ahead = Keyring::new(NAME, START + 90 * DAY).unwrap();
    let serving = ahead.serving.clone();
    let mut next = good.clone();
    next.next = Some(ahead.authority.clone());
    let mut retired = good.clone();
    retired.retired.push(Retired {
        certificate: ahead.authority.signed.certificate.clone(),
        since: START + 90 * DAY,
    });
    let expired = Keyring::new(NAME, START - 3650 * DAY).unwrap();
    for (left, due) in [
        (Keyring { serving, ..good }, Due::Renew),
        (ahead, Due::Renew),
        (next, Due::Announce),
        (retired, Due::Forget),
        (expired, Due::Replace),
    ] {
        assert_eq!(left.due(START), due, "{left:?}");
        let settled = left.settled(NAME, START).unwrap().unwrap();
        let Due::Nothing(later) = settled.due(START) else {
            panic!("something is due after all was done: {settled:?}");
        };
        assert!(later <= START + 54 * DAY, "{later}");
        for now in [START - 3000, START, later] {
            believes(&settled.bundle(), &settled.pair().unwrap(), now).unwrap();
        }
        // An agent that has not received the new bundle yet.
        if due != Due::Replace {
            believes(&left.bundle(), &settled.pair().unwrap(), START).unwrap();
        }
        // Two days later, nothing of it is trusted any more.
        let tomorrow = settled.settled(NAME, START + DAY).unwrap();
        let tomorrow = tomorrow.unwrap_or(settled);
        let later = tomorrow.settled(NAME, START + 2 * DAY).unwrap();
        let later = later.unwrap_or(tomorrow);
        assert!(later.retired.is_empty() && later.next.is_none());
        assert!(!later.authority.signed.is_ahead(START + 2 * DAY));
    }
}

/// Two controllers whose clocks differ by minutes do not replace each other's certificates.
#[test]
fn clocks_that_differ_by_minutes_correct_nothing() {
    let keyring = Keyring::new(NAME, START + 600).unwrap();
    assert!(keyring.settled(NAME, START).unwrap().is_none());
    believes(&keyring.bundle(), &keyring.pair().unwrap(), START).unwrap();
    let keyring = Keyring::new(NAME, START + 601).unwrap();
    assert_eq!(keyring.due(START), Due::Renew);
}

/// Hours of twelve years.
const HOURS: i64 = 12 * 365 * 24;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// After any sequence of clocks that were ahead or behind by up to twelve years, one that is right finds or makes
    /// a certificate that agents accept, also if their clocks are behind by 48 minutes or ahead by an hour. It takes
    /// few steps, and afterwards nothing is due.
    #[test]
    fn from_any_keyring_and_any_later_clock_the_certificate_becomes_valid(
        clocks in prop::collection::vec(-HOURS..HOURS, 0..8),
    ) {
        let at = |hours: i64| START.checked_add_signed(hours * 3600).unwrap();
        let mut keyring = Keyring::new(NAME, at(*clocks.first().unwrap_or(&0))).unwrap();
        for now in clocks.iter().map(|hours| at(*hours)).chain([START]) {
            let mut steps = 0;
            while let Some(after) = keyring.after(NAME, now).unwrap() {
                keyring = after;
                steps += 1;
                prop_assert!(steps <= 6, "{:?}: {:?} is due", keyring, keyring.due(now));
            }
            for now in [now - 2900, now, now + 3600] {
                let believed = believes(&keyring.bundle(), &keyring.pair().unwrap(), now);
                prop_assert_eq!(believed, Ok(()));
            }
        }
    }
}

#[test]
fn stored_times_at_the_end_of_time_overflow_nowhere() {
    let mut next = authority::authority(START).unwrap();
    next.signed.from = u64::MAX;
    let mut keyring = Keyring::new(NAME, START).unwrap();
    keyring.next = Some(next);
    keyring.serving.from = u64::MAX;
    keyring.serving.until = u64::MAX;
    keyring.retired.push(Retired {
        certificate: String::new(),
        since: u64::MAX,
    });
    assert_eq!(keyring.scheduled(START), Due::Nothing(u64::MAX));
    let settled = keyring.settled(NAME, START).unwrap().unwrap();
    assert_eq!(settled.due(START), Due::Nothing(START + DAY));
}
