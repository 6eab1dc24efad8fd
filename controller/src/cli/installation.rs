//! `portolan-controller installation`.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use kube::Client;

use super::{INCOMPLETE, OK, UNUSABLE};
use crate::api_server::ApiServer;
use crate::installation::{check, each_node, gone};

#[derive(Debug, Args)]
pub(super) struct InstallationArguments {
    #[command(subcommand)]
    what: What,
    /// Kubeconfig for the API server. Default: KUBECONFIG, otherwise ~/.kube/config; in a pod with --api-server, the
    /// pod's service account.
    #[arg(long, value_name = "FILE", global = true)]
    kubeconfig: Option<PathBuf>,
    /// Address of the API server; overrides the kubeconfig's.
    #[arg(long, value_name = "URL", env = "PORTOLAN_API_SERVER", global = true)]
    api_server: Option<String>,
    /// Timeout of `each-node` and `gone`, seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, global = true)]
    timeout: u64,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Waits until the init container of a DaemonSet's pods has ended on each node, and prints a line for each node.
    EachNode {
        /// Namespace of the DaemonSet.
        #[arg(long)]
        namespace: String,
        /// Name of the DaemonSet.
        #[arg(long, value_name = "NAME")]
        daemonset: String,
        /// Number of failures of the container after which its node counts as failed.
        #[arg(long, value_name = "N", default_value_t = 1)]
        tries: i32,
    },
    /// Waits until no pod has these labels.
    Gone {
        /// Namespace of the pods.
        #[arg(long)]
        namespace: String,
        /// Labels of the pods, comma-separated NAME=VALUE.
        #[arg(long, value_name = "LABELS")]
        pods: String,
    },
    /// Checks an installation: the conditions of the ProxyConfig, and that the plan of each node is in force.
    Check,
}

/// Returns 0 if all is well, 1 if something is not, 2 if the state is unknown.
pub(super) fn run(arguments: &InstallationArguments) -> u8 {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let asked = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        runtime.block_on(async {
            let server = ApiServer {
                kubeconfig: arguments.kubeconfig.clone(),
                context: None,
                address: arguments.api_server.clone(),
            };
            let limit = Duration::from_secs(arguments.timeout);
            ask(&server.client().await?, &arguments.what, limit).await
        })
    });
    let (code, text) = match asked {
        Ok((true, text)) => (OK, text),
        Ok((false, text)) => (INCOMPLETE, text),
        Err(error) => (UNUSABLE, format!("error: {error:#}")),
    };
    // Ignored: standard output may be closed.
    drop(writeln!(io::stdout().lock(), "{text}"));
    code
}

async fn ask(client: &Client, what: &What, limit: Duration) -> anyhow::Result<(bool, String)> {
    match what {
        What::EachNode {
            namespace,
            daemonset,
            tries,
        } => {
            let nodes = each_node(client, namespace, daemonset, *tries, limit).await?;
            Ok((nodes.are_done(), nodes.to_string()))
        }
        What::Gone { namespace, pods } => {
            gone(client, namespace, pods, limit).await?;
            Ok((true, format!("no pod in {namespace} has the labels {pods}")))
        }
        What::Check => {
            let lines = check(client).await?;
            let all = lines.iter().all(|(fine, _)| *fine);
            let lines = lines.into_iter().map(|(fine, text)| {
                let word = if fine { "ok    " } else { "FAILED" };
                format!("{word} {text}")
            });
            Ok((all, lines.collect::<Vec<_>>().join("\n")))
        }
    }
}
