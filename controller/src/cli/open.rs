//! Opens the socket for agents as configured.

use std::sync::Arc;

use anyhow::Context as _;
use futures::future::{BoxFuture, FutureExt as _};
use kube::Client;
use rustls::ServerConfig;

use crate::auth::tls::{Keeper, Presented, Spoken, server_config};
use crate::auth::{ApiReviewer, Gate, Issuer, Tokens};
use crate::config::{Certificate, Security};
use crate::stream::{Entrance, Listen, Listener};
use crate::telemetry::metrics::Counters;

/// The open socket, its address, and the task that maintains its certificate.
pub(super) struct Opened {
    pub(super) listener: Listener,
    pub(super) listen: Listen,
    pub(super) keeping: BoxFuture<'static, ()>,
    /// TLS configuration of the admin pages; `None` without TLS.
    pub(super) pages: Option<Arc<ServerConfig>>,
}

/// Opens the socket. `client` is `None` without an API server.
pub(super) async fn open(
    listen: Listen,
    security: Security,
    client: Option<Client>,
    counters: &Arc<Counters>,
) -> anyhow::Result<Opened> {
    let (certificate, options) = match security {
        Security::Insecure => {
            let (listener, listen) = listen.open_insecure_counted(counters.clone()).await?;
            return Ok(Opened {
                listener,
                listen,
                keeping: std::future::pending().boxed(),
                pages: None,
            });
        }
        Security::Tls(options) => (options.certificate, options.tokens),
    };
    let client = client.context("TLS needs an API server, which reviews tokens")?;
    let (presented, keeping) = match certificate {
        Certificate::Given(files) => {
            let presented = Presented::new(files.read()?);
            (presented.clone(), files.follow(presented).boxed())
        }
        Certificate::Own(kept) => {
            let presented = Presented::none();
            let keeper = Keeper::new(client.clone(), kept);
            (presented.clone(), keeper.follow(presented).boxed())
        }
    };
    let with = |spoken| server_config(presented.clone(), spoken).context("set up TLS");
    let (config, pages) = (with(Spoken::Streams)?, with(Spoken::Pages)?);
    let issuer = Issuer::follow(client.clone(), counters.clone());
    let reviewer = Arc::new(ApiReviewer::new(client));
    let tokens = Tokens::new(options, reviewer, issuer, counters.clone());
    let entrance = Entrance::secure(config, Gate::Tokens(tokens), counters.clone());
    let (listener, listen) = listen.open(entrance).await?;
    Ok(Opened {
        listener,
        listen,
        keeping,
        pages: Some(pages),
    })
}
