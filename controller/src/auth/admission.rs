//! An admitted agent, for the lifetime of its stream. Its token is reviewed again and again, and replaced by the newer
//! ones that the agent sends.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use super::lanes::Source;
use super::token::Token;
use super::tokens::Tokens;
use super::verdict::Identity;
use crate::refusal::{Reason, Refusal};

/// Minimum interval between reviews of the newer tokens of one stream. The kubelet replaces a token of an hour after 48
/// minutes.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(60);

/// The agent that a stream was opened for.
#[derive(Debug)]
pub struct Admission {
    proof: Option<Proof>,
}

#[derive(Debug)]
struct Proof {
    tokens: Arc<Tokens>,
    /// The token with which the stream was opened.
    token: Token,
    identity: Identity,
    source: Source,
    /// The last token that the agent sent on the stream, until the API server has decided about it.
    newer: watch::Sender<Option<Token>>,
}

impl Admission {
    /// The admission without authentication, for loopback and Unix sockets.
    pub(super) fn anybody() -> Self {
        Self { proof: None }
    }

    pub(super) fn of(
        tokens: Arc<Tokens>,
        token: Token,
        identity: Identity,
        source: Source,
    ) -> Self {
        let proof = Proof {
            tokens,
            token,
            identity,
            source,
            newer: watch::Sender::default(),
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

    /// Takes a newer token that the agent sent on its stream. The stream continues with it once it is reviewed. Until
    /// then, and if it is rejected, the present one counts.
    pub(crate) fn renew(&self, token: Token) {
        if let Some(proof) = &self.proof {
            proof.newer.send_replace(Some(token));
        }
    }

    /// Waits until the stream must end. The token is reviewed periodically; a rejected token ends the stream. While
    /// the API server is unavailable, the stream continues.
    pub async fn revoked(&self) -> Refusal {
        let Some(proof) = &self.proof else {
            return std::future::pending().await;
        };
        let mut token = proof.token.clone();
        let (mut due, mut earliest) = (proof.next_review(&token), Instant::now());
        loop {
            tokio::select! {
                () = sleep_until(due) => {}
                () = proof.renewed(earliest) => {}
            }
            // A newer token comes first: the present one may have expired while the API server did not answer.
            let newer = proof.newer.borrow().clone();
            if let Some(newer) = newer {
                earliest = Instant::now() + MIN_RENEWAL_INTERVAL;
                if proof.accepts(&newer).await {
                    due = proof.next_review(&newer);
                    token = newer;
                }
            }
            // Newer tokens must not postpone the review of the present one.
            if Instant::now() < due {
                continue;
            }
            match proof.review(&token).await {
                Err(refusal) if !refusal.reason.is_passing() => return ending(&refusal),
                Ok(()) | Err(_) => due = proof.next_review(&token),
            }
        }
    }
}

impl Proof {
    /// When the token has to be reviewed again.
    fn next_review(&self, token: &Token) -> Instant {
        Instant::now() + spread(self.tokens.options.review_period, token)
    }

    /// Waits for a newer token, and until it may be reviewed.
    async fn renewed(&self, earliest: Instant) {
        sleep_until(earliest).await;
        let mut newer = self.newer.subscribe();
        // Never an error: the sender is in `self`.
        drop(newer.wait_for(Option::is_some).await);
    }

    /// Whether the stream continues with a newer token. It is kept for another review if there was no decision.
    async fn accepts(&self, newer: &Token) -> bool {
        let reviewed = self.review(newer).await;
        let node = &*self.identity.node;
        match &reviewed {
            Ok(()) => renewed(node),
            Err(refusal) if refusal.reason.is_passing() => return false,
            Err(refusal) => not_renewed(node, refusal),
        }
        self.newer.send_if_modified(|waits| {
            // Unless the agent has sent still another one.
            if waits.as_ref() == Some(newer) {
                *waits = None;
            }
            false
        });
        reviewed.is_ok()
    }

    /// Reviews a token, which has to be of the pod that opened the stream.
    async fn review(&self, token: &Token) -> Result<(), Refusal> {
        let identity = self.tokens.identity_now(token, self.source).await?;
        let Identity { node, pod, .. } = &self.identity;
        if identity.node != *node {
            let message = format!("the token is now of a pod on {}", identity.node);
            return Err(Refusal::new(Reason::other_node, message));
        }
        if identity.pod != *pod {
            let message = "the token is of another pod than the one that opened the stream";
            return Err(Refusal::new(Reason::other_node, message));
        }
        Ok(())
    }
}

fn renewed(node: &str) {
    debug!(node, "the stream continues with a newer token of the agent");
}

fn not_renewed(node: &str, refusal: &Refusal) {
    let Refusal { reason, message } = refusal;
    warn!(
        node,
        ?reason,
        "a newer token of the agent is refused, and the stream continues with the present one: {message}"
    );
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

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
