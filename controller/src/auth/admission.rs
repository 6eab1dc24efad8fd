//! An admitted agent, for the lifetime of its stream.

use std::sync::Arc;
use std::time::Duration;

use super::token::Token;
use super::tokens::Tokens;
use super::verdict::Identity;
use crate::refusal::{Reason, Refusal};

/// The agent that a stream was opened for.
#[derive(Debug)]
pub struct Admission {
    proof: Option<Proof>,
}

#[derive(Debug)]
struct Proof {
    tokens: Arc<Tokens>,
    token: Token,
    identity: Identity,
}

impl Admission {
    /// The admission without authentication, for loopback and Unix sockets.
    pub(super) fn anybody() -> Self {
        Self { proof: None }
    }

    pub(super) fn of(tokens: Arc<Tokens>, token: Token, identity: Identity) -> Self {
        let proof = Proof {
            tokens,
            token,
            identity,
        };
        Self { proof: Some(proof) }
    }

    /// Whether the agent may read the plan of this node.
    ///
    /// # Errors
    /// If its token belongs to another node.
    pub fn covers(&self, node: &str) -> Result<(), Refusal> {
        match &self.proof {
            Some(proof) if *proof.identity.node != *node => {
                let own = &proof.identity.node;
                let message = format!(
                    "an agent may read only the plan of its own node: its token is of a pod on {own}, but it asks for \
                     {node}; see --node of the agent"
                );
                Err(Refusal::new(Reason::other_node, message))
            }
            _ => Ok(()),
        }
    }

    /// The node of the agent, if it was authenticated.
    pub fn node(&self) -> Option<&str> {
        self.proof.as_ref().map(|proof| &*proof.identity.node)
    }

    /// The agent's pod, if the token names one.
    pub fn pod(&self) -> Option<&str> {
        self.proof.as_ref()?.identity.pod.as_deref()
    }

    /// Waits until the stream must end. The token is reviewed periodically; a rejected token ends the stream. While
    /// the API server is unavailable, the stream continues.
    pub async fn revoked(&self) -> Refusal {
        let Some(proof) = &self.proof else {
            return std::future::pending().await;
        };
        let period = proof.tokens.options.review_period;
        loop {
            tokio::time::sleep(spread(period, &proof.token)).await;
            match proof.tokens.identity_now(&proof.token).await {
                Ok(identity) if identity.node == proof.identity.node => {}
                Ok(identity) => {
                    let moved = Refusal::new(
                        Reason::other_node,
                        format!("the token is now of a pod on {}", identity.node),
                    );
                    return ending(&moved);
                }
                Err(refusal) if refusal.reason.is_passing() => {}
                Err(refusal) => return ending(&refusal),
            }
        }
    }
}

fn ending(refusal: &Refusal) -> Refusal {
    let message = format!(
        "the stream ends, because its token was reviewed again: {}",
        refusal.message
    );
    Refusal::new(refusal.reason, message)
}

/// Adds up to 50 % jitter, derived from the token, so that streams opened together are not reviewed together.
fn spread(period: Duration, token: &Token) -> Duration {
    let [byte, ..] = token.hash();
    period + period / 512 * u32::from(byte)
}
