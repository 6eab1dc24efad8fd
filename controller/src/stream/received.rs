//! What agents send, with every part bounded. Agents are not trusted to keep their messages small: the parts are kept as
//! long as a stream, and appear in logs and statuses.

use std::collections::BTreeMap;
use std::sync::Arc;

use portolan_plan::{BUCKETS, BucketHashes, PlanHash};
use portolan_planner::model::Kind;
use portolan_proto::{OLDEST_WIRE_VERSION, wire};
use tonic::Status;

use crate::agent_registry::MAX_LISTED_ITEMS;
use crate::store::Held;

/// Maximum length of the name of a node, in bytes, as in Kubernetes.
const MAX_NODE_BYTES: usize = portolan_crds::limit::NAME_CHARS;
/// Maximum length of the version of an agent, in characters.
const MAX_VERSION_CHARS: usize = 64;
/// Maximum length of a text of an agent, in characters: as long as a status shows.
const MAX_TEXT_CHARS: usize = portolan_crds::limit::MESSAGE_CHARS;

/// Maximum number of schedulers of a node, and of the characters of each: as many as a status shows.
const MAX_SCHEDULERS: usize = portolan_crds::limit::SCHEDULERS;
const MAX_SCHEDULER_CHARS: usize = portolan_crds::limit::SCHEDULER_CHARS;

/// How far the controller had read a kind that made an agent's plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reached {
    /// The newest version.
    pub(super) newest: u64,
    /// The sum over all objects.
    pub(super) sum: u64,
}

/// The first message of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hello {
    /// The name of its node.
    pub(super) node: Arc<str>,
    /// The version of the agent program.
    pub(super) agent_version: Arc<str>,
    /// The watermark of its plan: only kinds that this controller knows, each once.
    pub(super) watermark: BTreeMap<Kind, Reached>,
    /// The schedulers that the kernel of the node has loaded.
    pub(super) schedulers: Vec<String>,
}

impl Hello {
    /// Reads a Hello, and what the agent reports about its plan. The latter is large and needed only once.
    ///
    /// # Errors
    /// The status for the agent. It names the field, and contains nothing of what the agent sent.
    pub(super) fn read(hello: &wire::Hello) -> Result<(Self, Held), Status> {
        if hello.wire_version < OLDEST_WIRE_VERSION {
            return Err(Status::failed_precondition(format!(
                "the agent uses wire version {}, but this controller needs at least {OLDEST_WIRE_VERSION}: upgrade the \
                 agent",
                hello.wire_version
            )));
        }
        let wrong = |problem: String| Status::invalid_argument(format!("hello.{problem}"));
        let is_known =
            |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'.';
        let length = hello.node.len();
        if length == 0 || length > MAX_NODE_BYTES || !hello.node.bytes().all(is_known) {
            return Err(wrong(format!(
                "node: {length} bytes are not the name of a Node; see --node of the agent"
            )));
        }
        let held = held(hello).map_err(wrong)?;
        let read = Self {
            node: hello.node.as_str().into(),
            agent_version: text(&hello.agent_version, MAX_VERSION_CHARS).into(),
            watermark: watermark(hello),
            schedulers: schedulers(&hello.schedulers),
        };
        Ok((read, held))
    }
}

/// The plan that an agent reports to hold.
fn held(hello: &wire::Hello) -> Result<Held, String> {
    let Some(hash) = PlanHash::from_bytes(&hello.plan_hash) else {
        // With a watermark it had a plan, and must not get an older one.
        let is_new = hello.plan_hash.is_empty() && hello.watermark.is_none();
        return Ok(if is_new { Held::Nothing } else { Held::Unknown });
    };
    if hello.bucket_hashes.is_empty() {
        return Ok(Held::Reported(hash, None));
    }
    let length = hello.bucket_hashes.len();
    let buckets = BucketHashes::from_bytes(&hello.bucket_hashes)
        .ok_or_else(|| format!("bucket_hashes: {length} bytes are not {BUCKETS} hashes"))?;
    Ok(Held::Reported(hash, Some(buckets)))
}

fn watermark(hello: &wire::Hello) -> BTreeMap<Kind, Reached> {
    let marks = hello.watermark.iter().flat_map(|marks| &marks.kinds);
    let mut watermark = BTreeMap::new();
    for mark in marks {
        if let Some(kind) = Kind::ALL.into_iter().find(|kind| kind.name() == mark.kind) {
            watermark.entry(kind).or_insert(Reached {
                newest: mark.newest,
                sum: mark.sum,
            });
        }
    }
    watermark
}

fn schedulers(names: &[String]) -> Vec<String> {
    let first = names.iter().take(MAX_SCHEDULERS);
    first.map(|name| text(name, MAX_SCHEDULER_CHARS)).collect()
}

/// The start of a text, on one line.
fn text(text: &str, most: usize) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(most).collect()
}

/// The first texts of a list, each shortened.
pub(super) fn texts(texts: &[String]) -> Vec<String> {
    let first = texts.iter().take(MAX_LISTED_ITEMS);
    first.map(|whole| text(whole, MAX_TEXT_CHARS)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;

    fn hello() -> wire::Hello {
        wire::Hello {
            node: "node-a".into(),
            wire_version: OLDEST_WIRE_VERSION,
            agent_version: "0.1.0".into(),
            ..wire::Hello::default()
        }
    }

    fn mark(kind: &str, newest: u64) -> wire::KindWatermark {
        wire::KindWatermark {
            kind: kind.into(),
            newest,
            sum: 1,
        }
    }

    /// The number of bytes that are kept of a Hello.
    fn kept(hello: &Hello) -> usize {
        let watermark = hello.watermark.len() * size_of::<(Kind, Reached)>();
        let schedulers: usize = hello.schedulers.iter().map(String::len).sum();
        hello.node.len() + hello.agent_version.len() + watermark + schedulers
    }

    #[test]
    fn a_hello_is_refused_with_the_name_of_the_field() {
        let long = "n".repeat(MAX_NODE_BYTES + 1);
        for node in ["", "Node-A", "a/b", "a b", "ä", "a\n", long.as_str()] {
            let node = node.to_owned();
            let refused = Hello::read(&wire::Hello { node, ..hello() });
            let status = refused.unwrap_err();
            assert!(status.message().starts_with("hello.node: "), "{status}");
            assert!(status.message().len() < 100, "{status}");
        }
        let longest = "n".repeat(MAX_NODE_BYTES);
        let read = Hello::read(&wire::Hello {
            node: longest.clone(),
            ..hello()
        });
        assert_eq!(*read.unwrap().0.node, longest);
    }

    #[test]
    fn known_kinds_of_a_watermark_count_once() {
        let kinds = [
            vec![mark("Service", 7)],
            vec![mark("Service", 9); 2000],
            vec![mark("Pod", 7), mark("", 1), mark("Node", u64::MAX)],
        ];
        let watermark = Some(wire::Watermark {
            kinds: kinds.concat(),
        });
        let (read, _) = Hello::read(&wire::Hello {
            watermark,
            ..hello()
        })
        .unwrap();
        let reached = |newest| Reached { newest, sum: 1 };
        let expected = [(Kind::Service, reached(7)), (Kind::Node, reached(u64::MAX))];
        assert_eq!(read.watermark, BTreeMap::from(expected));
    }

    #[test]
    fn texts_are_bounded_in_number_and_length() {
        let many = vec![format!("a\n\u{1b}{}", "é".repeat(10_000)); 100];
        let kept = texts(&many);
        assert_eq!(kept.len(), MAX_LISTED_ITEMS);
        assert_eq!(kept[0], format!("a  {}", "é".repeat(MAX_TEXT_CHARS - 3)));
        let kept = schedulers(&vec![format!("rr{}", "x".repeat(1000)); 1000]);
        assert_eq!(kept, vec![format!("rr{}", "x".repeat(13)); MAX_SCHEDULERS]);
    }

    proptest! {
        /// Law `hello`: for any message of an agent there is an error, or a small value.
        #[test]
        fn little_is_kept_of_any_hello(
            node in "[a-z0-9.-]{0,300}|\\PC{0,300}",
            agent_version in "\\PC{0,2000}",
            wire_version in 0_u32..3,
            plan_hash in prop::collection::vec(any::<u8>(), 0..20),
            bucket_hashes in prop::collection::vec(any::<u8>(), 0..40),
            kinds in prop::collection::vec(("(Node|Service|EndpointSlice|Pod|)", any::<u64>()), 0..200),
        ) {
            let kinds = kinds.iter().map(|(kind, newest)| mark(kind, *newest)).collect();
            let hello = wire::Hello {
                node,
                wire_version,
                agent_version,
                plan_hash,
                bucket_hashes,
                watermark: Some(wire::Watermark { kinds }),
                schedulers: vec!["x".repeat(100); 100],
                younger_than_milliseconds: 0,
            };
            match Hello::read(&hello) {
                Ok((read, _)) => prop_assert!(kept(&read) < 2048, "{read:?}"),
                Err(status) => prop_assert!(status.message().len() < 200, "{status}"),
            }
        }

        /// Law `hello`: no bytes of a message lead to a panic.
        #[test]
        fn bytes_are_an_error_or_a_hello(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(hello) = wire::Hello::decode(bytes.as_slice())
                && let Ok((read, _)) = Hello::read(&hello)
            {
                prop_assert!(kept(&read) < 2048, "{read:?}");
            }
        }
    }
}
