//! Opens connections to controllers.
//!
//! Touches: the network.

use std::fmt;

use futures::future::BoxFuture;
use hyper::{Request, Response};
use thiserror::Error;
use tonic::body::Body;
use tower::ServiceExt;
use tower::util::BoxService;

use super::{Access, AccessError};

/// The error of a request.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct RequestError(Box<dyn std::error::Error + Send + Sync>);

impl RequestError {
    /// Of any cause.
    pub fn new(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self(cause.into())
    }
}

/// A connection to a controller, for one stream.
pub type Connection = BoxService<Request<Body>, Response<Body>, RequestError>;

/// Opens connections to controllers.
pub trait Dialer: fmt::Debug + Send + Sync {
    /// Opens a connection and authenticates the controller.
    ///
    /// # Errors
    /// [`AccessError`], with the next thing to check.
    fn dial<'a>(&'a self, controller: &'a Access)
    -> BoxFuture<'a, Result<Connection, AccessError>>;
}

/// Opens connections over the network.
#[derive(Debug, Clone, Copy, Default)]
pub struct NetworkDialer;

impl Dialer for NetworkDialer {
    fn dial<'a>(
        &'a self,
        controller: &'a Access,
    ) -> BoxFuture<'a, Result<Connection, AccessError>> {
        Box::pin(async move {
            let channel = controller.connect().await?;
            let service = ServiceExt::<Request<Body>>::map_err(channel, RequestError::new);
            Ok(BoxService::new(service))
        })
    }
}
