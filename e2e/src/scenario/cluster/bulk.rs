//! Many requests at a time, as a busy cluster makes them.

use std::path::Path;

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::runtime::Runtime;

/// Requests in flight.
const AT_ONCE: usize = 32;

/// A client with threads of its own.
pub(super) struct Bulk {
    runtime: Runtime,
    client: Client,
}

impl Bulk {
    /// As the user of a kubeconfig.
    pub(super) fn new(kubeconfig: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("bulk")
            .enable_all()
            .build()?;
        let file = Kubeconfig::read_from(kubeconfig)?;
        let client = runtime.block_on(async {
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(file, &options).await?;
            anyhow::Ok(Client::try_from(config)?)
        })?;
        Ok(Self { runtime, client })
    }

    /// Creates objects of a namespace.
    pub(super) fn create<K>(
        &self,
        namespace: &str,
        objects: impl IntoIterator<Item = K>,
    ) -> Result<usize>
    where
        K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let api: Api<K> = Api::namespaced(self.client.clone(), namespace);
        let created = futures::stream::iter(objects)
            .map(|object| {
                let api = api.clone();
                async move {
                    let name = object.meta().name.clone().unwrap_or_default();
                    let created = api.create(&PostParams::default(), &object).await;
                    created
                        .map(drop)
                        .with_context(|| format!("create {} {name}", K::kind(&())))
                }
            })
            .buffer_unordered(AT_ONCE)
            .try_fold(0, |count, ()| async move { Ok(count + 1) });
        self.runtime.block_on(created)
    }

    /// Runs `work` with the client.
    pub(super) fn run<T>(&self, work: impl AsyncFnOnce(Client) -> Result<T>) -> Result<T> {
        self.runtime.block_on(work(self.client.clone()))
    }
}
