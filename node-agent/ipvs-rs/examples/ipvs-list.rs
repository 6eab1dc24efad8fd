//! Prints the virtual servers of this network namespace with their real servers.

use std::error::Error;
use std::io::{Write as _, stdout};

use ipvs_rs::Socket;

fn main() -> Result<(), Box<dyn Error>> {
    let mut socket = Socket::open()?;
    let mut out = stdout().lock();
    for service in socket.services()? {
        writeln!(out, "{service}")?;
        for destination in socket.destinations(&service.key)? {
            writeln!(out, "  -> {destination}")?;
        }
    }
    Ok(())
}
