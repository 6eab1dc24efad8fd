//! TokenReviews and SubjectAccessReviews. Touches: the API server.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{
    TokenReview, TokenReviewSpec, TokenReviewStatus, UserInfo,
};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

use super::token::Token;

/// Timeout of one token review by the API server.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(10);

/// The API server's answer, or why there is none.
pub type Reviewed<T> = Result<T, String>;

/// Reviews tokens and permissions.
pub trait Reviewer: fmt::Debug + Send + Sync + 'static {
    /// Reviews the token for this audience; without one: for the API server itself.
    fn review<'a>(
        &'a self,
        token: &'a Token,
        audience: Option<&'a str>,
    ) -> BoxFuture<'a, Reviewed<TokenReviewStatus>>;

    /// Whether a user may get this non-resource path.
    fn may_get<'a>(&'a self, user: &'a UserInfo, path: &'a str) -> BoxFuture<'a, Reviewed<bool>>;
}

/// The reviewer that uses the API server.
#[derive(Clone)]
pub struct ApiReviewer {
    tokens: Api<TokenReview>,
    access: Api<SubjectAccessReview>,
}

impl ApiReviewer {
    /// A reviewer with this client.
    pub fn new(client: Client) -> Self {
        Self {
            tokens: Api::all(client.clone()),
            access: Api::all(client),
        }
    }
}

impl fmt::Debug for ApiReviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiReviewer").finish_non_exhaustive()
    }
}

impl Reviewer for ApiReviewer {
    fn review<'a>(
        &'a self,
        token: &'a Token,
        audience: Option<&'a str>,
    ) -> BoxFuture<'a, Reviewed<TokenReviewStatus>> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.as_str().to_owned(),
                audiences: audience.map(|audience| vec![audience.to_owned()]),
            },
            ..TokenReview::default()
        };
        Box::pin(async move {
            let params = PostParams::default();
            let review = answer(self.tokens.create(&params, &review), "tokenreviews").await?;
            review
                .status
                .ok_or_else(|| "the answer has no status".into())
        })
    }

    fn may_get<'a>(&'a self, user: &'a UserInfo, path: &'a str) -> BoxFuture<'a, Reviewed<bool>> {
        // All that authorizers may look at: webhooks use `uid` and `extra`, which has the scopes of a token.
        let UserInfo {
            username,
            groups,
            uid,
            extra,
        } = user.clone();
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: username,
                groups,
                uid,
                extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some("get".to_owned()),
                }),
                resource_attributes: None,
            },
            ..SubjectAccessReview::default()
        };
        Box::pin(async move {
            let params = PostParams::default();
            let create = self.access.create(&params, &review);
            let review = answer(create, "subjectaccessreviews").await?;
            Ok(review.status.is_some_and(|status| status.allowed))
        })
    }
}

async fn answer<T>(asked: impl Future<Output = kube::Result<T>>, what: &str) -> Reviewed<T> {
    match tokio::time::timeout(REVIEW_TIMEOUT, asked).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) if status.code == 403 => Err(format!(
            "{}; check that the controller may create {what}",
            status.message
        )),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {} s", REVIEW_TIMEOUT.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Full;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    #[tokio::test]
    async fn a_review_of_access_has_all_that_is_known_of_the_user() {
        let (sent, mut received) = tokio::sync::mpsc::channel(1);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let sent = sent.clone();
            async move {
                let body = request.into_body().collect_bytes().await.unwrap();
                sent.send(body).await.unwrap();
                let answer = json!({
                    "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                    "metadata": {}, "spec": {}, "status": {"allowed": true},
                });
                let body = Full::new(Bytes::from(answer.to_string()));
                Ok::<_, std::io::Error>(http::Response::new(body))
            }
        });
        let reviewer = ApiReviewer::new(Client::new(service, "default"));
        let user = json!({
            "username": "system:serviceaccount:shop:deployer", "uid": "0c1f", "groups": ["a", "b"],
            "extra": {"authentication.kubernetes.io/pod-name": ["deployer-7x2kp"]},
        });
        let info: UserInfo = serde_json::from_value(user.clone()).unwrap();
        let may = reviewer.may_get(&info, "/convergence").await;
        assert_eq!(may, Ok(true));
        let sent: Value = serde_json::from_slice(&received.recv().await.unwrap()).unwrap();
        let spec = &sent["spec"];
        assert_eq!(spec["user"], user["username"]);
        for field in ["uid", "groups", "extra"] {
            assert_eq!(spec[field], user[field], "{field}");
        }
        let expected = json!({"path": "/convergence", "verb": "get"});
        assert_eq!(spec["nonResourceAttributes"], expected);
    }
}
