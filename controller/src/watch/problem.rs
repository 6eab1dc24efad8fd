//! Errors of lists and watches, with the next thing to check.

use std::error::Error as _;
use std::time::Duration;

use portolan_planner::model::Kind;

use super::Collection as _;

/// Why a list or a watch failed.
#[derive(Debug)]
pub(super) enum Problem {
    /// The server or the connection to it failed.
    Api(kube::Error),
    /// Nothing was received for this long.
    Silent(Duration),
    /// The stream ended before all objects were received.
    CutShort,
    /// A list without the resource version that a watch needs.
    NoVersion,
}

impl From<kube::Error> for Problem {
    fn from(error: kube::Error) -> Self {
        Self::Api(error)
    }
}

impl Problem {
    /// The HTTP status, if the server answered with one.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Api(kube::Error::Api(status)) => Some(status.code),
            _ => None,
        }
    }

    /// The message for logs: what happened, and the next check.
    pub(super) fn words(&self, kind: Kind) -> String {
        let resource = kind.resource();
        match self {
            Self::Silent(time) => format!(
                "nothing received for {} s; check the load of the API server, and firewalls on the way",
                time.as_secs()
            ),
            Self::CutShort => "the list ended before it was complete".into(),
            Self::NoVersion => "the server's list has no resourceVersion".into(),
            Self::Api(error) => {
                let text = chain(error);
                match self.status() {
                    Some(401) => {
                        format!(
                            "{text}; check that the token or certificate of --kubeconfig is still valid"
                        )
                    }
                    Some(403) => format!(
                        "{text}; a controller needs the verbs list and watch on {resource}, a user of kubectl needs \
                         list"
                    ),
                    Some(404) => format!(
                        "{text}; the server does not know {resource}: check that the CRDs of \
                         charts/portolan/charts/crds/crds are installed"
                    ),
                    Some(_) => text,
                    None => {
                        format!("{text}; check that the API server is up and its address is right")
                    }
                }
            }
        }
    }

    /// Whether the server does not stream existing objects: it answers 422 if streaming is disabled, and 500 if its
    /// store is too old (etcd before 3.5). Reading pages instead is never wrong, so every status counts that a list
    /// would not get as well.
    pub(super) fn refuses_streams(&self) -> bool {
        self.status()
            .is_some_and(|code| !matches!(code, 401 | 403 | 404 | 410 | 429 | 503))
    }
}

/// An error with those of its sources that add information.
fn chain(error: &kube::Error) -> String {
    let mut text = match error {
        kube::Error::Api(status) => return format!("{} ({})", status.message, status.code),
        other => other.to_string(),
    };
    let mut cause = error.source();
    while let Some(below) = cause {
        let words = below.to_string();
        if !text.contains(&words) {
            text += ": ";
            text += &words;
        }
        cause = below.source();
    }
    text
}
