//! What tokens and the documents of their issuer lead to, for `e2e/fuzz-targets`. No program uses this.

use super::claims::Claims;
use super::issuer::{keys_of, name_of};
use super::signature::Signature;
use super::token::Token;
use super::tokens::TokenOptions;
use super::verdict;
use crate::refusal::Refusal;

/// Why the claims of a token are refused without a review; `None` if they are not.
#[must_use]
pub fn refused(token: &Token, options: &TokenOptions) -> Option<Refusal> {
    verdict::claimed(Claims::read(token).as_ref(), options).err()
}

/// Whether a key of a key set made the signature of a token; `None` if that is not certain. Reads the discovery document,
/// too.
///
/// # Errors
/// The key set has no key.
pub fn is_genuine(keys: &str, discovery: &str, token: &Token) -> Result<Option<bool>, String> {
    let keys = keys_of(keys)?;
    drop(name_of(discovery));
    Ok(match keys.check(token) {
        Signature::Genuine => Some(true),
        Signature::Forged => Some(false),
        Signature::Undecided => None,
    })
}
