//! All objects, listed once: for commands that do not watch.

use kube::Client;
use kube::core::ObjectList;
use kube::core::Request;
use kube::core::params::ListParams;
use portolan_planner::model::{Kind, Object, ObjectId};
use tokio::time::timeout;

use super::Collection as _;
use super::follow::{PAGE_SIZE, REQUEST_TIMEOUT};
use super::object::{Text, read};
use super::problem::Problem;

/// All objects of all kinds.
#[derive(Debug, Default)]
pub struct Everything {
    /// Objects that can be read.
    pub objects: Vec<Object>,
    /// Objects that cannot be read: the field, the problem and the next check.
    pub unreadable: Vec<(ObjectId, String)>,
}

/// Lists every kind by consistent reads. A kind that the API server does not serve has no objects: ServiceCIDR is
/// optional, and the CRDs may not be installed.
///
/// # Errors
/// The kind that could not be listed, the cause and the next check.
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
                let Some(received) = read(kind, text) else {
                    continue;
                };
                match received.object {
                    Ok(object) => all.objects.push(object),
                    Err(problem) => all.unreadable.push((received.identity.id, problem)),
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
        limit: Some(PAGE_SIZE),
        continue_token: next,
        field_selector: kind.field_selector(),
        label_selector: kind.label_selector(),
        ..ListParams::default()
    };
    let request = Request::new(kind.path()).list(&params);
    let request = request.map_err(kube::Error::BuildRequest)?;
    let page = timeout(REQUEST_TIMEOUT, client.request(request)).await;
    Ok(page.map_err(|_| Problem::Silent(REQUEST_TIMEOUT))??)
}
