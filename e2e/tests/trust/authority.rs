//! CAs and certificates of tests.

use std::time::{Duration, SystemTime};

use portolan_controller::auth::tls::Pair;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, date_time_ymd,
};

/// Signs certificates.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

pub(crate) fn days(number: u64) -> Duration {
    Duration::from_secs(number * 24 * 3600)
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// For a server that is valid now.
    pub(crate) fn server(&self, name: &str) -> Pair {
        let now = SystemTime::now();
        self.server_of(name, now - days(1), now + days(1))
    }

    pub(crate) fn server_of(&self, name: &str, from: SystemTime, until: SystemTime) -> Pair {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        params.not_before = date_time_ymd(1970, 1, 1) + since(from);
        params.not_after = date_time_ymd(1970, 1, 1) + since(until);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Pair::from_pem(certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }
}
