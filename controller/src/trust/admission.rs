//! One agent that was let in, for as long as its stream lasts.

use std::sync::Arc;
use std::time::Duration;

use super::refusal::{Reason, Refusal};
use super::token::Token;
use super::tokens::Tokens;
use super::verdict::Identity;

/// Whom a stream was opened for.
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
    /// Of whoever comes: on loopback and Unix sockets nobody is asked.
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

    /// Whether it may read the plan of this node.
    ///
    /// # Errors
    /// When its token is of another one.
    pub fn covers(&self, node: &str) -> Result<(), Refusal> {
        match &self.proof {
            Some(proof) if *proof.identity.node != *node => {
                let own = &proof.identity.node;
                let message = format!(
                    "an agent reads the plan of its own node only: its token is of a pod on {own}, and it asks for \
                     {node}; see --node of the agent"
                );
                Err(Refusal::new(Reason::other_node, message))
            }
            _ => Ok(()),
        }
    }

    /// The node of whoever was let in, where that is known.
    pub fn node(&self) -> Option<&str> {
        self.proof.as_ref().map(|proof| &*proof.identity.node)
    }

    /// The name of the pod that the stream comes from, if the token names one.
    pub fn pod(&self) -> Option<&str> {
        self.proof.as_ref()?.identity.pod.as_deref()
    }

    /// Waits until the stream has to end: its token is reviewed from time to time, and one that is not
    /// accepted any more ends it. While nobody can be asked it goes on.
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

/// Up to half as long again, by the token, so that streams which began together are not reviewed together.
fn spread(period: Duration, token: &Token) -> Duration {
    let [byte, ..] = token.hash();
    period + period / 512 * u32::from(byte)
}
