//! Writes expressions as attributes.

use super::kinds::{
    DATA, NAME, VERDICT, VERDICT_CHAIN, VERDICT_CODE, VERDICT_REGISTER, bitwise, compare,
    conntrack, counter, dynset, fib, hash, immediate, lookup, masquerade, meta, nat, numgen,
    payload, range, reject,
};
use super::{
    Direction, Expression, Hash, Masquerade, Nat, NatFlags, NatKind, Register, Reject, SetChange,
    SetUpdate, Verdict,
};
use crate::attribute::{
    EncodeError, put, put_data, put_milliseconds, put_nested, put_other, put_text, put_u32, put_u64,
};

impl Expression {
    /// Its name in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Payload { .. } => "payload",
            Self::Meta { .. } | Self::MetaSet { .. } => "meta",
            Self::Conntrack { .. } => "ct",
            Self::Compare { .. } => "cmp",
            Self::Range { .. } => "range",
            Self::Bitwise { .. } => "bitwise",
            Self::Lookup { .. } => "lookup",
            Self::Immediate { .. } | Self::Verdict(_) => "immediate",
            Self::Numgen { .. } => "numgen",
            Self::Jhash(_) => "hash",
            Self::Nat(_) => "nat",
            Self::Masquerade(_) => "masq",
            Self::Reject(_) => "reject",
            Self::Fib { .. } => "fib",
            Self::SetUpdate(_) => "dynset",
            Self::Counter { .. } => "counter",
            Self::Other { name, .. } => name,
        }
    }

    /// Appends its name and its attributes.
    pub(crate) fn put(&self, buffer: &mut Vec<u8>) -> Result<(), EncodeError> {
        put_text(buffer, NAME, self.name())?;
        put_nested(buffer, DATA, |b| self.put_attributes(b))
    }

    fn put_attributes(&self, b: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Jhash(hash) => put_hash(b, hash),
            Self::Nat(nat) => put_nat(b, nat),
            Self::Masquerade(masquerade) => put_masquerade(b, masquerade),
            Self::Reject(reject) => put_reject(b, *reject),
            Self::Counter { packets, bytes } => {
                put_u64(b, counter::BYTES, *bytes);
                put_u64(b, counter::PACKETS, *packets);
            }
            Self::Verdict(verdict) => return put_verdict(b, verdict),
            Self::SetUpdate(update) => return put_update(b, update),
            Self::Other { attributes, .. } => return put_other(b, attributes),
            Self::Compare { .. }
            | Self::Range { .. }
            | Self::Bitwise { .. }
            | Self::Lookup { .. }
            | Self::Immediate { .. } => return self.put_operands(b),
            Self::Payload { .. }
            | Self::Meta { .. }
            | Self::MetaSet { .. }
            | Self::Conntrack { .. }
            | Self::Numgen { .. }
            | Self::Fib { .. } => self.put_numbers(b),
        }
        Ok(())
    }

    /// Appends the attributes of an expression that has numbers only.
    fn put_numbers(&self, b: &mut Vec<u8>) {
        match self {
            Self::Payload {
                base,
                offset,
                length,
                destination,
            } => {
                put_register(b, payload::DESTINATION, *destination);
                put_u32(b, payload::BASE, base.number());
                put_u32(b, payload::OFFSET, *offset);
                put_u32(b, payload::LENGTH, *length);
            }
            Self::Meta { key, destination } => {
                put_u32(b, meta::KEY, key.number());
                put_register(b, meta::DESTINATION, *destination);
            }
            Self::MetaSet { key, source } => {
                put_u32(b, meta::KEY, key.number());
                put_register(b, meta::SOURCE, *source);
            }
            Self::Conntrack {
                key,
                direction,
                destination,
            } => {
                put_u32(b, conntrack::KEY, key.number());
                put_register(b, conntrack::DESTINATION, *destination);
                match direction {
                    Some(Direction::Original) => put(b, conntrack::DIRECTION, &[0]),
                    Some(Direction::Reply) => put(b, conntrack::DIRECTION, &[1]),
                    None => {}
                }
            }
            Self::Numgen {
                random,
                modulus,
                offset,
                destination,
            } => {
                put_register(b, numgen::DESTINATION, *destination);
                put_u32(b, numgen::MODULUS, *modulus);
                put_u32(b, numgen::TYPE, u32::from(*random));
                put_u32(b, numgen::OFFSET, *offset);
            }
            Self::Fib {
                result,
                flags,
                destination,
            } => {
                put_u32(b, fib::FLAGS, flags.0);
                put_u32(b, fib::RESULT, result.number());
                put_register(b, fib::DESTINATION, *destination);
            }
            _ => {}
        }
    }

    /// Appends the attributes of an expression that has values or names.
    fn put_operands(&self, b: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Self::Compare {
                source,
                operator,
                value,
            } => {
                put_register(b, compare::SOURCE, *source);
                put_u32(b, compare::OPERATOR, operator.number());
                put_data(b, compare::VALUE, value)
            }
            Self::Range {
                source,
                inverted,
                first,
                last,
            } => {
                put_register(b, range::SOURCE, *source);
                put_u32(b, range::OPERATOR, u32::from(*inverted));
                put_data(b, range::FIRST, first)?;
                put_data(b, range::LAST, last)
            }
            Self::Bitwise {
                source,
                destination,
                mask,
                xor,
            } => {
                put_register(b, bitwise::SOURCE, *source);
                put_register(b, bitwise::DESTINATION, *destination);
                let length = u32::try_from(mask.len()).unwrap_or(u32::MAX);
                put_u32(b, bitwise::LENGTH, length);
                put_data(b, bitwise::MASK, mask)?;
                put_data(b, bitwise::XOR, xor)
            }
            Self::Lookup {
                set,
                source,
                destination,
                inverted,
            } => {
                put_text(b, lookup::SET, set)?;
                put_register(b, lookup::SOURCE, *source);
                put_optional(b, lookup::DESTINATION, *destination);
                if *inverted {
                    put_u32(b, lookup::FLAGS, 1);
                }
                Ok(())
            }
            Self::Immediate { destination, value } => {
                put_register(b, immediate::DESTINATION, *destination);
                put_data(b, immediate::VALUE, value)
            }
            _ => Ok(()),
        }
    }
}

fn put_register(b: &mut Vec<u8>, kind: u16, register: Register) {
    put_u32(b, kind, register.number());
}

fn put_optional(b: &mut Vec<u8>, kind: u16, register: Option<Register>) {
    if let Some(register) = register {
        put_register(b, kind, register);
    }
}

fn put_verdict(b: &mut Vec<u8>, verdict: &Verdict) -> Result<(), EncodeError> {
    put_u32(b, immediate::DESTINATION, VERDICT_REGISTER);
    put_nested(b, immediate::VALUE, |value| {
        put_nested(value, VERDICT, |b| {
            put(b, VERDICT_CODE, &verdict.number().to_be_bytes());
            match verdict.chain() {
                Some(chain) => put_text(b, VERDICT_CHAIN, chain),
                None => Ok(()),
            }
        })
    })
}

fn put_hash(b: &mut Vec<u8>, value: &Hash) {
    put_register(b, hash::SOURCE, value.source);
    put_register(b, hash::DESTINATION, value.destination);
    put_u32(b, hash::LENGTH, value.length);
    put_u32(b, hash::MODULUS, value.modulus);
    if let Some(seed) = value.seed {
        put_u32(b, hash::SEED, seed);
    }
    if value.offset != 0 {
        put_u32(b, hash::OFFSET, value.offset);
    }
    put_u32(b, hash::TYPE, 0);
}

fn put_nat(b: &mut Vec<u8>, value: &Nat) {
    put_u32(b, nat::TYPE, u32::from(value.kind == NatKind::Destination));
    put_u32(b, nat::FAMILY, value.family.number().into());
    put_optional(b, nat::ADDRESS, value.address);
    put_optional(b, nat::LAST_ADDRESS, value.last_address);
    put_optional(b, nat::PORT, value.port);
    put_optional(b, nat::LAST_PORT, value.last_port);
    if value.flags != NatFlags::NONE {
        put_u32(b, nat::FLAGS, value.flags.0);
    }
}

fn put_masquerade(b: &mut Vec<u8>, value: &Masquerade) {
    // Other than for `nat`, the kernel ignores the registers without this flag.
    let ports = value.port.map_or(0, |_| NatFlags::PORTS);
    let flags = value.flags.0 | ports;
    if flags != 0 {
        put_u32(b, masquerade::FLAGS, flags);
    }
    put_optional(b, masquerade::PORT, value.port);
    put_optional(b, masquerade::LAST_PORT, value.last_port);
}

fn put_reject(b: &mut Vec<u8>, value: Reject) {
    match value {
        Reject::TcpReset => put_u32(b, reject::TYPE, reject::TCP_RESET),
        Reject::IcmpUnreachable { code } => {
            put_u32(b, reject::TYPE, reject::ICMP);
            put(b, reject::CODE, &[code]);
        }
        Reject::IcmpxUnreachable { code } => {
            put_u32(b, reject::TYPE, reject::ICMPX);
            put(b, reject::CODE, &[code]);
        }
    }
}

fn put_update(b: &mut Vec<u8>, update: &SetUpdate) -> Result<(), EncodeError> {
    put_text(b, dynset::SET, &update.set)?;
    let operation = match update.change {
        SetChange::Add => 0,
        SetChange::Update => 1,
        SetChange::Delete => 2,
    };
    put_u32(b, dynset::OPERATION, operation);
    put_register(b, dynset::KEY, update.key);
    put_optional(b, dynset::DATA, update.data);
    if let Some(timeout) = update.timeout {
        put_milliseconds(b, dynset::TIMEOUT, timeout);
    }
    if update.inverted {
        put_u32(b, dynset::FLAGS, 1);
    }
    if update.counts {
        put_nested(b, dynset::EXPRESSION, |b| Expression::counter().put(b))?;
    }
    Ok(())
}
