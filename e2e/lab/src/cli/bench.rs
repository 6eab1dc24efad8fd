//! `cargo lab bench`.

use anyhow::Result;
use clap::Subcommand;

use super::{Words, help};
use crate::cluster;
use crate::scenarios::{self, Place};

#[derive(Subcommand)]
pub(super) enum Bench {
    /// Measures the node agent: applying a whole plan, one change, a restart, memory
    #[command(mut_arg(
        "words",
        help(
            "Options: --services N, --endpoints N, --runs N, --dataplane nftables, \
        -o json"
        )
    ))]
    Node {
        /// Where the benchmark runs
        #[arg(long = "where", value_enum, default_value_t = Place::Auto)]
        place: Place,
        #[command(flatten)]
        words: Words,
    },
    /// Measures the stream: agents of thousands of nodes, one change, many changes, another controller
    #[command(mut_arg(
        "words",
        help(
            "Options: --agents N, --services N, --endpoints N, --churn SECONDS, \
        --insecure, -o json"
        )
    ))]
    Stream(Words),
    /// Measures Portolan beside kube-proxy on this machine's kernel: start, one change, memory, connections
    #[command(mut_arg(
        "words",
        help("Options: --services N, --endpoints N, --runs N, --dataplane ipvs, -o json")
    ))]
    Peers(Words),
    /// Measures traces: cold sync and a change without traces, with one trace per hundred changes, with a trace of each
    /// change
    #[command(mut_arg(
        "words",
        help("Options: --agents N, --services N, --endpoints N, --rounds N, -o json")
    ))]
    Traces(Words),
}

impl Bench {
    pub(super) fn run(self) -> Result<u8> {
        let sink = &mut std::io::stdout();
        match self {
            Self::Node { place, words } => {
                scenarios::measure(&words.after(&["bench", "node"]), place, sink)
            }
            // On a control plane of this machine.
            Self::Stream(words) => cluster::measure(&words.after(&["bench", "stream"]), sink),
            Self::Peers(words) => {
                cluster::measure_with_nodes(&words.after(&["bench", "peers"]), sink)
            }
            Self::Traces(words) => cluster::measure(&words.after(&["bench", "traces"]), sink),
        }
    }
}
