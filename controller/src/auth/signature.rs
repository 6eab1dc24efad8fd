//! Signatures of service account tokens, checked with the keys of the API server (JWS, RFC 7515). Pure.
//!
//! Only what is certain is decided: a token with an unknown key is left to the API server. The algorithm is that of the
//! key, so a token cannot choose a weaker one (ADR 0026).

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, EcdsaVerificationAlgorithm,
    RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::Value;

use super::token::Token;

/// Maximum number of keys. An API server has one or two, and more only while keys are replaced.
const MAX_KEYS: usize = 64;
/// Lengths of an RSA modulus that ring accepts, in bytes.
const RSA_MODULUS_BYTES: RangeInclusive<usize> = 256..=1024;
/// Maximum length of an RSA exponent, in bytes. Most are 65,537.
const MAX_RSA_EXPONENT_BYTES: usize = 4;

/// The result of the check of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signature {
    /// A key of the API server made it.
    Genuine,
    /// The token names a key of the API server, which did not make it.
    Forged,
    /// The key or its algorithm is not known here.
    Undecided,
}

/// The keys of the API server, by their ids.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Keys(BTreeMap<String, Key>);

/// A public key. It determines the algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
}

/// A JSON Web Key Set. A key of an unexpected form does not hide the others.
#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

/// The members of a JSON Web Key (RFC 7517) that matter here.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Jwk {
    kid: String,
    kty: String,
    alg: String,
    crv: String,
    n: String,
    e: String,
    x: String,
    y: String,
}

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    alg: String,
    #[serde(default)]
    kid: String,
}

impl Keys {
    /// Reads a JSON Web Key Set. Keys that cannot be used are left out, and so are keys that share an id: tokens with
    /// these ids are undecided.
    pub(super) fn read(text: &str) -> Result<Self, serde_json::Error> {
        let set: KeySet = serde_json::from_str(text)?;
        let mut keys: BTreeMap<String, Option<Key>> = BTreeMap::new();
        for value in set.keys.into_iter().take(MAX_KEYS) {
            let Ok(jwk) = serde_json::from_value::<Jwk>(value) else {
                continue;
            };
            let key = Key::read(&jwk);
            keys.entry(jwk.kid)
                .and_modify(|known| {
                    // API servers publish a key twice if two of their files contain it.
                    if *known != key {
                        *known = None;
                    }
                })
                .or_insert_with(|| key.clone());
        }
        keys.remove("");
        let known = keys.into_iter().filter_map(|(kid, key)| Some((kid, key?)));
        Ok(Self(known.collect()))
    }

    /// Number of keys.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no key.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks the signature of a token.
    pub(super) fn check(&self, token: &Token) -> Signature {
        let Some((signed, header, signature)) = parts(token.as_str()) else {
            return Signature::Undecided;
        };
        let Some(key) = self.0.get(&header.kid) else {
            return Signature::Undecided;
        };
        if key.algorithm() == header.alg && key.made(signed.as_bytes(), &signature) {
            Signature::Genuine
        } else {
            Signature::Forged
        }
    }
}

/// The signed part of a token, its header and its signature.
fn parts(token: &str) -> Option<(&str, Header, Vec<u8>)> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, _) = signed.split_once('.')?;
    let header = decode(header)?;
    let header = serde_json::from_str(str::from_utf8(&header).ok()?).ok()?;
    // No key made a signature that is not even base64.
    Some((signed, header, decode(signature).unwrap_or_default()))
}

fn decode(text: &str) -> Option<Vec<u8>> {
    BASE64_URL_SAFE_NO_PAD.decode(text).ok()
}

/// A number without leading zeros, which ring does not accept.
fn number(text: &str) -> Option<Vec<u8>> {
    let bytes = decode(text)?;
    Some(bytes.into_iter().skip_while(|byte| *byte == 0).collect())
}

/// The uncompressed point of an elliptic curve whose coordinates have this size in bytes.
fn point(jwk: &Jwk, size: usize) -> Option<Vec<u8>> {
    let (x, y) = (decode(&jwk.x)?, decode(&jwk.y)?);
    let fits = x.len() == size && y.len() == size;
    fits.then(|| [vec![4], x, y].concat())
}

impl Key {
    /// `None` for a key that ring cannot use: every token of it would seem forged.
    fn read(jwk: &Jwk) -> Option<Self> {
        let key = match (&*jwk.kty, &*jwk.crv) {
            ("RSA", _) => Self::rsa(number(&jwk.n)?, number(&jwk.e)?)?,
            ("EC", "P-256") => Self::P256(point(jwk, 32)?),
            ("EC", "P-384") => Self::P384(point(jwk, 48)?),
            // ring has neither ES512 nor ML-DSA.
            _ => return None,
        };
        let fits = jwk.alg.is_empty() || jwk.alg == key.algorithm();
        fits.then_some(key)
    }

    fn rsa(modulus: Vec<u8>, exponent: Vec<u8>) -> Option<Self> {
        let is_odd = |number: &[u8]| number.last().is_some_and(|byte| byte % 2 == 1);
        let fits = RSA_MODULUS_BYTES.contains(&modulus.len())
            && exponent.len() <= MAX_RSA_EXPONENT_BYTES
            && is_odd(&modulus)
            && is_odd(&exponent)
            && exponent != [1];
        fits.then_some(Self::Rsa { modulus, exponent })
    }

    /// The name of the algorithm in JWS.
    fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa { .. } => "RS256",
            Self::P256(_) => "ES256",
            Self::P384(_) => "ES384",
        }
    }

    /// Whether the key made this signature.
    fn made(&self, signed: &[u8], signature: &[u8]) -> bool {
        let by_curve = |algorithm: &'static EcdsaVerificationAlgorithm, point: &[u8]| {
            UnparsedPublicKey::new(algorithm, point).verify(signed, signature)
        };
        let verified = match self {
            Self::Rsa { modulus, exponent } => {
                let key = RsaPublicKeyComponents {
                    n: modulus,
                    e: exponent,
                };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature)
            }
            Self::P256(point) => by_curve(&ECDSA_P256_SHA256_FIXED, point),
            Self::P384(point) => by_curve(&ECDSA_P384_SHA384_FIXED, point),
        };
        verified.is_ok()
    }
}

#[cfg(test)]
#[path = "signature_tests.rs"]
pub(super) mod tests;
