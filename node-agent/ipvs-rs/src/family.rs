//! Looks up the number of the family, which generic netlink assigns dynamically.

use netlink_blocking::Outgoing;
use netlink_packet_core::{DecodeError, NlasIterator, parse_u16};
use netlink_packet_generic::constants::{
    CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME, CTRL_CMD_GETFAMILY, CTRL_CMD_NEWFAMILY,
    GENL_ID_CTRL,
};

use crate::FAMILY_NAME;
use crate::attribute;
use crate::error::Error;
use crate::message::{Envelope, error_code};
use crate::request::{Request, put_generic_header, split_generic_header};
use crate::socket::{ENOENT, Socket, collect};

impl Socket {
    /// Queries generic netlink for the number of the family. The kernel tries to load the module.
    pub(crate) fn look_up_family(&mut self) -> Result<u16, Error> {
        let sequence = self.channel.next_sequence();
        let envelope = Envelope {
            family_id: GENL_ID_CTRL,
            sequence,
            acknowledge: true,
        };
        let mut bytes = Vec::new();
        envelope
            .put(&mut bytes, 0, |payload| {
                put_generic_header(payload, CTRL_CMD_GETFAMILY);
                attribute::put_text(payload, CTRL_ATTR_FAMILY_NAME, FAMILY_NAME)
            })
            .map_err(|source| Error::Encode {
                request: Box::new(Request::GetInfo),
                source,
            })?;
        self.channel.send(&Outgoing {
            bytes: &bytes,
            messages: 1,
            writes: false,
        })?;
        let mut id = None;
        let collected = collect(&mut self.channel, sequence, |message| {
            if error_code(message).is_none() {
                id = parse_family_id(message.payload)?;
            }
            Ok(())
        });
        match (self.channel.settle(collected, Error::is_of_socket)?, id) {
            (0, Some(id)) => Ok(id),
            (ENOENT, _) => Err(Error::NoIpvs),
            (0, None) => Err(DecodeError::from("no family number in the answer").into()),
            (errno, _) => Err(Error::Kernel {
                errno,
                request: Box::new(Request::GetInfo),
            }),
        }
    }
}

fn parse_family_id(payload: &[u8]) -> Result<Option<u16>, DecodeError> {
    let (command, attributes) = split_generic_header(payload)?;
    if command != CTRL_CMD_NEWFAMILY {
        return Ok(None);
    }
    for item in NlasIterator::new(attributes) {
        let item = item?;
        if item.kind() == CTRL_ATTR_FAMILY_ID {
            return parse_u16(item.value()).map(Some);
        }
    }
    Ok(None)
}
