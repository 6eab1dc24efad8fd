//! The service for agents in the same process.

use std::sync::Arc;

use portolan_proto::MAX_MESSAGE_BYTES;
use portolan_proto::wire::plan_stream_server::{PlanStream, PlanStreamServer};
use tokio::sync::watch;

use super::Plans;
use super::behind::Relists;
use super::entrance::Entrance;
use super::opening::StreamRate;
use super::pace::Pace;
use super::whole_plans::WholePlans;
use crate::agent_registry::AgentRegistry;
use crate::freshness::Freshness;
use crate::store::Store;
use crate::telemetry::changes::Changes;

/// The service without a listener, for a caller that carries the messages of agents itself, such as a simulation. It
/// admits every agent, so it must not be reachable over a network. Streams are asked to reconnect elsewhere once
/// `ending` is true.
///
/// `ages` are the notifications of [`Freshness::follow`].
///
/// No connection counts written bytes here. A batch is therefore limited to what [`super::serve`] keeps in flight, about
/// 32 kB.
pub fn in_process(
    store: Arc<Store>,
    registry: Arc<AgentRegistry>,
    (freshness, ages): (Arc<Freshness>, watch::Receiver<()>),
    ending: watch::Receiver<bool>,
) -> PlanStreamServer<impl PlanStream> {
    let entrance = Entrance::open(Arc::default());
    PlanStreamServer::new(Plans {
        store,
        registry,
        whole_plans: WholePlans::new(entrance.counters.clone()),
        entrance,
        changes: Changes::default(),
        freshness,
        ages,
        pace: Pace::default(),
        streams: StreamRate::default(),
        relists: Relists::default(),
        ending,
    })
    .max_decoding_message_size(MAX_MESSAGE_BYTES)
}
