//! The refusal of a transaction.

use std::fmt;

use crate::batch::Refusal;
use crate::errno::Errno;

/// Why the kernel executed nothing of a transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Refused {
    /// Each refused operation, in their order. Of a message with elements, the kernel names only the first element.
    pub refusals: Vec<Refusal>,
    /// Why the transaction as a whole was refused.
    pub whole: Option<Errno>,
    /// Whether there were more refusals than the socket could receive.
    pub incomplete: bool,
}

impl Refused {
    /// The first error number.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        let first = self.refusals.first().map(|refusal| refusal.errno);
        self.whole.or(first)
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(errno) = self.whole {
            return write!(f, "the transaction was refused: {errno}");
        }
        let Some(first) = self.refusals.first() else {
            return f.write_str("the transaction was refused");
        };
        first.fmt(f)?;
        match self.refusals.len() {
            1 => Ok(()),
            many => write!(f, " (the first of {many} refused operations)"),
        }
    }
}
