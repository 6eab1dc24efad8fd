//! Prints the sets of this network namespace with their entries.

use std::error::Error;
use std::io::{Write as _, stdout};

use ipset_rs::Socket;

fn main() -> Result<(), Box<dyn Error>> {
    let mut socket = Socket::open()?;
    let mut out = stdout().lock();
    for name in socket.names()? {
        let Some(set) = socket.list(&name)? else {
            continue;
        };
        writeln!(out, "create {name} {}", set.header.type_name)?;
        for entry in set.entries {
            writeln!(out, "add {name} {entry}")?;
        }
    }
    Ok(())
}
