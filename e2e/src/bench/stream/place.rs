//! Where the controller listens and how agents connect: over TLS with a token of the API server for each node, as in
//! a cluster, or through a Unix socket without both.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::Api;
use portolan_agent::receive::{Access, Address, Tls, Trust};
use tokio::runtime::Runtime;

use super::objects;
use crate::control_plane::ControlPlane;
use crate::credentials::{ACCOUNT, ACCOUNTS, AUDIENCE, Authority, NAME, NAMESPACE, issue, pod};
use crate::work_folder::WorkFolder;

/// The way of agents to the controller.
#[derive(Debug, Clone, Args)]
pub struct Way {
    /// Where the controller is: IP:PORT or unix:PATH.
    #[arg(long)]
    controller: Address,
    /// A folder with an authority and a token for each node; without one no TLS is spoken.
    #[arg(long)]
    trust: Option<PathBuf>,
}

impl Way {
    /// As an agent of this node.
    pub(super) fn access(&self, node: &str) -> Result<Access> {
        let trust = match &self.trust {
            None => Trust::Insecure,
            Some(folder) => Trust::Tls(Tls {
                ca: folder.join(CA),
                name: NAME.to_owned().try_into()?,
                token: Some(folder.join(node)),
            }),
        };
        let address = self.controller.clone();
        Ok(Access { address, trust })
    }

    /// Whether agents have to authenticate.
    pub(super) fn is_trusted(&self) -> bool {
        self.trust.is_some()
    }

    /// As words of a command line.
    pub(in crate::bench) fn words(&self) -> Vec<String> {
        let mut words = vec!["--controller".to_owned(), self.controller.to_string()];
        if let Some(folder) = &self.trust {
            words.extend(["--trust".to_owned(), folder.display().to_string()]);
        }
        words
    }
}

/// The authority's certificate, beside tokens that have the names of nodes.
const CA: &str = "ca.crt";

/// Where one controller listens, after another.
pub(in crate::bench) struct Place {
    pub(super) folder: WorkFolder,
    way: Way,
    /// Arguments of the controller.
    words: Vec<String>,
}

impl Place {
    /// A Unix socket without authentication.
    pub(in crate::bench) fn insecure() -> Result<Self> {
        let folder = WorkFolder::private()?;
        let way = Way {
            controller: Address::Unix(folder.path.join("controller.sock")),
            trust: None,
        };
        let words = vec!["--insecure".to_owned()];
        Ok(Self { folder, way, words })
    }

    /// A port, for agents of these nodes with tokens of the API server.
    pub(super) fn secure(
        plane: &ControlPlane,
        runtime: &Runtime,
        client: &Client,
        nodes: &[String],
    ) -> Result<Self> {
        let folder = WorkFolder::private()?;
        plane.apply(ACCOUNTS)?;
        let pods = nodes
            .iter()
            .map(|node| serde_json::to_value(pod(ACCOUNT, node)));
        let pods = pods.collect::<Result<Vec<_>, _>>()?;
        let tokens = runtime.block_on(async {
            let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
            objects::all(&api, pods.into_iter()).await?;
            issue(client.clone(), ACCOUNT, nodes, AUDIENCE).await
        });
        for (node, token) in nodes.iter().zip(tokens?) {
            std::fs::write(folder.path.join(node), token).context("write a token")?;
        }
        let authority = Authority::new("bench")?;
        let identity = authority.controller()?;
        let (certificate, key) = (folder.path.join("tls.crt"), folder.path.join("tls.key"));
        std::fs::write(&certificate, identity.certificate)?;
        std::fs::write(&key, identity.key)?;
        std::fs::write(folder.path.join(CA), authority.pem())?;
        let [port, _] = plane.free_ports()?;
        let way = Way {
            controller: format!("127.0.0.1:{port}").parse()?,
            trust: Some(folder.path.clone()),
        };
        let account = format!("{NAMESPACE}/{ACCOUNT}");
        let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
        let words = [
            "--tls-cert",
            &certificate,
            "--tls-key",
            &key,
            "--agent-service-account",
            &account,
            "--token-audience",
            AUDIENCE,
        ];
        let words = words.map(str::to_owned).to_vec();
        Ok(Self { folder, way, words })
    }

    /// How agents come there.
    pub(in crate::bench) fn way(&self) -> &Way {
        &self.way
    }

    /// Arguments of the controller.
    pub(in crate::bench) fn words(&self) -> Vec<String> {
        let listen = ["--listen".to_owned(), self.way.controller.to_string()];
        [&listen[..], &self.words].concat()
    }
}
