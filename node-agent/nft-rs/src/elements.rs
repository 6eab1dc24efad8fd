//! Messages with elements of a set.

use std::sync::Arc;

use netlink_packet_core::DecodeError;

use crate::attribute::{self, EncodeError, LIST_ELEMENT, text};
use crate::element::Element;
use crate::family::{Family, TableId};
use crate::set;

const TABLE: u16 = 1;
const SET: u16 = 2;
pub(crate) const ELEMENTS: u16 = 3;

/// Elements of one set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elements {
    /// The table of the set.
    pub table: TableId,
    /// The name of the set.
    pub set: Arc<str>,
    /// The elements.
    pub elements: Vec<Element>,
}

impl Elements {
    pub(crate) fn put(&self, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        set::put_name(&self.table, &self.set, buffer)?;
        attribute::put_nested(buffer, ELEMENTS, |list| {
            self.elements
                .iter()
                .try_for_each(|element| put_element(list, element))
        })
    }

    /// Reads elements, and whether the message has a list of them. Without one it is about all elements of the set.
    pub(crate) fn parse(family: Family, bytes: &[u8]) -> Result<(Self, bool), DecodeError> {
        let mut table = Arc::from("");
        let mut set = Arc::from("");
        let mut elements = Vec::new();
        let mut has_list = false;
        for item in attribute::attributes(bytes) {
            let item = item?;
            let value = item.value();
            match item.kind() {
                TABLE => table = text(value),
                SET => set = text(value),
                ELEMENTS => {
                    has_list = true;
                    for element in attribute::attributes(value) {
                        elements.push(Element::parse(element?.value())?);
                    }
                }
                _ => {}
            }
        }
        let elements = Self {
            table: TableId::new(family, table),
            set,
            elements,
        };
        Ok((elements, has_list))
    }
}

/// Appends an element of the list.
pub(crate) fn put_element(list: &mut Vec<u8>, element: &Element) -> Result<(), EncodeError> {
    attribute::put_nested(list, LIST_ELEMENT, |b| element.put(b))
}
