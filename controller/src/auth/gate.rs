//! Checks an agent's token before its stream opens: `tokens` requests the TokenReview, `verdict` decides.

use std::sync::Arc;

use tonic::metadata::MetadataMap;

use super::admission::Admission;
use super::lanes::Source;
use super::token::Token;
use super::tokens::Tokens;
use crate::refusal::{Reason, Refusal};

/// The policy of admission.
#[derive(Debug, Clone)]
pub enum Gate {
    /// Every client that reaches the socket.
    Open,
    /// Agents with a valid token.
    Tokens(Arc<Tokens>),
}

impl Gate {
    /// Checks the token of a request from `source`.
    ///
    /// # Errors
    /// [`Refusal`] states what is wrong with it.
    pub async fn admit(
        &self,
        metadata: &MetadataMap,
        source: Source,
    ) -> Result<Admission, Refusal> {
        let Self::Tokens(tokens) = self else {
            return Ok(Admission::anybody());
        };
        let header = metadata.get("authorization").map(|value| value.to_str());
        let token = match header {
            Some(Ok(value)) => Token::of_header(value),
            Some(Err(_)) | None => None,
        };
        let Some(token) = token else {
            return Err(Refusal::new(
                Reason::no_token,
                "the request has no token (authorization: Bearer); check --token-file of the agent",
            ));
        };
        let identity = tokens.identity(&token, source).await?;
        Ok(Admission::of(tokens.clone(), token, identity, source))
    }
}
