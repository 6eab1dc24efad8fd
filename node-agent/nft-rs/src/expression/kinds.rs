//! Numbers of the attributes of expressions.

pub(super) const NAME: u16 = 1;
pub(super) const DATA: u16 = 2;

/// Of a value: a verdict in place of bytes.
pub(super) const VERDICT: u16 = 2;
pub(super) const VERDICT_CODE: u16 = 1;
pub(super) const VERDICT_CHAIN: u16 = 2;
/// The register of verdicts.
pub(super) const VERDICT_REGISTER: u32 = 0;

pub(super) mod payload {
    pub(in crate::expression) const DESTINATION: u16 = 1;
    pub(in crate::expression) const BASE: u16 = 2;
    pub(in crate::expression) const OFFSET: u16 = 3;
    pub(in crate::expression) const LENGTH: u16 = 4;
}

pub(super) mod meta {
    pub(in crate::expression) const DESTINATION: u16 = 1;
    pub(in crate::expression) const KEY: u16 = 2;
    pub(in crate::expression) const SOURCE: u16 = 3;
}

pub(super) mod conntrack {
    pub(in crate::expression) const DESTINATION: u16 = 1;
    pub(in crate::expression) const KEY: u16 = 2;
    pub(in crate::expression) const DIRECTION: u16 = 3;
}

pub(super) mod compare {
    pub(in crate::expression) const SOURCE: u16 = 1;
    pub(in crate::expression) const OPERATOR: u16 = 2;
    pub(in crate::expression) const VALUE: u16 = 3;
}

pub(super) mod range {
    pub(in crate::expression) const SOURCE: u16 = 1;
    pub(in crate::expression) const OPERATOR: u16 = 2;
    pub(in crate::expression) const FIRST: u16 = 3;
    pub(in crate::expression) const LAST: u16 = 4;
}

pub(super) mod bitwise {
    pub(in crate::expression) const SOURCE: u16 = 1;
    pub(in crate::expression) const DESTINATION: u16 = 2;
    pub(in crate::expression) const LENGTH: u16 = 3;
    pub(in crate::expression) const MASK: u16 = 4;
    pub(in crate::expression) const XOR: u16 = 5;
    pub(in crate::expression) const OPERATION: u16 = 6;
}

pub(super) mod lookup {
    pub(in crate::expression) const SET: u16 = 1;
    pub(in crate::expression) const SOURCE: u16 = 2;
    pub(in crate::expression) const DESTINATION: u16 = 3;
    pub(in crate::expression) const SET_ID: u16 = 4;
    pub(in crate::expression) const FLAGS: u16 = 5;
}

pub(super) mod immediate {
    pub(in crate::expression) const DESTINATION: u16 = 1;
    pub(in crate::expression) const VALUE: u16 = 2;
}

pub(super) mod numgen {
    pub(in crate::expression) const DESTINATION: u16 = 1;
    pub(in crate::expression) const MODULUS: u16 = 2;
    pub(in crate::expression) const TYPE: u16 = 3;
    pub(in crate::expression) const OFFSET: u16 = 4;
}

pub(super) mod hash {
    pub(in crate::expression) const SOURCE: u16 = 1;
    pub(in crate::expression) const DESTINATION: u16 = 2;
    pub(in crate::expression) const LENGTH: u16 = 3;
    pub(in crate::expression) const MODULUS: u16 = 4;
    pub(in crate::expression) const SEED: u16 = 5;
    pub(in crate::expression) const OFFSET: u16 = 6;
    pub(in crate::expression) const TYPE: u16 = 7;
}

pub(super) mod nat {
    pub(in crate::expression) const TYPE: u16 = 1;
    pub(in crate::expression) const FAMILY: u16 = 2;
    pub(in crate::expression) const ADDRESS: u16 = 3;
    pub(in crate::expression) const LAST_ADDRESS: u16 = 4;
    pub(in crate::expression) const PORT: u16 = 5;
    pub(in crate::expression) const LAST_PORT: u16 = 6;
    pub(in crate::expression) const FLAGS: u16 = 7;
}

pub(super) mod masquerade {
    pub(in crate::expression) const FLAGS: u16 = 1;
    pub(in crate::expression) const PORT: u16 = 2;
    pub(in crate::expression) const LAST_PORT: u16 = 3;
}

pub(super) mod reject {
    pub(in crate::expression) const TYPE: u16 = 1;
    pub(in crate::expression) const CODE: u16 = 2;
    pub(in crate::expression) const ICMP: u32 = 0;
    pub(in crate::expression) const TCP_RESET: u32 = 1;
    pub(in crate::expression) const ICMPX: u32 = 2;
}

pub(super) mod fib {
    pub(in crate::expression) const DESTINATION: u16 = 1;
    pub(in crate::expression) const RESULT: u16 = 2;
    pub(in crate::expression) const FLAGS: u16 = 3;
}

pub(super) mod dynset {
    pub(in crate::expression) const SET: u16 = 1;
    pub(in crate::expression) const SET_ID: u16 = 2;
    pub(in crate::expression) const OPERATION: u16 = 3;
    pub(in crate::expression) const KEY: u16 = 4;
    pub(in crate::expression) const DATA: u16 = 5;
    pub(in crate::expression) const TIMEOUT: u16 = 6;
    pub(in crate::expression) const EXPRESSION: u16 = 7;
    pub(in crate::expression) const PAD: u16 = 8;
    pub(in crate::expression) const FLAGS: u16 = 9;
}

pub(super) mod counter {
    pub(in crate::expression) const BYTES: u16 = 1;
    pub(in crate::expression) const PACKETS: u16 = 2;
    pub(in crate::expression) const PAD: u16 = 3;
}
