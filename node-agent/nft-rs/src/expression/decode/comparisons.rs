//! Expressions that end a rule unless registers have certain values.

use super::{Items, Parsed};
use crate::attribute::text;
use crate::expression::kinds::{bitwise, compare, lookup, range};
use crate::expression::{Comparison, Expression};

pub(super) fn compare(items: &Items<'_>) -> Parsed {
    use compare::{OPERATOR, SOURCE, VALUE};
    let parts = (
        items.register(SOURCE)?,
        items.number(OPERATOR)?,
        items.bytes(VALUE)?,
    );
    let (Some(source), Some(operator), Some(value)) = parts else {
        return Ok(None);
    };
    Ok(items
        .are_of(&[OPERATOR, SOURCE, VALUE])
        .then_some(Expression::Compare {
            source,
            operator: Comparison::from_number(operator),
            value,
        }))
}

pub(super) fn range(items: &Items<'_>) -> Parsed {
    use range::{FIRST, LAST, OPERATOR, SOURCE};
    let parts = (
        items.register(SOURCE)?,
        items.number(OPERATOR)?,
        items.bytes(FIRST)?,
        items.bytes(LAST)?,
    );
    let (Some(source), Some(operator @ (0 | 1)), Some(first), Some(last)) = parts else {
        return Ok(None);
    };
    Ok(items
        .are_of(&[FIRST, LAST, OPERATOR, SOURCE])
        .then_some(Expression::Range {
            source,
            inverted: operator == 1,
            first,
            last,
        }))
}

pub(super) fn bitwise(items: &Items<'_>) -> Parsed {
    use bitwise::{DESTINATION, LENGTH, MASK, OPERATION, SOURCE, XOR};
    let parts = (
        items.register(SOURCE)?,
        items.register(DESTINATION)?,
        items.bytes(MASK)?,
        items.bytes(XOR)?,
    );
    let (Some(source), Some(destination), Some(mask), Some(xor)) = parts else {
        return Ok(None);
    };
    let length = items.number(LENGTH)?.map(usize::try_from);
    let is_plain = items.number(OPERATION)?.unwrap_or(0) == 0 && length == Some(Ok(mask.len()));
    Ok(
        (is_plain && items.are_of(&[DESTINATION, LENGTH, MASK, OPERATION, SOURCE, XOR])).then_some(
            Expression::Bitwise {
                source,
                destination,
                mask,
                xor,
            },
        ),
    )
}

pub(super) fn lookup(items: &Items<'_>) -> Parsed {
    use lookup::{DESTINATION, FLAGS, SET, SET_ID, SOURCE};
    let parts = (
        items.value(SET).map(text),
        items.register(SOURCE)?,
        items.number(FLAGS)?.unwrap_or(0),
    );
    let (Some(set), Some(source), flags @ (0 | 1)) = parts else {
        return Ok(None);
    };
    let destination = items.register(DESTINATION)?;
    Ok(items
        .are_of(&[DESTINATION, FLAGS, SET, SET_ID, SOURCE])
        .then_some(Expression::Lookup {
            set,
            source,
            destination,
            inverted: flags == 1,
        }))
}
