//! The trace to which a batch belongs, as defined by W3C Trace Context.

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
    /// Encodes the context for a message: the trace's 16 bytes, then the span's 8.
    #[must_use]
    pub fn to_bytes(self) -> Vec<u8> {
        [self.trace.as_slice(), &self.span].concat()
    }

    /// Decodes the context of a message; `None` if it is empty or invalid. Tracing is optional, so an invalid context
    /// is not an error.
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

/// The trace's id in lower-case hexadecimal, as used by tracing tools.
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
