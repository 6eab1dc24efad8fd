//! Everything that is there, read once: for whoever asks a question and goes away again.

use kube::Client;
use kube::core::ObjectList;
use kube::core::Request;
use kube::core::params::ListParams;
use tokio::time::timeout;

use super::follow::{ANSWER, PAGE};
use super::object::{self, Text};
use super::problem::Problem;
use super::{Found, Kind, ObjectId};

/// All objects of all kinds.
#[derive(Debug, Default)]
pub struct Everything {
    /// Those that can be read.
    pub found: Vec<Found>,
    /// Those that are there and cannot be read, with the field, what is wrong, and what to check.
    pub unreadable: Vec<(ObjectId, String)>,
}

/// Lists every kind by consistent reads. What a server does not know is not there: its users may have
/// no ServiceCIDRs, and need not have our own kinds.
///
/// # Errors
/// Which kind could not be read, why, and what to check.
pub async fn everything(client: &Client) -> Result<Everything, String> {
    let mut all = Everything::default();
    for kind in Kind::ALL {
        let mut next = None;
        loop {
            let page = match page(client, kind, next.take()).await {
                Err(problem) if problem.status() == Some(404) => break,
                page => page
                    .map_err(|problem| format!("list {}s: {}", kind.name(), problem.words(kind)))?,
            };
            for text in &page.items {
                match object::read(kind, text) {
                    Some(Ok(found)) => all.found.push(found),
                    Some(Err(unreadable)) => all.unreadable.push(unreadable),
                    None => {}
                }
            }
            next = page.metadata.continue_.filter(|token| !token.is_empty());
            if next.is_none() {
                break;
            }
        }
    }
    Ok(all)
}

/// One page of a consistent list, after the one whose token this is.
pub(super) async fn page(
    client: &Client,
    kind: Kind,
    next: Option<String>,
) -> Result<ObjectList<Text>, Problem> {
    let params = ListParams {
        limit: Some(PAGE),
        continue_token: next,
        field_selector: kind.field_selector(),
        label_selector: kind.label_selector(),
        ..ListParams::default()
    };
    let request = Request::new(kind.path()).list(&params);
    let request = request.map_err(kube::Error::BuildRequest)?;
    let page = timeout(ANSWER, client.request(request)).await;
    Ok(page.map_err(|_| Problem::Silent(ANSWER))??)
}
