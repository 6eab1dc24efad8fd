//! A token whose `Debug` output is redacted.

use std::fmt;

use portolan_proto::MAX_TOKEN_BYTES;
use ring::digest::{SHA256, digest};

/// A bearer token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

/// The hash of a token, used where the token itself is not needed.
pub(crate) type TokenHash = [u8; 32];

impl Token {
    /// The token of an `authorization` header; `None` for any other scheme.
    #[must_use]
    pub fn of_header(value: &str) -> Option<Self> {
        let (scheme, token) = value.trim().split_once(' ')?;
        let token = token.trim();
        (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then(|| Self(token.to_owned()))
    }

    /// The token of a message; `None` if it cannot be one.
    pub(crate) fn of_message(text: String) -> Option<Self> {
        (!text.is_empty() && text.len() <= MAX_TOKEN_BYTES).then_some(Self(text))
    }

    /// The token itself, to send it on.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn hash(&self) -> TokenHash {
        let mut hash = TokenHash::default();
        let made = digest(&SHA256, self.0.as_bytes());
        for (to, from) in hash.iter_mut().zip(made.as_ref()) {
            *to = *from;
        }
        hash
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_from_its_header_and_printed_nowhere() {
        let token = Token::of_header("Bearer abc.def.ghi").unwrap();
        assert_eq!(token.as_str(), "abc.def.ghi");
        assert_eq!(
            Token::of_header("bearer  abc.def.ghi "),
            Some(token.clone())
        );
        for other in ["", "Bearer", "Bearer ", "Basic abc", "abc"] {
            assert_eq!(Token::of_header(other), None, "{other:?}");
        }
        assert_eq!(Token::of_message("abc.def.ghi".into()), Some(token.clone()));
        for other in [String::new(), "x".repeat(MAX_TOKEN_BYTES + 1)] {
            assert_eq!(Token::of_message(other), None);
        }
        assert!(!format!("{token:?}").contains("abc"));
        assert_ne!(token.hash(), Token("abc.def.ghj".into()).hash());
    }
}
