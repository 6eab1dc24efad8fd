//! The codec of the stream: encodes and decodes its messages.

use std::fmt;
use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

use crate::CHUNK_BYTES;

/// The initial size of a stream's read and write buffers, in bytes. Agents' answers and small changes fit.
const INITIAL_BUFFER_BYTES: usize = 2 * 1024;
/// The number of encoded bytes after which a stream hands its messages to the transport.
const YIELD_THRESHOLD_BYTES: usize = CHUNK_BYTES;

/// A protobuf codec like tonic's, with smaller buffers. A stream keeps the buffer of its largest message for its
/// whole life, and tonic's buffer grows by doubling to up to twice the size of that message. This matters because a
/// controller has thousands of streams.
pub struct PlanCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for PlanCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> fmt::Debug for PlanCodec<T, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlanCodec")
    }
}

impl<T, U> Codec for PlanCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = PlanEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        PlanEncoder(PhantomData)
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::new(settings())
    }
}

fn settings() -> BufferSettings {
    BufferSettings::new(INITIAL_BUFFER_BYTES, YIELD_THRESHOLD_BYTES)
}

/// Reserves exactly the size of a message before encoding it.
#[derive(Debug)]
pub struct PlanEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for PlanEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(item.encoded_len());
        item.encode(buffer)
            .map_err(|error| Status::internal(format!("encode a message for the stream: {error}")))
    }

    fn buffer_settings(&self) -> BufferSettings {
        settings()
    }
}
