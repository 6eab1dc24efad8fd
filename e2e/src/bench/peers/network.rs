//! The measured node between its client and all other pods, each in a namespace of its own.

use std::io::{ErrorKind, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use anyhow::{Context as _, Result};
use socket2::SockRef;

use super::objects::TARGET_PORT;
use crate::bench::scale::ADDRESS;
use crate::namespace::{Namespace, Temporary};
use crate::program::Program;
use crate::topology::PREFIX;

/// The other end of the node's network.
const OTHERS: &str = "192.168.50.12";
/// The node for its pods, and the client among them.
const GATEWAY: &str = "10.244.1.1";
const CLIENT: &str = "10.244.1.2";
/// Connections that wait for the server.
const BACKLOG: i32 = 4096;

/// It is removed when it is dropped.
pub(super) struct Network {
    // The order matters: the server ends before its namespace.
    _server: Server,
    client: Temporary,
    node: Temporary,
    _pods: Temporary,
}

impl Network {
    /// Makes the namespaces, their links and routes, and starts the server.
    pub(super) fn make() -> Result<Self> {
        let make = |name: &str| Temporary::make(&format!("{PREFIX}peers-{name}"));
        let (pods, node, client) = (make("pods")?, make("node")?, make("client")?);
        let name = |of: &Temporary| of.namespace().name().to_owned();
        let (of_pods, of_node, of_client) = (name(&pods), name(&node), name(&client));
        let batches = [
            (
                &of_node,
                format!(
                    "link add eth0 type veth peer name eth0 netns {of_pods}\n\
                     link add pod0 type veth peer name eth0 netns {of_client}\n\
                     address add {ADDRESS}/24 dev eth0\nlink set eth0 up\n\
                     address add {GATEWAY}/24 dev pod0\nlink set pod0 up\n"
                ),
            ),
            (
                &of_pods,
                format!(
                    "address add {OTHERS}/24 dev eth0\nlink set eth0 up\n\
                     route add local 10.128.0.0/9 dev lo\nroute add 10.244.0.0/16 via {ADDRESS}\n"
                ),
            ),
            (
                &of_client,
                format!(
                    "address add {CLIENT}/24 dev eth0\nlink set eth0 up\nroute add default via {GATEWAY}\n"
                ),
            ),
            (&of_node, format!("route add 10.128.0.0/9 via {OTHERS}\n")),
        ];
        for (namespace, batch) in batches {
            Program::Ip.run_with_input(&["-n", namespace, "-batch", "-"], &batch)?;
        }
        let forward = ("net/ipv4/ip_forward".to_owned(), "1");
        node.namespace().set(&[forward])?;
        Ok(Self {
            _server: Server::start(pods.namespace())?,
            client,
            node,
            _pods: pods,
        })
    }

    /// Where the proxy runs.
    pub(super) fn node(&self) -> &Namespace {
        self.node.namespace()
    }

    /// Where connections come from.
    pub(super) fn client(&self) -> &Namespace {
        self.client.namespace()
    }
}

/// Answers at every endpoint with the address that was dialed.
struct Server {
    listener: TcpListener,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Server {
    fn start(namespace: &Namespace) -> Result<Self> {
        let listener = namespace.inside(|| {
            let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, TARGET_PORT));
            let listener = TcpListener::bind(any).with_context(|| format!("listen on {any}"))?;
            SockRef::from(&listener).listen(BACKLOG)?;
            Ok(listener)
        })?;
        let accepting = listener.try_clone()?;
        let thread = namespace.start("server", move || {
            loop {
                match accepting.accept() {
                    Ok((stream, _)) => answer(stream),
                    // The socket was shut down.
                    Err(error) if error.kind() == ErrorKind::InvalidInput => return Ok(()),
                    // The connection was reset before.
                    Err(_) => {}
                }
            }
        })?;
        Ok(Self {
            listener,
            thread: Some(thread),
        })
    }
}

/// Writes the address that was dialed. The client may be gone.
fn answer(mut stream: TcpStream) {
    if let Ok(IpAddr::V4(own)) = stream.local_addr().map(|address| address.ip()) {
        drop(stream.write_all(&own.octets()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Without it the thread would wait for ever, so it is left alone if this fails.
        if SockRef::from(&self.listener)
            .shutdown(Shutdown::Both)
            .is_ok()
            && let Some(thread) = self.thread.take()
        {
            drop(thread.join());
        }
    }
}
