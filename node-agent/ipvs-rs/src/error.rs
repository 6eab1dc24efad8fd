//! Errors of the socket. Each names the request and the next thing to check.

use std::io;

use crate::attribute::EncodeError;
use crate::request::Request;

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const ESRCH: i32 = 3;
const EEXIST: i32 = 17;
const EINVAL: i32 = 22;

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel has no generic netlink family `IPVS`.
    #[error(
        "this kernel has no IPVS (generic netlink has no family IPVS): load the module ip_vs \
         (modprobe ip_vs), or build the kernel with CONFIG_IP_VS"
    )]
    NoIpvs,
    /// The kernel answered a request with an error number.
    #[error("{request}: {}", describe(*.errno, .request))]
    Kernel {
        /// The error number, positive (`EEXIST` is 17).
        errno: i32,
        /// The request.
        request: Box<Request>,
    },
    /// A request could not be encoded as netlink.
    #[error("{request}: {source}")]
    Encode {
        /// The request.
        request: Box<Request>,
        /// The value that is too long.
        source: EncodeError,
    },
    /// [`crate::Socket::execute`] received a request that reads.
    #[error("{request}: a request that reads cannot be executed in a batch")]
    NotAWrite {
        /// The request.
        request: Box<Request>,
    },
    /// The socket failed. The next call opens another one.
    #[error("IPVS socket: {0}")]
    Socket(netlink_blocking::Error),
    /// The kernel changed its tables during each of several attempts to list them.
    #[error(
        "{request}: the list changed while it was read, {attempts} times in a row: check which \
         other program, in this or another network namespace, keeps changing virtual servers"
    )]
    Interrupted {
        /// The request.
        request: Box<Request>,
        /// The number of attempts.
        attempts: u32,
    },
}

impl From<netlink_blocking::Error> for Error {
    fn from(error: netlink_blocking::Error) -> Self {
        Self::Socket(error)
    }
}

impl From<netlink_packet_core::DecodeError> for Error {
    fn from(error: netlink_packet_core::DecodeError) -> Self {
        Self::Socket(error.into())
    }
}

impl Error {
    /// The error number, if the kernel answered with one, or a system call failed with it.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Kernel { errno, .. } => Some(*errno),
            Self::Socket(error) => error.errno(),
            _ => None,
        }
    }

    /// The cause and the next thing to check, for callers that name the request themselves.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Kernel { errno, request } => describe(*errno, request),
            other => other.to_string(),
        }
    }

    /// Whether the socket failed or its answers are unreliable. The request may or may not have been executed.
    #[must_use]
    pub fn is_of_socket(&self) -> bool {
        matches!(self, Self::Socket(_))
    }

    /// Whether the virtual server or real server to add already exists.
    #[must_use]
    pub fn is_exists(&self) -> bool {
        matches!(self, Self::Kernel { errno: EEXIST, .. })
    }

    /// Whether the virtual server or real server to change, remove or read does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::Kernel { errno: ESRCH, .. } => true,
            Self::Kernel {
                errno: ENOENT,
                request,
            } => !sets_scheduler(request),
            _ => false,
        }
    }

    /// Whether the kernel does not have the scheduler (or the persistence engine) of a virtual server.
    #[must_use]
    pub fn is_unknown_scheduler(&self) -> bool {
        matches!(self, Self::Kernel { errno: ENOENT, request } if sets_scheduler(request))
    }

    /// Whether the kernel refuses a value of the request, such as the address of a real server that is no host's.
    #[must_use]
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::Kernel { errno: EINVAL, .. })
    }

    /// Whether the caller lacks the capability.
    #[must_use]
    pub fn is_not_permitted(&self) -> bool {
        matches!(self, Self::Kernel { errno: EPERM, .. })
    }

    /// Whether the kernel has no IPVS.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::NoIpvs)
    }
}

fn sets_scheduler(request: &Request) -> bool {
    matches!(request, Request::NewService(_) | Request::SetService(_))
}

fn describe(errno: i32, request: &Request) -> String {
    let text = io::Error::from_raw_os_error(errno);
    let hint = match (errno, request) {
        (EPERM, _) => {
            "IPVS needs CAP_NET_ADMIN in the initial user namespace (run as root or add the \
             capability; root of a user namespace is not enough)"
        }
        (ENOENT, Request::NewService(service) | Request::SetService(service)) => {
            return format!(
                "the kernel has no scheduler {0:?}{1}: check the name, or load it (modprobe \
                 ip_vs_{0})",
                service.scheduler,
                match &service.persistence_engine {
                    Some(engine) => format!(" or no persistence engine {engine:?}"),
                    None => String::new(),
                },
            );
        }
        (ENOENT, _) => "the real server does not exist",
        (ESRCH, _) => "the virtual server does not exist",
        (EEXIST, Request::NewService(_)) => "the virtual server already exists",
        (EEXIST, _) => "the virtual server already has this real server",
        (EINVAL, Request::NewDestination(..) | Request::SetDestination(..)) => {
            "the kernel accepts only addresses of a single host (see `ip route get`), no broadcast, \
             multicast or link-local addresses: check the endpoint"
        }
        (EINVAL, Request::SetTimeouts(_)) => {
            "a timeout is longer than the kernel supports (about 24 days with a clock of 1000 ticks \
             per second)"
        }
        _ => return text.to_string(),
    };
    format!("{hint}: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::destination::{Destination, DestinationKey};
    use crate::key::{Protocol, ServiceKey};
    use crate::service::Service;

    fn key() -> ServiceKey {
        ServiceKey::address(Protocol::Tcp, "10.96.0.1".parse().unwrap(), 443)
    }

    fn kernel(errno: i32, request: Request) -> Error {
        Error::Kernel {
            errno,
            request: Box::new(request),
        }
    }

    #[test]
    fn an_error_names_the_object_and_the_next_thing_to_check() {
        let server = Destination::masquerade("10.0.0.1".parse().unwrap(), 6443, 1);
        let gone: DestinationKey = server.key();
        let cases = [
            (
                kernel(EEXIST, Request::NewDestination(key(), server)),
                "add real server 10.0.0.1:6443 weight 1 to tcp 10.96.0.1:443: the virtual server \
                 already has this real server: File exists (os error 17)",
            ),
            (
                kernel(ENOENT, Request::DelDestination(key(), gone)),
                "remove real server 10.0.0.1:6443 of tcp 10.96.0.1:443: the real server \
                 does not exist: No such file or directory (os error 2)",
            ),
            (
                kernel(ENOENT, Request::NewService(Service::new(key(), "fair"))),
                "add virtual server tcp 10.96.0.1:443 fair: the kernel has no scheduler \"fair\": \
                 check the name, or load it (modprobe ip_vs_fair)",
            ),
            (
                kernel(EPERM, Request::GetInfo),
                "get IPVS information: IPVS needs CAP_NET_ADMIN in the initial user namespace (run \
                 as root or add the capability; root of a user namespace is not enough): Operation \
                 not permitted (os error 1)",
            ),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn a_missing_scheduler_is_not_a_missing_service() {
        let unknown = kernel(ENOENT, Request::SetService(Service::new(key(), "fair")));
        assert!(unknown.is_unknown_scheduler() && !unknown.is_not_found());
        let missing = kernel(ESRCH, Request::SetService(Service::new(key(), "rr")));
        assert!(missing.is_not_found() && !missing.is_unknown_scheduler());
    }

    #[test]
    fn a_refused_value_is_not_a_refused_caller() {
        let server = Destination::masquerade("10.0.0.255".parse().unwrap(), 80, 1);
        let refused = |errno| kernel(errno, Request::NewDestination(key(), server.clone()));
        assert!(refused(EINVAL).is_invalid() && !refused(EINVAL).is_not_permitted());
        assert!(!refused(EPERM).is_invalid() && refused(EPERM).is_not_permitted());
    }

    #[test]
    fn an_error_without_ipvs_names_the_module() {
        assert!(Error::NoIpvs.to_string().contains("modprobe ip_vs"));
        assert!(Error::NoIpvs.is_unsupported());
    }
}
