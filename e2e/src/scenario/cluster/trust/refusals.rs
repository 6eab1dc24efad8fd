//! Refused agents: the message to the agent, the controller's log and its metrics.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use portolan_agent::receive::{Access, Tls, Trust};

use super::files::replace;
use super::lab::Lab;
use super::tokens;
use crate::checks::Checks;
use crate::credentials::{ACCOUNT, AUDIENCE, Authority, NAMESPACE, OTHER};
use crate::light_agents::LightAgents;

/// Until an agent has been refused, on hardware; and until a stream whose pod is gone has ended.
const REFUSED: Duration = Duration::from_secs(30);
/// Until an agent has connected and has a plan, including two file checks of the controller.
const PLANNED: Duration = Duration::from_secs(40);

/// An agent that requests a plan.
struct Comer {
    what: &'static str,
    access: Access,
    /// The reason in the metrics.
    reason: &'static str,
    /// The message that the agent reports.
    message: &'static str,
    /// Text in the controller's log.
    logged: &'static str,
}

pub(super) fn run(lab: &mut Lab<'_>, checks: &mut Checks) -> Result<()> {
    for comer in comers(lab)? {
        let result = refused(lab, &comer);
        checks.check(
            &format!("{} is refused and gets the reason", comer.what),
            result,
        );
    }
    let good = good_again(lab);
    checks.check(
        "a token that the scenario signs with a valid expiry is accepted",
        good,
    );
    checks.check("the stream of a pod that is deleted ends", deleted(lab));
    Ok(())
}

#[allow(clippy::too_many_lines, reason = "a table")]
fn comers(lab: &Lab<'_>) -> Result<Vec<Comer>> {
    let node = ["node-1".to_owned()];
    let issued = |account: &str, audience: &str| -> Result<String> {
        let mut tokens = tokens::issue_in(&lab.bulk, account, &node, audience)?;
        tokens.pop().context("no token")
    };
    let own = issued(ACCOUNT, AUDIENCE)?;
    let of_node_2 = &lab.tokens.get(1).context("no second node")?.1;
    let key = accounts_key(lab)?;
    let ended = SystemTime::now() - Duration::from_secs(60);
    let with = |name: &str, token: &str| lab.access(name, Some(token));
    let stranger = lab.rig.file("stranger.crt");
    replace(&stranger, &Authority::new("stranger")?.pem())?;
    let mut unbelieving = with("unbelieving", &own)?;
    if let Trust::Tls(Tls { ca, .. }) = &mut unbelieving.trust {
        *ca = stranger;
    }
    Ok(vec![
        Comer {
            what: "a token for another audience",
            access: with("audience", &issued(ACCOUNT, "vault")?)?,
            reason: "audience",
            message: "the token is for vault, not for portolan-controller",
            logged: "--token-audience of the controller",
        },
        Comer {
            what: "a token of another service account",
            access: with("account", &issued(OTHER, AUDIENCE)?)?,
            reason: "service_account",
            message: "is of system:serviceaccount:portolan:other-account, not of system:serviceaccount:portolan:portolan-agent",
            logged: "--agent-service-account",
        },
        Comer {
            what: "an agent that asks for the plan of another node",
            access: with("other-node", of_node_2)?,
            reason: "other_node",
            message: "its token is of a pod on node-2, but it asks for node-1",
            logged: "may read only the plan of its own node",
        },
        Comer {
            what: "a token that has expired",
            access: with("expired", &tokens::ending(&own, &key, ended)?)?,
            reason: "expired",
            message: "the token expired at",
            logged: "check that the kubelet renews --token-file",
        },
        Comer {
            what: "a token with an invalid signature",
            access: with("forged", &tokens::forged(&own)?)?,
            reason: "forged",
            message: "the signature of the token is not of the API server",
            logged: "the token is forged or was changed",
        },
        Comer {
            what: "an agent without a token",
            access: lab.access("none", None)?,
            reason: "no_token",
            message: "the request has no token",
            logged: "check --token-file of the agent",
        },
        Comer {
            what: "an agent that speaks no TLS",
            access: Access::insecure(lab.address()?),
            reason: "plain_text",
            message: "this controller uses TLS, but the agent does not",
            logged: "start it with --controller-ca",
        },
        Comer {
            what: "a controller whose authority the agent does not know",
            access: unbelieving,
            reason: "handshake",
            message: "is not signed by a CA in --controller-ca",
            logged: "check its --controller-ca",
        },
    ])
}

/// The key with which the control plane signs tokens.
fn accounts_key(lab: &Lab<'_>) -> Result<String> {
    let path = lab.rig.plane.folder().join("accounts.key");
    std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}

fn refused(lab: &Lab<'_>, comer: &Comer) -> Result<()> {
    let before = lab.refused(comer.reason)?;
    let agents = LightAgents::start_with([("node-1".to_owned(), comer.access.clone())])?;
    lab.rig.eventually("the agent to be refused", REFUSED, || {
        let message = agents.link("node-1").trouble.unwrap_or_default();
        ensure!(message.contains(comer.message), "it says {message:?}");
        Ok(())
    })?;
    ensure!(agents.hash("node-1").is_none(), "it got a plan");
    lab.rig
        .eventually("the controller to count it", REFUSED, || {
            let counted = lab.refused(comer.reason)? > before;
            ensure!(counted, "{} is counted as before: {before}", comer.reason);
            Ok(())
        })?;
    let said = lab.rig.controller_said()?;
    ensure!(
        said.contains(comer.logged),
        "the controller's log has no {:?}",
        comer.logged
    );
    Ok(())
}

/// Shows that the expired token is refused for its expiry: the same token with another expiry is
/// accepted.
fn good_again(lab: &Lab<'_>) -> Result<()> {
    let (node, token) = lab.tokens.get(30).context("no such node")?;
    let end = SystemTime::now() + Duration::from_secs(1800);
    let token = tokens::ending(token, &accounts_key(lab)?, end)?;
    let access = lab.access("signed", Some(&token))?;
    let agents = LightAgents::start_with([(node.clone(), access)])?;
    wait_planned(lab, &agents, node)
}

/// Waits until the agent of a node has a plan.
pub(super) fn wait_planned(lab: &Lab<'_>, agents: &LightAgents, node: &str) -> Result<()> {
    lab.rig.eventually("a plan", PLANNED, || {
        let planned = agents.hash(node).map(drop);
        planned.with_context(|| format!("{:?}", agents.link(node)))
    })
}

fn deleted(lab: &Lab<'_>) -> Result<()> {
    let (node, token) = lab.tokens.last().context("no such node")?;
    let access = lab.access("deleted", Some(token))?;
    let agents = LightAgents::start_with([(node.clone(), access)])?;
    wait_planned(lab, &agents, node)?;
    let before = lab.refused("not_accepted")?;
    let pod = format!("{ACCOUNT}-{node}");
    let words = ["delete", "pod", &pod, "-n", NAMESPACE, "--now"];
    lab.rig.plane.kubectl(&words)?;
    lab.rig.eventually("the stream to end", REFUSED, || {
        let link = agents.link(node);
        let words = link.trouble.clone().unwrap_or_default();
        let why = "whether the agent's pod or its service account was deleted";
        ensure!(words.contains(why), "{link:?}");
        Ok(())
    })?;
    ensure!(lab.refused("not_accepted")? > before, "it is not counted");
    let said = lab.rig.controller_said()?;
    let words = "the stream ends, because its token was reviewed again";
    ensure!(
        said.contains(words),
        "the controller's log does not say why"
    );
    Ok(())
}
