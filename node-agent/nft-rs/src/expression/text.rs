//! Expressions as text, like `nft --debug=netlink` prints them.

use std::fmt;

use super::{
    Direction, Expression, Masquerade, Nat, NatKind, Register, Reject, SetChange, SetUpdate,
};

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payload {
                base,
                offset,
                length,
                destination,
            } => write!(
                f,
                "payload load {length}b @ {base} header + {offset} => {destination}"
            ),
            Self::Meta { key, destination } => write!(f, "meta load {key} => {destination}"),
            Self::MetaSet { key, source } => write!(f, "meta set {key} with {source}"),
            Self::Conntrack {
                key,
                direction,
                destination,
            } => {
                write!(f, "ct load {key} => {destination}")?;
                f.write_str(match direction {
                    Some(Direction::Original) => ", original",
                    Some(Direction::Reply) => ", reply",
                    None => "",
                })
            }
            Self::Immediate { destination, value } => write!(f, "immediate {destination} {value}"),
            Self::Verdict(verdict) => verdict.fmt(f),
            Self::Counter { packets, bytes } => {
                write!(f, "counter {packets} packets {bytes} bytes")
            }
            Self::Nat(nat) => write_nat(f, nat),
            Self::Masquerade(masquerade) => write_masquerade(f, masquerade),
            Self::SetUpdate(update) => write_update(f, update),
            other => other.write_comparison(f),
        }
    }
}

impl Expression {
    fn write_comparison(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compare {
                source,
                operator,
                value,
            } => write!(f, "cmp {source} {operator} {value}"),
            Self::Range {
                source,
                inverted,
                first,
                last,
            } => {
                let operator = if *inverted { "!=" } else { "==" };
                write!(f, "range {source} {operator} {first} - {last}")
            }
            Self::Bitwise {
                source,
                destination,
                mask,
                xor,
            } => write!(f, "bitwise {destination} = ({source} & {mask}) ^ {xor}"),
            Self::Lookup {
                set,
                source,
                destination,
                inverted,
            } => {
                let not = if *inverted { "not " } else { "" };
                write!(f, "lookup {source} {not}in {set}")?;
                write_register(f, " => ", *destination)
            }
            other => other.write_rest(f),
        }
    }

    fn write_rest(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Numgen {
                random,
                modulus,
                offset,
                destination,
            } => {
                let kind = if *random { "random" } else { "inc" };
                write!(
                    f,
                    "numgen {kind} mod {modulus} offset {offset} => {destination}"
                )
            }
            Self::Jhash(hash) => {
                write!(f, "jhash {} {}b", hash.source, hash.length)?;
                if let Some(seed) = hash.seed {
                    write!(f, " seed {seed:#x}")?;
                }
                write!(
                    f,
                    " mod {} offset {} => {}",
                    hash.modulus, hash.offset, hash.destination
                )
            }
            Self::Reject(reject) => match reject {
                Reject::TcpReset => f.write_str("reject with tcp reset"),
                Reject::IcmpUnreachable { code } => write!(f, "reject with icmp code {code}"),
                Reject::IcmpxUnreachable { code } => write!(f, "reject with icmpx code {code}"),
            },
            Self::Fib {
                result,
                flags,
                destination,
            } => write!(f, "fib flags {:#x} {result} => {destination}", flags.0),
            Self::Other { name, attributes } => {
                write!(f, "{name} with {} attributes", attributes.len())
            }
            _ => Ok(()),
        }
    }
}

fn write_register(
    f: &mut fmt::Formatter<'_>,
    before: &str,
    register: Option<Register>,
) -> fmt::Result {
    match register {
        Some(register) => write!(f, "{before}{register}"),
        None => Ok(()),
    }
}

fn write_nat(f: &mut fmt::Formatter<'_>, nat: &Nat) -> fmt::Result {
    f.write_str(match nat.kind {
        NatKind::Source => "snat ",
        NatKind::Destination => "dnat ",
    })?;
    write!(f, "{}", nat.family)?;
    write_register(f, " to ", nat.address)?;
    write_register(f, " - ", nat.last_address)?;
    write_register(f, " port ", nat.port)?;
    write_register(f, " - ", nat.last_port)?;
    write_flags(f, nat.flags.0)
}

fn write_masquerade(f: &mut fmt::Formatter<'_>, masquerade: &Masquerade) -> fmt::Result {
    f.write_str("masquerade")?;
    write_register(f, " port ", masquerade.port)?;
    write_register(f, " - ", masquerade.last_port)?;
    write_flags(f, masquerade.flags.0)
}

fn write_flags(f: &mut fmt::Formatter<'_>, flags: u32) -> fmt::Result {
    if flags == 0 {
        return Ok(());
    }
    write!(f, " flags {flags:#x}")
}

fn write_update(f: &mut fmt::Formatter<'_>, update: &SetUpdate) -> fmt::Result {
    f.write_str(match update.change {
        SetChange::Add => "add ",
        SetChange::Update => "update ",
        SetChange::Delete => "delete ",
    })?;
    write!(f, "{} in {}", update.key, update.set)?;
    write_register(f, " : ", update.data)?;
    if let Some(timeout) = update.timeout {
        write!(f, " timeout {timeout:?}")?;
    }
    if update.inverted {
        f.write_str(" if full")?;
    }
    if update.counts {
        f.write_str(" counting")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Bytes, ConntrackKey, Family, FibFlags, NatFlags};

    const R0: Register = Register::R0;

    #[test]
    fn a_rule_reads_like_the_debug_output_of_nft() {
        let seconds = Duration::from_secs(10);
        let text: Vec<String> = [
            Expression::destination_address(Family::Ipv4, R0),
            Expression::protocol(Register::R1),
            Expression::conntrack_original(ConntrackKey::DestinationPort, R0),
            Expression::mask(R0, Bytes::from([0xff, 0xf0, 0, 0])),
            Expression::equal(R0, [10, 0, 0, 0]),
            Expression::lookup_missing("pods", R0),
            Expression::random(8, Register::R3),
            Expression::lookup_map("endpoint", R0, R0),
            Expression::jhash(R0, 4, 8, 0x12, Register::R3),
            Expression::dnat(Family::Ipv4, R0, Some(Register::R1)),
            Expression::masquerade_to_ports(NatFlags::FULLY_RANDOM, R0, Register::R1),
            Expression::address_type(FibFlags::SOURCE, R0),
            Expression::update_map("affinity", R0, Register::R4, seconds),
            Expression::reject_port(Family::Ipv6),
            Expression::goto("pick"),
        ]
        .iter()
        .map(Expression::to_string)
        .collect();
        assert_eq!(
            text,
            [
                "payload load 4b @ network header + 16 => r0",
                "meta load l4proto => r1",
                "ct load proto-dst => r0, original",
                "bitwise r0 = (r0 & 0xfff00000) ^ 0x00000000",
                "cmp r0 == 0x0a000000",
                "lookup r0 not in pods",
                "numgen random mod 8 offset 0 => r3",
                "lookup r0 in endpoint => r0",
                "jhash r0 4b seed 0x12 mod 8 offset 0 => r3",
                "dnat ip to r0 port r1",
                "masquerade port r0 - r1 flags 0x10",
                "fib flags 0x1 type => r0",
                "update r0 in affinity : r4 timeout 10s",
                "reject with icmp code 4",
                "goto pick",
            ]
        );
    }
}
