//! Connections that stay open: a pod that sends back what it gets, and a client's end of one.

use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::namespace::Namespace;

/// A listener whose connections are echoed until their clients close them; it ends with the last of
/// so many.
pub(super) fn serve(pod: &Namespace, port: u16) -> Result<()> {
    let listener = pod
        .inside(|| TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).context("listen for lines"))?;
    // Sockets belong to the namespace in which they were made: these threads may stay outside. They
    // end with the program, which has nothing to lose in them.
    std::thread::Builder::new()
        .name("echo".to_owned())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || echo(stream));
            }
        })?;
    Ok(())
}

fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 64];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

/// A client's end.
#[derive(Debug)]
pub(super) struct Line {
    stream: TcpStream,
}

impl Line {
    pub(super) fn open(client: &Namespace, to: SocketAddr, deadline: Duration) -> Result<Self> {
        let stream = client.inside(|| {
            TcpStream::connect_timeout(&to, deadline).with_context(|| format!("connect to {to}"))
        })?;
        stream.set_read_timeout(Some(deadline))?;
        Ok(Self { stream })
    }

    /// Where it comes from.
    pub(super) fn from(&self) -> Result<SocketAddr> {
        Ok(self.stream.local_addr()?)
    }

    /// Sends a word and waits until it comes back.
    pub(super) fn lives(&mut self) -> Result<()> {
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
