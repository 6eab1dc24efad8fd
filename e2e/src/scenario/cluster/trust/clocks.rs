//! A controller whose clock was three months ahead has stored a CA and a certificate.

use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};
use serde_json::{Value, json};

use super::files::replace;
use super::lab::Lab;
use super::own::{AGENTS, KEPT, bundle};
use crate::checks::Checks;
use crate::credentials::{NAME, NAMESPACE};

/// Until the controller has read the Secret and agents have connected, on hardware.
const CORRECTED: Duration = Duration::from_secs(70);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Of the CA, as the controller names it.
const AUTHORITY: &str = "portolan of a future controller";

/// What the controller has left.
struct Left {
    secret: Value,
    /// The CA, which agents trust.
    authority: String,
}

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    lab.rig.kill_controller()?;
    let left = left()?;
    let words = ["replace", "-f", "-"];
    lab.rig
        .plane
        .kubectl_with_input(&words, &left.secret.to_string())?;
    replace(&lab.ca, &left.authority)?;
    lab.start_controller_showing(&KEPT)?;
    lab.start_agents(usize::from(AGENTS))?;
    checks.check(
        "a certificate that is valid in three months is replaced, and agents connect without help",
        lab.wait_streams(CORRECTED, u64::from(AGENTS)),
    );
    let both = || {
        let bundle = bundle(lab)?;
        ensure!(bundle.contains(left.authority.trim()), "{bundle}");
        let count = bundle.matches("BEGIN CERTIFICATE").count();
        ensure!(count == 2, "{count} CAs are published");
        replace(&lab.ca, &bundle)
    };
    checks.check(
        "the CA that agents know signs it, and the next one is announced",
        both(),
    );
    lab.rig.kill_controller()?;
    lab.start_controller_showing(&KEPT)?;
    let again = lab.wait_streams(CORRECTED, 2 * u64::from(AGENTS));
    checks.check(
        "and it stays after a restart",
        again.and_then(|()| once(lab)),
    );
    Ok(())
}

/// The log of all controllers so far has one renewal.
fn once(lab: &Lab<'_>) -> Result<()> {
    let said = lab.rig.controller_said()?;
    let count = said.matches("due=Renew").count();
    ensure!(count == 1, "the certificate was renewed {count} times");
    Ok(())
}

/// A keyring of ten years and a certificate of 90 days that begin 90 days from now.
fn left() -> Result<Left> {
    let from = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)? + 90 * DAY;
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params
        .distinguished_name
        .push(DnType::CommonName, AUTHORITY);
    within(&mut params, from, from + 3650 * DAY);
    let key = KeyPair::generate()?;
    let authority_key = key.serialize_pem();
    let authority = CertifiedIssuer::self_signed(params, key)?;
    let mut params = CertificateParams::new(vec![NAME.to_owned()])?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    within(&mut params, from, from + 90 * DAY);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &authority)?;
    let signed = |certificate: String, key: String, days: u32| {
        let until = from + days * DAY;
        json!({
            "certificate": certificate, "key": key,
            "from": from.as_secs(), "until": until.as_secs(),
        })
    };
    let keyring = json!({
        "authority": {"name": AUTHORITY, "signed": signed(authority.pem(), authority_key, 3650)},
        "next": null, "retired": [],
        "serving": signed(certificate.pem(), key.serialize_pem(), 90),
    });
    Ok(Left {
        secret: json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "controller-tls", "namespace": NAMESPACE},
            "stringData": {"keyring.json": keyring.to_string()},
        }),
        authority: authority.pem(),
    })
}

fn within(params: &mut CertificateParams, from: Duration, until: Duration) {
    let start = date_time_ymd(1970, 1, 1);
    params.not_before = start + from;
    params.not_after = start + until;
}
