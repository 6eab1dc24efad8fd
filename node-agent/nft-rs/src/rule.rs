//! Rules.

use std::sync::Arc;

use netlink_packet_core::{DecodeError, parse_u64_be};

use crate::attribute::{self, EncodeError, LIST_ELEMENT, TABLE, text};
use crate::expression::Expression;
use crate::family::TableId;
use crate::user_data;

pub(crate) const CHAIN: u16 = 2;
pub(crate) const HANDLE: u16 = 3;
const EXPRESSIONS: u16 = 4;
const POSITION: u16 = 6;
const USER_DATA: u16 = 7;

/// A rule of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The name of its chain.
    pub chain: Arc<str>,
    /// What it does, in order. A comparison or look-up without a match ends the rule.
    pub expressions: Vec<Expression>,
    /// Its comment, as `nft` shows it: at most 128 bytes.
    pub comment: Option<Arc<str>>,
    /// Other data of the program that added it, in the form of [`user_data`].
    pub user_data: Vec<u8>,
    /// Its number, which no other object of the table has had. The kernel sets it.
    pub handle: Option<u64>,
    /// When it is listed, the handle of the rule before it. When it is added, the rule after which it is added; `None`
    /// is the end of the chain.
    pub position: Option<u64>,
}

impl Rule {
    /// A rule at the end of a chain.
    #[must_use]
    pub fn new(
        chain: impl Into<Arc<str>>,
        expressions: impl IntoIterator<Item = Expression>,
    ) -> Self {
        Self {
            chain: chain.into(),
            expressions: expressions.into_iter().collect(),
            comment: None,
            user_data: Vec::new(),
            handle: None,
            position: None,
        }
    }

    /// The same rule with a comment.
    #[must_use]
    pub fn with_comment(self, comment: impl Into<Arc<str>>) -> Self {
        Self {
            comment: Some(comment.into()),
            ..self
        }
    }

    /// The same rule without its handle and position, to compare it with a rule that is to be written.
    #[must_use]
    pub fn as_written(self) -> Self {
        Self {
            handle: None,
            position: None,
            ..self
        }
    }

    pub(crate) fn put(&self, table: &TableId, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        put_name(table, Some(&self.chain), self.handle, buffer)?;
        attribute::put_nested(buffer, EXPRESSIONS, |list| {
            for expression in &self.expressions {
                attribute::put_nested(list, LIST_ELEMENT, |b| expression.put(b))?;
            }
            Ok(())
        })?;
        if let Some(position) = self.position {
            attribute::put_u64(buffer, POSITION, position);
        }
        let mut data = Vec::new();
        if let Some(comment) = &self.comment {
            user_data::put_text(&mut data, user_data::COMMENT, comment)?;
        }
        data.extend_from_slice(&self.user_data);
        if !data.is_empty() {
            attribute::put_slice(buffer, USER_DATA, &data)?;
        }
        Ok(())
    }

    /// Reads a rule and the name of its table.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(Arc<str>, Self), DecodeError> {
        let mut table = Arc::from("");
        let mut rule = Self::new("", []);
        for item in attribute::attributes(bytes) {
            let item = item?;
            let value = item.value();
            match item.kind() {
                TABLE => table = text(value),
                CHAIN => rule.chain = text(value),
                HANDLE => rule.handle = Some(parse_u64_be(value)?),
                EXPRESSIONS => {
                    for expression in attribute::attributes(value) {
                        let expression = Expression::parse(expression?.value())?;
                        rule.expressions.push(expression);
                    }
                }
                POSITION => rule.position = Some(parse_u64_be(value)?),
                USER_DATA => {
                    let (comment, rest) = user_data::take_comment(value);
                    rule.comment = comment;
                    rule.user_data = rest;
                }
                _ => {}
            }
        }
        Ok((table, rule))
    }
}

/// Appends what names rules: those of a table, of a chain, or one with a handle.
pub(crate) fn put_name(
    table: &TableId,
    chain: Option<&str>,
    handle: Option<u64>,
    buffer: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    attribute::put_text(buffer, TABLE, &table.name)?;
    if let Some(chain) = chain {
        attribute::put_text(buffer, CHAIN, chain)?;
    }
    if let Some(handle) = handle {
        attribute::put_u64(buffer, HANDLE, handle);
    }
    Ok(())
}
