//! The agents of a revision: which template their DaemonSets have. Pure.

use std::fmt;

use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

/// The agents of a revision. Their template is not in the status of the ProxyConfig, because it runs privileged on
/// every node: the controllers' namespace has recorded it under this hash (`operator::agents::templates`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentsRecord {
    /// The hash of the template's text.
    pub sha256: Sha256,
    /// Its image, for users only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// The SHA-256 of a text: 64 hexadecimal digits in lower case.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Sha256(String);

impl Sha256 {
    /// The hash of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let hash = digest(&SHA256, text.as_bytes());
        let digits = hash.as_ref().iter().map(|byte| format!("{byte:02x}"));
        Self(digits.collect())
    }

    /// Its digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Sha256 {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() == 64 && text.bytes().all(is_digit) {
            Ok(Self(text))
        } else {
            Err("a SHA-256 has 64 hexadecimal digits in lower case")
        }
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The values of FIPS 180-2, and of the empty text.
    #[test]
    fn the_hash_is_a_sha256() {
        for (text, hash) in [
            (
                "",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
            (
                "abc",
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
        ] {
            assert_eq!(Sha256::of(text).as_str(), hash);
            assert_eq!(Sha256::try_from(hash.to_owned()), Ok(Sha256::of(text)));
            assert_eq!(json!(Sha256::of(text)), hash);
        }
    }

    /// A DaemonSet in place of a hash is no agents' record, so it is unreadable together with its revision.
    #[test]
    fn only_a_hash_refers_to_a_template() {
        let hash = "0".repeat(64);
        for (value, is_valid) in [
            (json!({"sha256": hash}), true),
            (json!({"sha256": hash, "image": "a"}), true),
            (json!({"sha256": "0".repeat(63)}), false),
            (json!({"sha256": "0".repeat(65)}), false),
            (json!({"sha256": "A".repeat(64)}), false),
            (json!({"sha256": "é".repeat(32)}), false),
            (json!({"apiVersion": "apps/v1", "kind": "DaemonSet"}), false),
        ] {
            let read: Result<AgentsRecord, _> = serde_json::from_value(value.clone());
            assert_eq!(read.is_ok(), is_valid, "{value}");
        }
    }
}
