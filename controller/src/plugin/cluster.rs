//! Reads a cluster's objects with the user's permissions.

use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::anyhow;
use clap::Args;
use kube::Client;
use portolan_planner::model::{Moment, Object, ObjectId, ProxyConfig as Config};

use super::OK;
use crate::api_server::ApiServer;
use crate::engine::moment;
use crate::manifests::Manifests;
use crate::{cli, watch};

/// How the API server is reached.
#[derive(Debug, Args)]
pub(super) struct ClusterArguments {
    /// Kubeconfig for the API server. Default: KUBECONFIG, otherwise ~/.kube/config; in a pod with --api-server, the
    /// pod's service account.
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Default: its current one.
    #[arg(long, value_name = "NAME", global = true)]
    context: Option<String>,
    /// Address of the API server; overrides the kubeconfig's.
    #[arg(long, value_name = "URL", env = "PORTOLAN_API_SERVER", global = true)]
    api_server: Option<String>,
}

impl ClusterArguments {
    /// A client. Sends nothing yet.
    pub(super) async fn client(&self) -> anyhow::Result<Client> {
        let server = ApiServer {
            kubeconfig: self.kubeconfig.clone(),
            context: self.context.clone(),
            address: self.api_server.clone(),
        };
        Ok(server.client().await?)
    }
}

/// Reads all objects that plans are made from, and reports unreadable ones on standard error.
pub(super) async fn read(client: &Client) -> anyhow::Result<Manifests> {
    let everything = watch::everything(client).await;
    let objects = Manifests::of_cluster(everything.map_err(|problem| anyhow!(problem))?);
    cli::plan::report_problems(&objects);
    if let Some(held) = held(&objects, moment(SystemTime::now())) {
        cli::plan::report(OK, &held);
    }
    Ok(objects)
}

/// A note if nodes hold endpoints that are in no object any more.
fn held(objects: &Manifests, now: Moment) -> Option<String> {
    let id = ObjectId::ProxyConfig(Config::DEFAULT.into());
    let Object::ProxyConfig(config) = &**objects.objects.get(&id)? else {
        return None;
    };
    let loss = config.guarding.stored.as_ref();
    let loss = loss.filter(|_| config.guarding.holds_at(now))?;
    Some(format!(
        "note: nodes keep endpoints of a mass loss ({}), which this output does not include; status.guard of the \
         ProxyConfig has the details",
        loss.id
    ))
}
