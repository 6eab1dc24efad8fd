//! Requests to the kernel (`IPVS_CMD_*`).

use std::fmt;

use netlink_packet_core::{DecodeError, Emitable, NLM_F_DUMP};
use netlink_packet_generic::GenlHeader;
use netlink_packet_generic::constants::GENL_HDRLEN;

use crate::FAMILY_VERSION;
use crate::attribute::{self, EncodeError};
use crate::destination::{Destination, DestinationKey};
use crate::key::{KeyParts, ServiceKey};
use crate::message::{Envelope, RawMessage};
use crate::service::Service;
use crate::timeouts::Timeouts;

pub(crate) const CMD_NEW_SERVICE: u8 = 1;
const CMD_SET_SERVICE: u8 = 2;
const CMD_DEL_SERVICE: u8 = 3;
const CMD_GET_SERVICE: u8 = 4;
pub(crate) const CMD_NEW_DEST: u8 = 5;
const CMD_SET_DEST: u8 = 6;
const CMD_DEL_DEST: u8 = 7;
const CMD_GET_DEST: u8 = 8;
pub(crate) const CMD_SET_CONFIG: u8 = 12;
const CMD_GET_CONFIG: u8 = 13;
const CMD_GET_INFO: u8 = 15;

pub(crate) const ATTR_SERVICE: u16 = 1;
pub(crate) const ATTR_DEST: u16 = 2;

/// A request to the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// Gets the version and the size of the connection table.
    GetInfo,
    /// Gets the timeouts of connections.
    GetTimeouts,
    /// Lists all virtual servers.
    GetServices,
    /// Gets one virtual server.
    GetService(ServiceKey),
    /// Adds a virtual server; fails with `EEXIST` if one with its key exists.
    NewService(Service),
    /// Changes a virtual server; fails with `ESRCH` if it does not exist.
    SetService(Service),
    /// Removes a virtual server with its real servers; fails with `ESRCH` if it does not exist.
    DelService(ServiceKey),
    /// Lists all real servers of a virtual server.
    GetDestinations(ServiceKey),
    /// Adds a real server; fails with `EEXIST` if it exists.
    NewDestination(ServiceKey, Destination),
    /// Changes a real server; fails with `ENOENT` if it does not exist.
    SetDestination(ServiceKey, Destination),
    /// Removes a real server; the setting `expire_nodest_conn` determines what happens to its connections.
    DelDestination(ServiceKey, DestinationKey),
    /// Changes the timeouts of connections; takes effect with the next packet of each.
    SetTimeouts(Timeouts),
}

impl Request {
    /// Whether it changes the kernel; otherwise it only reads.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !matches!(
            self,
            Self::GetInfo
                | Self::GetTimeouts
                | Self::GetServices
                | Self::GetService(_)
                | Self::GetDestinations(_)
        )
    }

    /// Whether the answer is a list (`NLM_F_DUMP`).
    #[must_use]
    pub fn is_dump(&self) -> bool {
        matches!(self, Self::GetServices | Self::GetDestinations(_))
    }

    fn command(&self) -> u8 {
        match self {
            Self::GetInfo => CMD_GET_INFO,
            Self::GetTimeouts => CMD_GET_CONFIG,
            Self::GetServices | Self::GetService(_) => CMD_GET_SERVICE,
            Self::NewService(_) => CMD_NEW_SERVICE,
            Self::SetService(_) => CMD_SET_SERVICE,
            Self::DelService(_) => CMD_DEL_SERVICE,
            Self::GetDestinations(_) => CMD_GET_DEST,
            Self::NewDestination(..) => CMD_NEW_DEST,
            Self::SetDestination(..) => CMD_SET_DEST,
            Self::DelDestination(..) => CMD_DEL_DEST,
            Self::SetTimeouts(_) => CMD_SET_CONFIG,
        }
    }

    /// Appends the whole netlink message to `buffer`.
    ///
    /// # Errors
    /// [`EncodeError`] if a text or a kept attribute is longer than netlink allows; `buffer` is then unchanged.
    pub fn encode(&self, envelope: Envelope, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        let flags = if self.is_dump() { NLM_F_DUMP } else { 0 };
        envelope.put(buffer, flags, |payload| {
            put_generic_header(payload, self.command());
            self.put_attributes(payload)
        })
    }

    fn put_attributes(&self, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::GetInfo | Self::GetTimeouts | Self::GetServices => Ok(()),
            Self::SetTimeouts(timeouts) => {
                timeouts.put(buffer);
                Ok(())
            }
            Self::GetService(key) | Self::DelService(key) | Self::GetDestinations(key) => {
                put_key(buffer, key)
            }
            Self::NewService(service) | Self::SetService(service) => {
                attribute::put_nested(buffer, ATTR_SERVICE, |b| service.put(b))
            }
            Self::NewDestination(key, destination) | Self::SetDestination(key, destination) => {
                put_key(buffer, key)?;
                attribute::put_nested(buffer, ATTR_DEST, |b| destination.put(b))
            }
            Self::DelDestination(key, destination) => {
                put_key(buffer, key)?;
                attribute::put_nested(buffer, ATTR_DEST, |b| {
                    destination.put(b);
                    Ok(())
                })
            }
        }
    }

    /// Decodes a request, for fake kernels and captures.
    ///
    /// # Errors
    /// [`DecodeError`] if the message is truncated, its command is not one of these, or a part of the object's key is
    /// missing.
    pub fn decode(message: &RawMessage<'_>) -> Result<Self, DecodeError> {
        let (command, attributes) = split_generic_header(message.payload)?;
        let dump = message.header.flags & NLM_F_DUMP == NLM_F_DUMP;
        let nested = Nested::parse(attributes)?;
        Ok(match command {
            CMD_GET_INFO => Self::GetInfo,
            CMD_GET_CONFIG => Self::GetTimeouts,
            CMD_SET_CONFIG => Self::SetTimeouts(Timeouts::parse(attributes)?),
            CMD_GET_SERVICE if dump => Self::GetServices,
            CMD_GET_SERVICE => Self::GetService(nested.key()?),
            CMD_NEW_SERVICE => Self::NewService(nested.service()?),
            CMD_SET_SERVICE => Self::SetService(nested.service()?),
            CMD_DEL_SERVICE => Self::DelService(nested.key()?),
            CMD_GET_DEST => Self::GetDestinations(nested.key()?),
            CMD_NEW_DEST => Self::NewDestination(nested.key()?, nested.destination()?),
            CMD_SET_DEST => Self::SetDestination(nested.key()?, nested.destination()?),
            CMD_DEL_DEST => Self::DelDestination(nested.key()?, nested.destination()?.key()),
            other => {
                return Err(DecodeError::from(format!("unknown IPVS command {other}")));
            }
        })
    }
}

fn put_key(buffer: &mut Vec<u8>, key: &ServiceKey) -> Result<(), EncodeError> {
    attribute::put_nested(buffer, ATTR_SERVICE, |b| {
        key.put(b);
        Ok(())
    })
}

/// The two nested attributes of requests and replies.
pub(crate) struct Nested<'a> {
    service: Option<&'a [u8]>,
    destination: Option<&'a [u8]>,
}

impl<'a> Nested<'a> {
    pub(crate) fn parse(attributes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut nested = Self {
            service: None,
            destination: None,
        };
        let mut rest = attributes;
        // The iterator's values borrow from each item, so the values are sliced from `attributes` by the items'
        // lengths.
        for item in attribute::attributes(attributes) {
            let item = item?;
            let value = rest.get(4..usize::from(item.length()));
            match item.kind() {
                ATTR_SERVICE => nested.service = value,
                ATTR_DEST => nested.destination = value,
                _ => {}
            }
            let aligned = usize::from(item.length()).next_multiple_of(4);
            rest = rest.get(aligned..).unwrap_or_default();
        }
        Ok(nested)
    }

    fn service_bytes(&self) -> Result<&'a [u8], DecodeError> {
        Ok(self
            .service
            .ok_or("IPVS message without service attribute")?)
    }

    fn key(&self) -> Result<ServiceKey, DecodeError> {
        let mut parts = KeyParts::default();
        for item in attribute::attributes(self.service_bytes()?) {
            let item = item?;
            parts.take(item.kind(), item.value())?;
        }
        parts.finish()
    }

    pub(crate) fn service(&self) -> Result<Service, DecodeError> {
        Service::parse(self.service_bytes()?)
    }

    pub(crate) fn destination(&self) -> Result<Destination, DecodeError> {
        let bytes = self
            .destination
            .ok_or("IPVS message without destination attribute")?;
        let family = self.key().ok().map(|key| key.family());
        Destination::parse(bytes, family)
    }
}

pub(crate) fn put_generic_header(buffer: &mut Vec<u8>, command: u8) {
    let mut header = [0; GENL_HDRLEN];
    GenlHeader {
        cmd: command,
        version: FAMILY_VERSION,
    }
    .emit(&mut header);
    buffer.extend_from_slice(&header);
}

pub(crate) fn split_generic_header(payload: &[u8]) -> Result<(u8, &[u8]), DecodeError> {
    let header = GenlHeader::parse(payload)?;
    Ok((header.cmd, payload.get(GENL_HDRLEN..).unwrap_or_default()))
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GetInfo => f.write_str("get IPVS information"),
            Self::GetTimeouts => f.write_str("get timeouts of connections"),
            Self::GetServices => f.write_str("list virtual servers"),
            Self::GetService(key) => write!(f, "get virtual server {key}"),
            Self::NewService(service) => write!(f, "add virtual server {service}"),
            Self::SetService(service) => write!(f, "change virtual server {service}"),
            Self::DelService(key) => write!(f, "remove virtual server {key}"),
            Self::GetDestinations(key) => write!(f, "list real servers of {key}"),
            Self::NewDestination(key, to) => write!(f, "add real server {to} to {key}"),
            Self::SetDestination(key, to) => write!(f, "change real server {to} of {key}"),
            Self::DelDestination(key, to) => write!(f, "remove real server {to} of {key}"),
            Self::SetTimeouts(Timeouts { tcp, tcp_fin, udp }) => write!(
                f,
                "set timeouts of connections to {tcp} s (TCP), {tcp_fin} s (after FIN), {udp} s (UDP)"
            ),
        }
    }
}
