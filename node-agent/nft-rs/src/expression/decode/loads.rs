//! Expressions that load registers, and verdicts, which are loaded like constants.

use netlink_packet_core::{DecodeError, parse_i32_be};

use super::{Items, Parsed};
use crate::attribute::{attributes, data, text};
use crate::expression::kinds::{
    VERDICT, VERDICT_CHAIN, VERDICT_CODE, VERDICT_REGISTER, conntrack, fib, hash, immediate, meta,
    numgen, payload,
};
use crate::expression::{
    ConntrackKey, Direction, Expression, FibFlags, FibResult, Hash, HeaderBase, MetaKey, Register,
    Verdict,
};

pub(super) fn payload(items: &Items<'_>) -> Parsed {
    use payload::{BASE, DESTINATION, LENGTH, OFFSET};
    let parts = (
        items.number(BASE)?,
        items.number(OFFSET)?,
        items.number(LENGTH)?,
        items.register(DESTINATION)?,
    );
    let (Some(base), Some(offset), Some(length), Some(destination)) = parts else {
        return Ok(None);
    };
    Ok(items
        .are_of(&[BASE, DESTINATION, LENGTH, OFFSET])
        .then_some(Expression::Payload {
            base: HeaderBase::from_number(base),
            offset,
            length,
            destination,
        }))
}

pub(super) fn meta(items: &Items<'_>) -> Parsed {
    use meta::{DESTINATION, KEY, SOURCE};
    let Some(key) = items.number(KEY)?.map(MetaKey::from_number) else {
        return Ok(None);
    };
    Ok(
        match (items.register(DESTINATION)?, items.register(SOURCE)?) {
            (Some(destination), None) if items.are_of(&[KEY, DESTINATION]) => {
                Some(Expression::Meta { key, destination })
            }
            (None, Some(source)) if items.are_of(&[KEY, SOURCE]) => {
                Some(Expression::MetaSet { key, source })
            }
            _ => None,
        },
    )
}

pub(super) fn conntrack(items: &Items<'_>) -> Parsed {
    use conntrack::{DESTINATION, DIRECTION, KEY};
    let (Some(key), Some(destination)) = (items.number(KEY)?, items.register(DESTINATION)?) else {
        return Ok(None);
    };
    let direction = match items.byte(DIRECTION)? {
        None => None,
        Some(0) => Some(Direction::Original),
        Some(1) => Some(Direction::Reply),
        Some(_) => return Ok(None),
    };
    Ok(items
        .are_of(&[DESTINATION, DIRECTION, KEY])
        .then_some(Expression::Conntrack {
            key: ConntrackKey::from_number(key),
            direction,
            destination,
        }))
}

pub(super) fn immediate(items: &Items<'_>) -> Parsed {
    use immediate::{DESTINATION, VALUE};
    let parts = (items.number(DESTINATION)?, items.value(VALUE));
    let (Some(destination), Some(value)) = parts else {
        return Ok(None);
    };
    if !items.are_of(&[DESTINATION, VALUE]) {
        return Ok(None);
    }
    if destination == VERDICT_REGISTER {
        return Ok(parse_verdict(value)?.map(Expression::Verdict));
    }
    Ok(data(value)?.map(|value| Expression::Immediate {
        destination: Register::from_number(destination),
        value,
    }))
}

fn parse_verdict(value: &[u8]) -> Result<Option<Verdict>, DecodeError> {
    for item in attributes(value) {
        let item = item?;
        if item.kind() != VERDICT {
            continue;
        }
        let items = Items(attributes(item.value()).collect::<Result<_, _>>()?);
        let Some(code) = items.value(VERDICT_CODE) else {
            return Ok(None);
        };
        let chain = items.value(VERDICT_CHAIN).map(text);
        let verdict = Verdict::from_number(parse_i32_be(code)?, chain);
        // What names a chain must keep it.
        let is_whole = items.are_of(&[VERDICT_CODE])
            || verdict.chain().is_some() && items.are_of(&[VERDICT_CODE, VERDICT_CHAIN]);
        return Ok(is_whole.then_some(verdict));
    }
    Ok(None)
}

pub(super) fn numgen(items: &Items<'_>) -> Parsed {
    use numgen::{DESTINATION, MODULUS, OFFSET, TYPE};
    let parts = (
        items.number(TYPE)?,
        items.number(MODULUS)?,
        items.register(DESTINATION)?,
    );
    let (Some(kind @ (0 | 1)), Some(modulus), Some(destination)) = parts else {
        return Ok(None);
    };
    let offset = items.number(OFFSET)?.unwrap_or(0);
    Ok(items
        .are_of(&[DESTINATION, MODULUS, OFFSET, TYPE])
        .then_some(Expression::Numgen {
            random: kind == 1,
            modulus,
            offset,
            destination,
        }))
}

pub(super) fn hash(items: &Items<'_>) -> Parsed {
    use hash::{DESTINATION, LENGTH, MODULUS, OFFSET, SEED, SOURCE, TYPE};
    let parts = (
        items.register(SOURCE)?,
        items.number(LENGTH)?,
        items.number(MODULUS)?,
        items.register(DESTINATION)?,
        items.number(TYPE)?.unwrap_or(0),
    );
    let (Some(source), Some(length), Some(modulus), Some(destination), 0) = parts else {
        return Ok(None);
    };
    let seed = items.number(SEED)?;
    let offset = items.number(OFFSET)?.unwrap_or(0);
    Ok(items
        .are_of(&[DESTINATION, LENGTH, MODULUS, OFFSET, SEED, SOURCE, TYPE])
        .then_some(Expression::Jhash(Hash {
            source,
            length,
            modulus,
            seed,
            offset,
            destination,
        })))
}

pub(super) fn fib(items: &Items<'_>) -> Parsed {
    use fib::{DESTINATION, FLAGS, RESULT};
    let parts = (
        items.number(RESULT)?,
        items.number(FLAGS)?,
        items.register(DESTINATION)?,
    );
    let (Some(result), Some(flags), Some(destination)) = parts else {
        return Ok(None);
    };
    Ok(items
        .are_of(&[DESTINATION, FLAGS, RESULT])
        .then_some(Expression::Fib {
            result: FibResult::from_number(result),
            flags: FibFlags(flags),
            destination,
        }))
}
