//! Checks whether the kernel has a scheduler, without leaving anything behind.

use std::net::{IpAddr, Ipv6Addr};

use crate::error::Error;
use crate::key::{Protocol, ServiceKey};
use crate::request::Request;
use crate::service::Service;
use crate::socket::Socket;

/// An address of the documentation range, which no virtual server uses.
const PROBE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0);

/// The kernel's name for no scheduler. A virtual server without one refuses every connection.
const NO_SCHEDULER: &str = "none";

impl Socket {
    /// Whether the kernel has the scheduler, or can load its module `ip_vs_NAME`.
    ///
    /// It requests a virtual server that cannot be created, because its netmask is not an IPv6 prefix. The kernel
    /// looks up the scheduler before it checks the netmask, and creates nothing.
    ///
    /// # Errors
    /// The request did not reach the kernel, or was not permitted. A kernel whose IPVS lacks IPv6 does not look up
    /// the scheduler. Then the result is true, and the next request reports the missing scheduler.
    pub fn has_scheduler(&mut self, name: &str) -> Result<bool, Error> {
        if name == NO_SCHEDULER {
            return Ok(false);
        }
        let key = ServiceKey::address(Protocol::Tcp, IpAddr::V6(PROBE), 1);
        let probe = Service {
            netmask: 0,
            ..Service::new(key, name)
        };
        let asked = self.execute(&[Request::NewService(probe)], 1);
        match asked.into_iter().next() {
            Some(Err(error)) if error.is_unknown_scheduler() => Ok(false),
            Some(Err(error)) if error.errno().is_none() || error.is_not_permitted() => Err(error),
            Some(Err(_)) | None => Ok(true),
            Some(Ok(())) => {
                let removed = self.execute(&[Request::DelService(key)], 1);
                removed
                    .into_iter()
                    .collect::<Result<(), _>>()
                    .map(|()| true)
            }
        }
    }
}
