//! Long-lived connections: an echo server in a pod, and the client's end of a connection.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::port;
use crate::namespace::Namespace;

/// The question for a name.
const WHO: &[u8] = b"who?";

/// A listener whose connections are echoed until their clients close them; asked [`WHO`], it says its
/// name.
pub(crate) fn serve(pod: &Namespace, name: &str, port: u16) -> Result<()> {
    let listener = pod
        .inside(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).context("listen for lines"))?;
    // Sockets belong to the namespace in which they were made: these threads may stay outside. They
    // end with the program, which has nothing to lose in them.
    let name = name.to_owned();
    std::thread::Builder::new()
        .name("echo".to_owned())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                let name = name.clone();
                std::thread::spawn(move || echo(stream, &name));
            }
        })?;
    Ok(())
}

fn echo(mut stream: TcpStream, name: &str) {
    let mut buffer = [0; 64];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        let said = &buffer[..length];
        let back = if said == WHO { name.as_bytes() } else { said };
        if stream.write_all(back).is_err() {
            return;
        }
    }
}

/// A client's end.
#[derive(Debug)]
pub(crate) struct Line {
    stream: TcpStream,
}

impl Line {
    pub(crate) fn open(client: &Namespace, to: SocketAddr, deadline: Duration) -> Result<Self> {
        let stream = client
            .inside(|| port::connect(to, deadline).with_context(|| format!("connect to {to}")))?;
        stream.set_read_timeout(Some(deadline))?;
        Ok(Self { stream })
    }

    /// Where it comes from.
    pub(crate) fn from(&self) -> Result<SocketAddr> {
        Ok(self.stream.local_addr()?)
    }

    /// The name of the server at the other end.
    pub(crate) fn name(&mut self) -> Result<String> {
        self.stream.write_all(WHO).context("ask for a name")?;
        let mut buffer = [0; 64];
        let length = self.stream.read(&mut buffer).context("hear a name")?;
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }

    /// Sends a word and waits until it comes back.
    pub(crate) fn lives(&mut self) -> Result<()> {
        let mut back = [0; 4];
        self.stream
            .write_all(b"ping")
            .context("send on the open connection")?;
        self.stream
            .read_exact(&mut back)
            .context("hear on the open connection")?;
        ensure!(&back == b"ping", "{back:?} came back");
        Ok(())
    }
}
