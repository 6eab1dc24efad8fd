//! Answers of the kernel: information, virtual servers, real servers.

use std::fmt;

use netlink_packet_core::{DecodeError, parse_u32};

use crate::attribute::{self, EncodeError};
use crate::destination::Destination;
use crate::message::{Envelope, RawMessage};
use crate::request::{
    ATTR_DEST, ATTR_SERVICE, CMD_NEW_DEST, CMD_NEW_SERVICE, CMD_SET_CONFIG, Nested,
    put_generic_header, split_generic_header,
};
use crate::service::Service;
use crate::timeouts::Timeouts;

/// `IPVS_CMD_SET_INFO`: the command in the answer to a request for information.
const CMD_SET_INFO: u8 = 14;
const INFO_VERSION: u16 = 1;
const INFO_CONN_TAB_SIZE: u16 = 2;

/// Information about the kernel's IPVS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Info {
    /// Version: one byte each for major, minor and patch, for example 0x010201.
    pub version: u32,
    /// Number of buckets of the connection table.
    pub connection_table_size: u32,
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [_, major, minor, patch] = self.version.to_be_bytes();
        write!(
            f,
            "IPVS {major}.{minor}.{patch} (size={})",
            self.connection_table_size
        )
    }
}

/// An answer of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply {
    /// Answer to [`crate::Request::GetInfo`].
    Info(Info),
    /// Answer to [`crate::Request::GetTimeouts`].
    Timeouts(Timeouts),
    /// One virtual server.
    Service(Service),
    /// One real server.
    Destination(Destination),
}

impl Reply {
    /// Decodes an answer that is neither an acknowledgement nor the end of a dump.
    ///
    /// # Errors
    /// [`DecodeError`] if the message is truncated, its command is not one of these, or a part of the object's key is
    /// missing.
    pub fn decode(message: &RawMessage<'_>) -> Result<Self, DecodeError> {
        let (command, attributes) = split_generic_header(message.payload)?;
        match command {
            CMD_SET_INFO => parse_info(attributes).map(Self::Info),
            CMD_SET_CONFIG => Timeouts::parse(attributes).map(Self::Timeouts),
            CMD_NEW_SERVICE => Nested::parse(attributes)?.service().map(Self::Service),
            CMD_NEW_DEST => Nested::parse(attributes)?
                .destination()
                .map(Self::Destination),
            other => Err(DecodeError::from(format!(
                "IPVS answer with unknown command {other}"
            ))),
        }
    }

    /// Appends the whole netlink message as a kernel would send it, for fake kernels and tests.
    ///
    /// # Errors
    /// [`EncodeError`] if a text or a kept attribute is longer than netlink allows; `buffer` is then unchanged.
    pub fn encode(&self, envelope: Envelope, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        envelope.put(buffer, 0, |payload| match self {
            Self::Info(info) => {
                put_generic_header(payload, CMD_SET_INFO);
                attribute::put(payload, INFO_VERSION, &info.version.to_ne_bytes());
                let size = info.connection_table_size.to_ne_bytes();
                attribute::put(payload, INFO_CONN_TAB_SIZE, &size);
                Ok(())
            }
            Self::Timeouts(timeouts) => {
                put_generic_header(payload, CMD_SET_CONFIG);
                timeouts.put(payload);
                Ok(())
            }
            Self::Service(service) => {
                put_generic_header(payload, CMD_NEW_SERVICE);
                attribute::put_nested(payload, ATTR_SERVICE, |b| service.put(b))
            }
            Self::Destination(destination) => {
                put_generic_header(payload, CMD_NEW_DEST);
                attribute::put_nested(payload, ATTR_DEST, |b| destination.put_shown(b))
            }
        })
    }
}

fn parse_info(attributes: &[u8]) -> Result<Info, DecodeError> {
    let mut info = Info::default();
    for item in attribute::attributes(attributes) {
        let item = item?;
        match item.kind() {
            INFO_VERSION => info.version = parse_u32(item.value())?,
            INFO_CONN_TAB_SIZE => info.connection_table_size = parse_u32(item.value())?,
            _ => {}
        }
    }
    Ok(info)
}
