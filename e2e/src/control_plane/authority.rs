//! The certificates of one control plane: its own CA, which signs the certificates of servers and
//! clients. Keys never leave the control plane's folder.

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

/// Where servers are reached: on this machine, and from an emulated guest on it.
const SERVER_NAMES: [&str; 3] = ["127.0.0.1", "localhost", super::FROM_A_GUEST];

/// Signs certificates.
#[derive(Debug)]
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Authority {
    pub(super) fn new() -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
            .distinguished_name
            .push(DnType::CommonName, "portolan-scenarios");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)
            .context("make an authority for certificates")?;
        Ok(Self { issuer })
    }

    /// Its own certificate, as PEM.
    pub(super) fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// For a server on this machine, which has these names besides.
    pub(super) fn server(&self, more: Vec<String>) -> Result<Identity> {
        let mut names = SERVER_NAMES.map(String::from).to_vec();
        names.extend(more);
        let mut params = CertificateParams::new(names)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "control-plane");
        self.sign(params, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// Certificate of a client: its user name at the API server, and optionally its group.
    pub(super) fn client(&self, user: &str, group: Option<&str>) -> Result<Identity> {
        let mut params = CertificateParams::default();
        let name = &mut params.distinguished_name;
        name.push(DnType::CommonName, user);
        if let Some(group) = group {
            name.push(DnType::OrganizationName, group);
        }
        self.sign(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params
            .signed_by(&key, &self.issuer)
            .context("sign a certificate")?;
        Ok(Identity {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        })
    }
}
