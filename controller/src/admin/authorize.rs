//! Authorization of page requests. The API server authenticates the user (`TokenReview`) and must allow the user to
//! get the page's path (`nonResourceURLs` in RBAC).

use crate::auth::{Reviewer, Token, user};

/// A denied request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// HTTP status of the response: 401, 403 or 503.
    pub status: u16,
    /// The reason and the next check.
    pub message: String,
}

/// Checks whether the user of this `authorization` header may get a path.
///
/// # Errors
/// [`Denied`] with 401 if there is no token or the API server does not accept it, 403 if no rule allows the path,
/// and 503 if the API server is unavailable.
pub async fn authorize(
    reviewer: Option<&dyn Reviewer>,
    header: Option<&str>,
    path: &str,
) -> Result<(), Denied> {
    let denied = |status, message: String| Denied { status, message };
    let Some(reviewer) = reviewer else {
        let words = "this controller has no API server that could review the token".into();
        return Err(denied(401, words));
    };
    let Some(token) = header.and_then(Token::of_header) else {
        let words =
            "the request has no token (authorization: Bearer); create one with `kubectl create token`".into();
        return Err(denied(401, words));
    };
    let away = |why| {
        denied(
            503,
            format!("the API server cannot review the request: {why}"),
        )
    };
    let status = reviewer.review(&token, None).await.map_err(away)?;
    let (name, groups) = user(&status).map_err(|why| {
        denied(
            401,
            format!("the API server does not accept the token ({why})"),
        )
    })?;
    if reviewer.may_get(&name, &groups, path).await.map_err(away)? {
        return Ok(());
    }
    let words =
        format!("{name} may not get {path}; a ClusterRole with nonResourceURLs can allow it");
    Err(denied(403, words))
}

#[cfg(test)]
mod tests {
    use futures::future::BoxFuture;
    use k8s_openapi::api::authentication::v1::TokenReviewStatus;
    use serde_json::json;

    use super::*;
    use crate::auth::Reviewed;

    /// Accepts the tokens of two users, and allows one page to one of them.
    #[derive(Debug)]
    struct Rules;

    impl Reviewer for Rules {
        fn review<'a>(
            &'a self,
            token: &'a Token,
            audience: Option<&'a str>,
        ) -> BoxFuture<'a, Reviewed<TokenReviewStatus>> {
            assert_eq!(audience, None);
            let known =
                |name: &str| Token::of_header(&format!("Bearer {name}")).as_ref() == Some(token);
            let answer = if known("away") {
                Err("connection refused".into())
            } else if let Some(name) = ["ada", "bob"].into_iter().find(|name| known(name)) {
                let user = json!({"username": name, "groups": ["people"]});
                Ok(json!({"authenticated": true, "user": user}))
            } else {
                Ok(json!({"error": "invalid bearer token"}))
            };
            let answer = answer.map(|status| serde_json::from_value(status).unwrap());
            Box::pin(std::future::ready(answer))
        }

        fn may_get<'a>(
            &'a self,
            user: &'a str,
            groups: &'a [String],
            path: &'a str,
        ) -> BoxFuture<'a, Reviewed<bool>> {
            let may = user == "ada" && groups == ["people"] && path == "/debug/plans";
            Box::pin(std::future::ready(Ok(may)))
        }
    }

    #[tokio::test]
    async fn a_page_requires_a_valid_token_and_permission() {
        let ask = async |header, path| {
            let answer = authorize(Some(&Rules), header, path).await;
            answer.map_err(|denied| (denied.status, denied.message))
        };
        assert_eq!(ask(Some("Bearer ada"), "/debug/plans").await, Ok(()));
        let cases = [
            (
                Some("Bearer ada"),
                "/debug/other",
                403,
                "ada may not get /debug/other",
            ),
            (Some("Bearer bob"), "/debug/plans", 403, "nonResourceURLs"),
            (
                Some("Bearer eve"),
                "/debug/plans",
                401,
                "invalid bearer token",
            ),
            (Some("Basic ada"), "/debug/plans", 401, "no token"),
            (None, "/debug/plans", 401, "kubectl create token"),
            (
                Some("Bearer away"),
                "/debug/plans",
                503,
                "connection refused",
            ),
        ];
        for (header, path, status, words) in cases {
            let (found, message) = ask(header, path).await.unwrap_err();
            assert_eq!(found, status, "{message}");
            assert!(message.contains(words), "{message}");
        }
        let unreviewed = authorize(None, Some("Bearer ada"), "/").await.unwrap_err();
        assert_eq!(unreviewed.status, 401);
    }
}
