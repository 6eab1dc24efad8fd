//! The client of the Kubernetes API server.
//!
//! Reads credential files. The address never comes from the `kubernetes` Service, because that one works only
//! after agents have received their plans.

use std::path::PathBuf;

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use thiserror::Error;

/// The address of the API server and the credentials for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiServer {
    /// A kubeconfig file. The default is `KUBECONFIG` or `~/.kube/config`; in a cluster, and only together with
    /// `address`, the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; the default is its current context.
    pub context: Option<String>,
    /// Overrides the address of the API server, for example `https://10.0.0.5:6443`.
    pub address: Option<String>,
}

/// The API server cannot be reached with this configuration.
#[derive(Debug, Error)]
pub enum ApiServerError {
    /// The kubeconfig file cannot be read or is invalid.
    #[error("--kubeconfig {path}: {}; check the file", without_path(.cause))]
    Kubeconfig {
        /// The file.
        path: String,
        /// The cause.
        cause: KubeconfigError,
    },
    /// There is no kubeconfig file, and no address for use in a cluster.
    #[error(
        "no API server: {}; give --kubeconfig FILE, or within a pod --api-server URL",
        with_path(.0)
    )]
    Nowhere(KubeconfigError),
    /// There is an address, but no service account.
    #[error("no credentials for the API server: {0}; give --kubeconfig FILE")]
    NotInCluster(kube::config::InClusterError),
    /// The address is invalid.
    #[error("--api-server {0:?} is not a URL; expected one like https://10.0.0.5:6443")]
    Address(String),
    /// The certificates or keys are unusable.
    #[error("API server: {0}; check certificates and keys in the kubeconfig")]
    Client(kube::Error),
}

/// The text of an error whose file is named elsewhere. kube would name it twice, and quote it twice.
fn without_path(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, _) => error.to_string(),
        other => other.to_string(),
    }
}

/// The text of an error with its file, if it has one.
fn with_path(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, path) => format!("read {}: {error}", path.display()),
        other => other.to_string(),
    }
}

impl ApiServer {
    /// Builds a client, without sending a request.
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
        let failed = |cause| ApiServerError::Kubeconfig {
            path: path.display().to_string(),
            cause,
        };
        let file = Kubeconfig::read_from(path).map_err(failed)?;
        Config::from_custom_kubeconfig(file, &options)
            .await
            .map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_missing_kubeconfig_is_named_once() {
        let server = ApiServer {
            kubeconfig: Some("/nowhere/config".into()),
            ..ApiServer::default()
        };
        let error = server.client().await.err().unwrap();
        assert_eq!(
            error.to_string(),
            "--kubeconfig /nowhere/config: No such file or directory (os error 2); check the file"
        );
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        let error = KubeconfigError::ReadConfig(missing, "/home/admin/.kube/config".into());
        assert_eq!(
            ApiServerError::Nowhere(error).to_string(),
            "no API server: read /home/admin/.kube/config: entity not found; give --kubeconfig FILE, or within a pod \
             --api-server URL"
        );
    }
}
