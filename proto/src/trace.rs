//! Which trace a batch belongs to, as W3C Trace Context names it.

use std::fmt;

/// A trace, and the span in it that waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    /// The trace's id; never all zero.
    pub trace: [u8; 16],
    /// The span's id; never all zero.
    pub span: [u8; 8],
}

impl TraceContext {
    /// What stands in a message: the trace's 16 bytes, then the span's 8.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        [self.trace.as_slice(), &self.span].concat()
    }

    /// Reads what stands in a message; `None` for nothing, and for what is no context: a batch serves
    /// the node as well without one.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (trace, span) = bytes.split_first_chunk()?;
        let context = Self {
            trace: *trace,
            span: span.try_into().ok()?,
        };
        let valid = context.trace != [0; 16] && context.span != [0; 8];
        valid.then_some(context)
    }
}

/// The trace's id, as tools that show traces take it.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.trace
            .iter()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_read_as_it_was_written_and_anything_else_is_none() {
        let context = TraceContext {
            trace: *b"0123456789abcdef",
            span: *b"01234567",
        };
        let bytes = context.to_bytes();
        assert_eq!(TraceContext::from_bytes(&bytes), Some(context));
        assert_eq!(context.to_string(), "30313233343536373839616263646566");
        for wrong in [&bytes[..23], &bytes[..16], &[], &[0; 24], &[1; 25]] {
            assert_eq!(TraceContext::from_bytes(wrong), None, "{wrong:?}");
        }
        let no_span = [&bytes[..16], &[0; 8]].concat();
        assert_eq!(TraceContext::from_bytes(&no_span), None);
    }
}
