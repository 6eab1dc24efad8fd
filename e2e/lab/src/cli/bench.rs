//! `cargo lab bench`.

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::cluster;
use crate::scenarios::{self, Place};

#[derive(Subcommand)]
pub(super) enum Bench {
    /// Measures the node agent: applying a whole plan, one change, a restart, memory
    Node(Node),
    /// Measures the stream: agents of thousands of nodes, one change, many changes, another controller
    Stream(Stream),
    /// Measures Portolan beside kube-proxy on this machine's kernel: start, one change, memory, connections
    Peers(Peers),
    /// Measures traces: cold sync and a change without traces, with one trace per hundred changes, with a trace of each
    /// change
    Traces(Traces),
}

#[derive(Args)]
pub(super) struct Node {
    /// Where the benchmark runs
    #[arg(long = "where", value_enum, default_value_t = Place::Auto)]
    place: Place,
    /// Options: --services N, --endpoints N, --runs N, --dataplane nftables, -o json
    #[arg(
        value_name = "OPTION",
        allow_hyphen_values = true,
        trailing_var_arg = true
    )]
    words: Vec<String>,
}

#[derive(Args)]
pub(super) struct Stream {
    /// Options: --agents N, --services N, --endpoints N, --churn SECONDS, --insecure, -o json
    #[arg(
        value_name = "OPTION",
        allow_hyphen_values = true,
        trailing_var_arg = true
    )]
    words: Vec<String>,
}

#[derive(Args)]
pub(super) struct Peers {
    /// Options: --services N, --endpoints N, --runs N, --dataplane ipvs, -o json
    #[arg(
        value_name = "OPTION",
        allow_hyphen_values = true,
        trailing_var_arg = true
    )]
    words: Vec<String>,
}

#[derive(Args)]
pub(super) struct Traces {
    /// Options: --agents N, --services N, --endpoints N, --rounds N, -o json
    #[arg(
        value_name = "OPTION",
        allow_hyphen_values = true,
        trailing_var_arg = true
    )]
    words: Vec<String>,
}

impl Bench {
    pub(super) fn run(self) -> Result<u8> {
        let sink = &mut std::io::stdout();
        match self {
            Self::Node(Node { place, words }) => {
                scenarios::measure(&command("node", &words), place, sink)
            }
            // On a control plane of this machine.
            Self::Stream(Stream { words }) => cluster::measure(&command("stream", &words), sink),
            Self::Peers(Peers { words }) => {
                cluster::measure_with_nodes(&command("peers", &words), sink)
            }
            Self::Traces(Traces { words }) => cluster::measure(&command("traces", &words), sink),
        }
    }
}

/// The arguments of `portolan-scenarios`.
fn command<'a>(what: &'a str, words: &'a [String]) -> Vec<&'a str> {
    let words = words.iter().map(String::as_str);
    ["bench", what].into_iter().chain(words).collect()
}
