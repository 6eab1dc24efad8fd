//! Lets agents in.

use std::sync::Arc;

use tonic::metadata::MetadataMap;

use super::admission::Admission;
use super::refusal::{Reason, Refusal};
use super::token::Token;
use super::tokens::Tokens;

/// Who is let in.
#[derive(Debug, Clone)]
pub enum Gate {
    /// Whoever reaches the socket.
    Open,
    /// Agents with a token.
    Tokens(Arc<Tokens>),
}

impl Gate {
    /// Looks at the token of a request.
    ///
    /// # Errors
    /// [`Refusal`] says what is wrong with it.
    pub async fn admit(&self, metadata: &MetadataMap) -> Result<Admission, Refusal> {
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
                "no token came (authorization: Bearer): see --token-file of the agent",
            ));
        };
        let identity = tokens.identity(&token).await?;
        Ok(Admission::of(tokens.clone(), token, identity))
    }
}
