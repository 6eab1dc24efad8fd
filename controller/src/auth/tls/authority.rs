//! Creates CAs and server certificates. Touches: the random number generator.

use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SerialNumber, date_time_ymd,
};
use ring::rand::{SecureRandom as _, SystemRandom};

use super::keyring::{Authority, KeyringError, Signed};

/// Lifetime of a CA, in seconds: 10 years.
const CA_LIFETIME_SECONDS: u64 = 3650 * 24 * 3600;
/// Lifetime of a serving certificate, in seconds: 90 days.
const SERVING_LIFETIME_SECONDS: u64 = 90 * 24 * 3600;
/// Tolerated clock skew of agents, in seconds. Certificates are backdated by it.
const CLOCK_SKEW_SECONDS: u64 = 3600;

/// A new CA.
pub(super) fn authority(now: u64) -> Result<Authority, KeyringError> {
    let until = now + CA_LIFETIME_SECONDS;
    let serial = serial()?;
    let name = format!("portolan {}", hex(&serial));
    let mut params = params_of(&name);
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    within(&mut params, now, until);
    let key = KeyPair::generate()?;
    let pem = key.serialize_pem();
    let issuer = CertifiedIssuer::self_signed(params, key)?;
    let signed = Signed {
        certificate: issuer.pem(),
        key: pem,
        from: now,
        until,
    };
    Ok(Authority { name, signed })
}

/// A server certificate of the controller for this name.
pub(super) fn serving(by: &Authority, name: &str, now: u64) -> Result<Signed, KeyringError> {
    let until = (now + SERVING_LIFETIME_SECONDS).min(by.signed.until);
    let mut params = CertificateParams::new(vec![name.to_owned()])?;
    params.serial_number = Some(SerialNumber::from_slice(&serial()?));
    within(&mut params, now, until);
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let issuer = Issuer::new(params_of(&by.name), KeyPair::from_pem(&by.signed.key)?);
    let key = KeyPair::generate()?;
    Ok(Signed {
        certificate: params.signed_by(&key, &issuer)?.pem(),
        key: key.serialize_pem(),
        from: now,
        until,
    })
}

fn params_of(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// 127 random bits, since a serial number must be positive.
fn serial() -> Result<[u8; 16], KeyringError> {
    let mut serial = [0; 16];
    let filled = SystemRandom::new().fill(&mut serial);
    filled.map_err(|_| KeyringError::Chance)?;
    serial[0] &= 0x7f;
    Ok(serial)
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn within(params: &mut CertificateParams, now: u64, until: u64) {
    let start = date_time_ymd(1970, 1, 1);
    params.not_before = start + Duration::from_secs(now.saturating_sub(CLOCK_SKEW_SECONDS));
    params.not_after = start + Duration::from_secs(until);
}
