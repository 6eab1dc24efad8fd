//! TokenReviews and SubjectAccessReviews. Touches: the API server.

use std::fmt;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
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
    fn may_get<'a>(
        &'a self,
        user: &'a str,
        groups: &'a [String],
        path: &'a str,
    ) -> BoxFuture<'a, Reviewed<bool>>;
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

    fn may_get<'a>(
        &'a self,
        user: &'a str,
        groups: &'a [String],
        path: &'a str,
    ) -> BoxFuture<'a, Reviewed<bool>> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(user.to_owned()),
                groups: Some(groups.to_vec()),
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some("get".to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
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
