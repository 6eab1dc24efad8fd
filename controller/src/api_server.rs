//! How the API server is reached.
//!
//! Touches: files with credentials, for reading. The address never comes from the `kubernetes`
//! Service: that one works only once agents have their plans.

use std::path::PathBuf;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use thiserror::Error;

/// Where the API server is and who we are there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiServer {
    /// A kubeconfig file. Without one: `KUBECONFIG`, `~/.kube/config`, or within a cluster, together
    /// with an address, the service account of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// A context of that file other than its current one.
    pub context: Option<String>,
    /// An address in place of the one found, like `https://10.0.0.5:6443`.
    pub address: Option<String>,
}

/// The API server cannot be reached like that.
#[derive(Debug, Error)]
pub enum ApiServerError {
    /// The file, or something in it.
    #[error("--kubeconfig {path}: {source}; check the file")]
    Kubeconfig {
        /// The file.
        path: String,
        /// What is wrong.
        source: kube::config::KubeconfigError,
    },
    /// No file, and within a cluster no address.
    #[error(
        "no API server: {0}; give --kubeconfig FILE, within a cluster --api-server URL (the address of \
         the `kubernetes` Service works only once agents have their plans), or --manifests DIR to work \
         without a cluster"
    )]
    Nowhere(kube::config::KubeconfigError),
    /// An address alone, and no service account.
    #[error("no credentials for the API server: {0}; give --kubeconfig FILE")]
    NotInCluster(kube::config::InClusterError),
    /// The address makes no sense.
    #[error("--api-server {0:?} is no address; write it like https://10.0.0.5:6443")]
    Address(String),
    /// Certificates or keys cannot be used.
    #[error("API server: {0}; check certificates and keys in the kubeconfig")]
    Client(kube::Error),
}

impl ApiServer {
    /// A client. Nothing is sent yet.
    ///
    /// # Errors
    /// [`ApiServerError`] names the file or flag that is wrong.
    pub async fn client(&self) -> Result<Client, ApiServerError> {
        let mut config = self.config().await?;
        if let Some(address) = &self.address {
            let wrong = || ApiServerError::Address(address.clone());
            config.cluster_url = address.parse().map_err(|_| wrong())?;
            if config.cluster_url.host().is_none() || config.cluster_url.scheme().is_none() {
                return Err(wrong());
            }
        }
        let agent = concat!("portolan-controller/", env!("CARGO_PKG_VERSION"));
        let agent = agent.parse().ok();
        config
            .headers
            .extend(agent.map(|agent| (http::header::USER_AGENT, agent)));
        Client::try_from(config).map_err(ApiServerError::Client)
    }

    async fn config(&self) -> Result<Config, ApiServerError> {
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let Some(path) = &self.kubeconfig else {
            return match Config::from_kubeconfig(&options).await {
                Ok(config) => Ok(config),
                Err(_) if self.address.is_some() => {
                    Config::incluster().map_err(ApiServerError::NotInCluster)
                }
                Err(error) => Err(ApiServerError::Nowhere(error)),
            };
        };
        let failed = |source| ApiServerError::Kubeconfig {
            path: path.display().to_string(),
            source,
        };
        let file = Kubeconfig::read_from(path).map_err(failed)?;
        Config::from_custom_kubeconfig(file, &options)
            .await
            .map_err(failed)
    }
}
