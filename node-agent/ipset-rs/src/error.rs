//! Errors of the socket; each says what was asked and what to check next.

use std::io;

use crate::attribute::EncodeError;
use crate::kind::SetNameError;
use crate::request::Request;

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EEXIST: i32 = 17;

/// From here on the numbers are ipset's own.
const FIRST_OWN: i32 = 4096;
pub(crate) const WRONG_PROTOCOL: i32 = 4097;
const UNKNOWN_TYPE: i32 = 4098;
const IN_USE: i32 = 4100;
/// The kernel's name for it speaks of renaming; a swap gets it when the second set is missing.
const NO_SECOND: i32 = 4101;
const MISMATCH: i32 = 4102;
const REFERENCED: i32 = 4108;
const HASH_FULL: i32 = 4352;

/// Why something failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel has no IP sets.
    #[error(
        "this kernel has no IP sets (nfnetlink has no subsystem ipset): load the module ip_set \
         (modprobe ip_set), or build the kernel with CONFIG_IP_SET"
    )]
    NoIpset,
    /// The kernel speaks only versions of the protocol this crate does not.
    #[error("the kernel's ipset protocol starts at version {min}; 6 and 7 are spoken here")]
    ProtocolTooNew {
        /// The oldest version it speaks.
        min: u8,
    },
    /// The name of a set is not possible.
    #[error(transparent)]
    Name(#[from] SetNameError),
    /// The kernel answered a request with an error number.
    #[error("ipset: {request}: {}", describe(*.errno))]
    Kernel {
        /// The error number, positive: `errno`, or from 4097 on one of ipset's own.
        errno: i32,
        /// What was asked; of many entries the one that failed.
        request: Box<Request>,
    },
    /// A request could not be written as netlink.
    #[error("ipset: {request}: {source}")]
    Encode {
        /// What was asked.
        request: Box<Request>,
        /// What is too long.
        source: EncodeError,
    },
    /// The socket failed. The next call opens another one.
    #[error("ipset socket: {0}")]
    Socket(netlink_blocking::Error),
    /// The kernel changed its sets during each of several attempts to list them.
    #[error(
        "ipset: {request}: the list changed while it was read, {attempts} times in a row: which \
         other program changes sets all the time?"
    )]
    Interrupted {
        /// What was asked.
        request: Box<Request>,
        /// How often it was tried.
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

    /// What went wrong and what to check, for whoever says himself what was asked.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Kernel { errno, .. } => describe(*errno),
            other => other.to_string(),
        }
    }

    /// The socket failed, or what it said is not to be relied on: what was asked may have been done
    /// or not.
    #[must_use]
    pub fn is_of_socket(&self) -> bool {
        matches!(self, Self::Socket(_))
    }

    /// A set of this name is there already.
    #[must_use]
    pub fn is_exists(&self) -> bool {
        matches!(self, Self::Kernel { errno: EEXIST, .. })
    }

    /// There is no set of this name (in a swap: of one of the names).
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

    /// The set cannot be destroyed because a rule or another set uses it.
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

    /// The two sets of a swap are of types or families that cannot take each other's place.
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

    /// The set has as many entries as it may have.
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

    /// The caller lacks the capability.
    #[must_use]
    pub fn is_not_permitted(&self) -> bool {
        match self {
            Self::Kernel { errno, .. } => *errno == EPERM,
            _ => false,
        }
    }

    /// The kernel has no IP sets, or not of this type.
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
        ENOENT => "there is no such set",
        EEXIST => "there is a set of this name already",
        WRONG_PROTOCOL => "the kernel did not accept the form of the request",
        UNKNOWN_TYPE => {
            "the kernel does not have this type of set (load its module: modprobe ip_set_hash_ipport \
             and the like)"
        }
        4099 => "the kernel's table of sets is full",
        IN_USE | REFERENCED => {
            "the set is in use by a rule or another set (iptables-save shows it)"
        }
        NO_SECOND => "there is no set of the second name",
        4102 => "the two sets are not of one type",
        4103 => "the entry is there already, or not there",
        4104 => "the prefix length is not possible here (0 is not)",
        4106 => "the family is not possible here",
        4109 => "the set takes IPv4 addresses",
        4110 => "the set takes IPv6 addresses",
        HASH_FULL => "the set is full (maxelem): fill a larger one and swap",
        4353 => "the entry is not possible in this set",
        4354 | 4355 => "the protocol is not possible in this set",
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
    fn a_kernel_without_ip_sets_is_told_by_module() {
        assert!(Error::NoIpset.to_string().contains("modprobe ip_set"));
        assert!(Error::NoIpset.is_unsupported() && kernel(UNKNOWN_TYPE).is_unsupported());
        assert!(!Error::NoIpset.is_not_permitted());
    }
}
