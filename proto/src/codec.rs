//! Messages of the stream as bytes.

use std::fmt;
use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, EncodeBuf, Encoder};
use tonic_prost::ProstDecoder;

use crate::CHUNK_BYTES;

/// What a stream begins to read into and to write into, in bytes; answers of agents fit, and small changes.
const ROOM_BYTES: usize = 2 * 1024;
/// No more messages are put together than this before they are handed on.
const YIELD_BYTES: usize = CHUNK_BYTES;

/// tonic's codec for protobuf, but for the room that messages take. A stream keeps, for as long as it lasts, the
/// buffer in which its largest message was written; tonic's own grows by doubling, so it is up to twice that
/// message. A controller has thousands of streams.
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
    BufferSettings::new(ROOM_BYTES, YIELD_BYTES)
}

/// Writes a message into exactly the room that it needs.
#[derive(Debug)]
pub struct PlanEncoder<T>(PhantomData<T>);

impl<T: Message> Encoder for PlanEncoder<T> {
    type Item = T;
    type Error = Status;

    fn encode(&mut self, item: T, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(item.encoded_len());
        item.encode(buffer)
            .map_err(|error| Status::internal(format!("write a message: {error}")))
    }

    fn buffer_settings(&self) -> BufferSettings {
        settings()
    }
}
