//! What a cluster holds, as the user may read it.

use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::anyhow;
use clap::Args;
use kube::Client;
use portolan_planner::model::{Moment, ProxyConfig as Config};

use super::OK;
use crate::api_server::ApiServer;
use crate::engine::moment;
use crate::manifests::Manifests;
use crate::object::{Found, ObjectId};
use crate::{cli, watch};

/// How the API server is reached.
#[derive(Debug, Args)]
pub(super) struct ClusterArguments {
    /// How the API server is reached. Default: KUBECONFIG, ~/.kube/config, or the service account of
    /// the pod together with --api-server.
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig other than its current one.
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,
    /// The API server's address, in place of the one found.
    #[arg(long, value_name = "URL", env = "PORTOLAN_API_SERVER", global = true)]
    api_server: Option<String>,
}

impl ClusterArguments {
    /// A client. Nothing is sent yet.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let server = ApiServer {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            address: self.api_server.clone(),
        };
        Ok(server.client().await?)
    }
}

/// Reads everything that plans are made from, and tells what cannot be read.
pub(super) async fn read(client: &Client) -> anyhow::Result<Manifests> {
    let everything = watch::everything(client).await;
    let objects = Manifests::of_cluster(everything.map_err(|problem| anyhow!(problem))?);
    cli::plan::tell(&objects);
    if let Some(held) = held(&objects, moment(SystemTime::now())) {
        cli::plan::say(OK, &held);
    }
    Ok(objects)
}

/// What nodes have that is in no object any more.
fn held(objects: &Manifests, now: Moment) -> Option<String> {
    let id = ObjectId::ProxyConfig(Config::DEFAULT.into());
    let Found::ProxyConfig(config) = &**objects.objects.get(&id)? else {
        return None;
    };
    let loss = config.guarding.stored.as_ref();
    let loss = loss.filter(|_| config.guarding.holds_at(now))?;
    Some(format!(
        "note: nodes keep endpoints that vanished in mass ({}), which are not in what follows; status.guard of the \
         ProxyConfig says more",
        loss.id
    ))
}
