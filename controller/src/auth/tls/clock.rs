//! The local clock, compared with the `Date` of the API server. A certificate has the time of the controller that
//! issues it, and all controllers show it, so a controller whose clock is wrong issues none.
//!
//! Accesses: the clock, the API server.

use std::time::{Duration, SystemTime};

use http::header::DATE;
use http::{HeaderValue, Request};
use jiff::fmt::rfc2822::DateTimeParser;
use kube::Client;
use kube::client::Body;
use thiserror::Error;

/// Maximum difference between the clocks of this controller and of the API server at which certificates are issued.
const MAX_DIFFERENCE: Duration = Duration::from_secs(60);

/// Why no certificate is issued.
#[derive(Debug, Error)]
pub(super) enum ClockError {
    /// The clocks differ.
    #[error(
        "the clock of this controller is {seconds} s {direction} that of the API server, so no certificate is issued, \
         because all controllers would show it; check the time synchronisation of both machines"
    )]
    Differs {
        /// The difference.
        seconds: u64,
        /// Which of them is ahead.
        direction: &'static str,
    },
    /// The API server did not return its time.
    #[error("compare the local clock with that of the API server: {0}")]
    Call(#[from] kube::Error),
}

/// The local clock.
pub(super) struct Clock {
    client: Client,
    wall: fn() -> SystemTime,
}

impl Clock {
    pub(super) fn new(client: Client, wall: fn() -> SystemTime) -> Self {
        Self { client, wall }
    }

    /// Seconds since 1970.
    pub(super) fn seconds(&self) -> u64 {
        let now = (self.wall)().duration_since(SystemTime::UNIX_EPOCH);
        now.unwrap_or_default().as_secs()
    }

    /// Compares it with the clock of the API server. Every authenticated client may read `/version`, and a refusal has
    /// a date, too. A proxy may remove the date; then there is nothing to compare with.
    pub(super) async fn compare(&self) -> Result<(), ClockError> {
        let request = Request::get("/version").body(Body::empty());
        let answer = self
            .client
            .send(request.map_err(kube::Error::HttpError)?)
            .await?;
        let date = answer.headers().get(DATE).map(HeaderValue::as_bytes);
        match date.and_then(server_time) {
            Some(server) => compare((self.wall)(), server),
            None => Ok(()),
        }
    }
}

/// The time in a `Date` header.
fn server_time(date: &[u8]) -> Option<SystemTime> {
    let time = DateTimeParser::new().parse_timestamp(date).ok()?;
    Some(time.into())
}

fn compare(own: SystemTime, server: SystemTime) -> Result<(), ClockError> {
    let (difference, direction) = match own.duration_since(server) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    };
    if difference <= MAX_DIFFERENCE {
        return Ok(());
    }
    let seconds = difference.as_secs();
    Err(ClockError::Differs { seconds, direction })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_of_more_than_a_minute_is_reported_with_its_direction() {
        // The example of RFC 9110, 5.6.7.
        let server = server_time(b"Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let seconds = server.duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(seconds.as_secs(), 784_111_777);
        let minute = Duration::from_secs(60);
        let more = Duration::from_secs(61);
        assert!(compare(server, server).is_ok());
        assert!(compare(server + minute, server).is_ok());
        assert!(compare(server - minute, server).is_ok());
        let ahead = compare(server + more, server).unwrap_err().to_string();
        assert!(
            ahead.contains("is 61 s ahead of that of the API server"),
            "{ahead}"
        );
        let behind = compare(server - more, server).unwrap_err().to_string();
        assert!(
            behind.contains("is 61 s behind that of the API server"),
            "{behind}"
        );
    }

    #[test]
    fn a_date_that_cannot_be_read_is_none() {
        for date in ["", "now", "Sun, 06 Nov", "1994-11-06T08:49:37Z", "\u{ff}"] {
            assert_eq!(server_time(date.as_bytes()), None, "{date}");
        }
    }
}
