//! Authorization of page requests. The API server authenticates the user (`TokenReview`) and must allow the user to
//! get the page's path (`SubjectAccessReview`, `nonResourceURLs` in RBAC).

use crate::auth::{Reviewer, Token, user};

/// A denied request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// HTTP status of the response: 401, 403, 429 or 503.
    pub status: u16,
    /// The reason and the next check.
    pub message: String,
}

impl Denied {
    pub(super) fn new(status: u16, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message }
    }

    /// Whether the denial does not depend on the user: a retry may help.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self.status, 429 | 503)
    }
}

/// Checks whether the user of a token may get a path.
///
/// # Errors
/// [`Denied`] with 401 if the API server does not accept the token, 403 if no rule allows the path, and 503 if the API
/// server is unavailable.
pub(super) async fn authorize(
    reviewer: &dyn Reviewer,
    token: &Token,
    path: &str,
) -> Result<(), Denied> {
    let away = |why: String| {
        let words = format!("the API server cannot review the request: {why}");
        Denied::new(503, words)
    };
    let status = reviewer.review(token, None).await.map_err(away)?;
    let user = user(&status).map_err(|why| {
        let words = format!("the API server does not accept the token ({why})");
        Denied::new(401, words)
    })?;
    if reviewer.may_get(user, path).await.map_err(away)? {
        return Ok(());
    }
    let name = user.username.as_deref().unwrap_or_default();
    let words =
        format!("{name} may not get {path}; a ClusterRole with nonResourceURLs can allow it");
    Err(Denied::new(403, words))
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::BoxFuture;
    use k8s_openapi::api::authentication::v1::{TokenReviewStatus, UserInfo};
    use serde_json::json;

    use super::*;
    use crate::auth::Reviewed;

    /// Accepts the tokens of two users, and allows one page to one of them. Counts its answers.
    #[derive(Debug, Default)]
    pub(in crate::admin) struct Rules {
        pub(in crate::admin) reviews: AtomicUsize,
    }

    impl Reviewer for Rules {
        fn review<'a>(
            &'a self,
            token: &'a Token,
            audience: Option<&'a str>,
        ) -> BoxFuture<'a, Reviewed<TokenReviewStatus>> {
            assert_eq!(audience, None);
            self.reviews.fetch_add(1, Ordering::Relaxed);
            let known =
                |name: &str| Token::of_header(&format!("Bearer {name}")).as_ref() == Some(token);
            let answer = if known("away") {
                Err("connection refused".into())
            } else if let Some(name) = ["ada", "bob"].into_iter().find(|name| known(name)) {
                let user = json!({
                    "username": name, "groups": ["people"], "uid": "7", "extra": {"scope": ["all"]},
                });
                Ok(json!({"authenticated": true, "user": user}))
            } else {
                Ok(json!({"error": "invalid bearer token"}))
            };
            let answer = answer.map(|status| serde_json::from_value(status).unwrap());
            Box::pin(std::future::ready(answer))
        }

        fn may_get<'a>(
            &'a self,
            user: &'a UserInfo,
            path: &'a str,
        ) -> BoxFuture<'a, Reviewed<bool>> {
            let expected = json!({
                "username": "ada", "groups": ["people"], "uid": "7", "extra": {"scope": ["all"]},
            });
            let is_ada = serde_json::to_value(user).unwrap() == expected;
            let may = is_ada && path == "/convergence";
            Box::pin(std::future::ready(Ok(may)))
        }
    }

    #[tokio::test]
    async fn a_page_requires_a_valid_token_and_permission() {
        let ask = async |name, path| {
            let token = Token::of_header(&format!("Bearer {name}")).unwrap();
            let answer = authorize(&Rules::default(), &token, path).await;
            answer.map_err(|denied| (denied.status, denied.message))
        };
        assert_eq!(ask("ada", "/convergence").await, Ok(()));
        let cases = [
            ("ada", "/debug/other", 403, "ada may not get /debug/other"),
            ("bob", "/convergence", 403, "nonResourceURLs"),
            ("eve", "/convergence", 401, "invalid bearer token"),
            ("away", "/convergence", 503, "connection refused"),
        ];
        for (name, path, status, words) in cases {
            let (found, message) = ask(name, path).await.unwrap_err();
            assert_eq!(found, status, "{message}");
            assert!(message.contains(words), "{message}");
        }
    }
}
