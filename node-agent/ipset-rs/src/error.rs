//! Errors of the socket. Each names the request and the next thing to check.

use std::io;

use crate::attribute::EncodeError;
use crate::kind::SetNameError;
use crate::request::Request;

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EEXIST: i32 = 17;

/// From here on, the numbers are specific to ipset.
const FIRST_OWN: i32 = 4096;
pub(crate) const WRONG_PROTOCOL: i32 = 4097;
const UNKNOWN_TYPE: i32 = 4098;
const IN_USE: i32 = 4100;
/// The kernel names it after renaming, but a swap also gets it if the second set is missing.
const NO_SECOND: i32 = 4101;
const MISMATCH: i32 = 4102;
const REFERENCED: i32 = 4108;
const HASH_FULL: i32 = 4352;

/// Why a request failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel has no IP sets.
    #[error(
        "this kernel has no IP sets (nfnetlink has no subsystem ipset): load the module ip_set \
         (modprobe ip_set), or build the kernel with CONFIG_IP_SET"
    )]
    NoIpset,
    /// The kernel supports only protocol versions that this crate does not.
    #[error(
        "the kernel's ipset protocol starts at version {min}; this program supports versions 6 and 7"
    )]
    ProtocolTooNew {
        /// The oldest version that it supports.
        min: u8,
    },
    /// The name of a set is invalid.
    #[error(transparent)]
    Name(#[from] SetNameError),
    /// The kernel answered a request with an error number.
    #[error("ipset: {request}: {}", describe(*.errno))]
    Kernel {
        /// The error number, positive: `errno`, or from 4097 on a number specific to ipset.
        errno: i32,
        /// The request; for many entries, a request with only the one that failed.
        request: Box<Request>,
    },
    /// A request could not be encoded as netlink.
    #[error("ipset: {request}: {source}")]
    Encode {
        /// The request.
        request: Box<Request>,
        /// The value that is too long.
        source: EncodeError,
    },
    /// The socket failed. The next call opens another one.
    #[error("ipset socket: {0}")]
    Socket(netlink_blocking::Error),
    /// The kernel changed its sets during each of several attempts to list them.
    #[error(
        "ipset: {request}: the list changed while it was read, {attempts} times in a row: check \
         which other program keeps changing sets"
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
            Self::Kernel { errno, .. } => describe(*errno),
            other => other.to_string(),
        }
    }

    /// Whether the socket failed or its answers are unreliable. The request may or may not have been executed.
    #[must_use]
    pub fn is_of_socket(&self) -> bool {
        matches!(self, Self::Socket(_))
    }

    /// Whether a set of this name already exists.
    #[must_use]
    pub fn is_exists(&self) -> bool {
        matches!(self, Self::Kernel { errno: EEXIST, .. })
    }

    /// Whether no set of this name exists (in a swap: of one of the names).
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(
            self,
            Self::Kernel {
                errno: ENOENT | NO_SECOND,
                ..
            }
        )
    }

    /// Whether the set cannot be destroyed because a rule or another set uses it.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        matches!(
            self,
            Self::Kernel {
                errno: IN_USE | REFERENCED,
                ..
            }
        )
    }

    /// Whether the types or families of the two sets in a swap do not match.
    #[must_use]
    pub fn is_mismatch(&self) -> bool {
        matches!(
            self,
            Self::Kernel {
                errno: MISMATCH,
                ..
            }
        )
    }

    /// Whether the set is at its maximum number of entries.
    #[must_use]
    pub fn is_full(&self) -> bool {
        matches!(
            self,
            Self::Kernel {
                errno: HASH_FULL,
                ..
            }
        )
    }

    /// Whether the caller lacks the capability.
    #[must_use]
    pub fn is_not_permitted(&self) -> bool {
        match self {
            Self::Kernel { errno, .. } => *errno == EPERM,
            _ => false,
        }
    }

    /// Whether the kernel has no IP sets, or does not have this set type.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Self::NoIpset
                | Self::Kernel {
                    errno: UNKNOWN_TYPE,
                    ..
                }
        )
    }
}

fn describe(errno: i32) -> String {
    let meaning = match errno {
        EPERM => "ipset needs CAP_NET_ADMIN (run as root or add the capability)",
        ENOENT => "the set does not exist",
        EEXIST => "a set of this name already exists",
        WRONG_PROTOCOL => "the kernel did not accept the form of the request",
        UNKNOWN_TYPE => {
            "the kernel does not have this set type (load its module, for example modprobe \
             ip_set_hash_ipport)"
        }
        4099 => "the kernel's table of sets is full",
        IN_USE | REFERENCED => {
            "the set is in use by a rule or another set (iptables-save shows it)"
        }
        NO_SECOND => "the second set does not exist",
        4102 => "the two sets have different types",
        4103 => "the entry already exists, or does not exist",
        4104 => "the prefix length is not valid for this set type (0 is not)",
        4106 => "the family is not valid for this set type",
        4109 => "the set accepts only IPv4 addresses",
        4110 => "the set accepts only IPv6 addresses",
        HASH_FULL => "the set is full (maxelem): create a larger set and swap them",
        4353 => "the entry is not valid for this set type",
        4354 | 4355 => "the protocol is not valid for this set type",
        own if own > FIRST_OWN => return format!("ipset error {own}"),
        system => return io::Error::from_raw_os_error(system).to_string(),
    };
    format!("{meaning} (error {errno})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::SetName;

    fn kernel(errno: i32) -> Error {
        let name = SetName::new("PORTOLAN-MASQ").unwrap();
        Error::Kernel {
            errno,
            request: Box::new(Request::Destroy(name)),
        }
    }

    #[test]
    fn an_error_names_the_set_and_the_next_thing_to_check() {
        assert_eq!(
            kernel(REFERENCED).to_string(),
            "ipset: destroy set PORTOLAN-MASQ: the set is in use by a rule or another set \
             (iptables-save shows it) (error 4108)"
        );
        assert_eq!(
            kernel(EPERM).to_string(),
            "ipset: destroy set PORTOLAN-MASQ: ipset needs CAP_NET_ADMIN (run as root or add the \
             capability) (error 1)"
        );
        assert_eq!(
            kernel(4999).to_string(),
            "ipset: destroy set PORTOLAN-MASQ: ipset error 4999"
        );
        assert_eq!(
            kernel(12).to_string(),
            "ipset: destroy set PORTOLAN-MASQ: Cannot allocate memory (os error 12)"
        );
    }

    #[test]
    fn an_error_without_ip_sets_names_the_module() {
        assert!(Error::NoIpset.to_string().contains("modprobe ip_set"));
        assert!(Error::NoIpset.is_unsupported() && kernel(UNKNOWN_TYPE).is_unsupported());
        assert!(!Error::NoIpset.is_not_permitted());
    }
}
