//! Tests timeouts of connections, verified with `ipvsadm`.

use ipvs_rs::{Request, Socket, Timeouts};

use crate::execute;
use netlink_blocking::testing::runner::output_of;

/// The timeouts as printed by `ipvsadm`.
fn shown_timeouts() -> String {
    output_of("ipvsadm", &["--list", "--timeout"])
        .trim()
        .to_owned()
}

pub(crate) fn timeouts_are_read_and_set() {
    output_of("ipvsadm", &["--set", "900", "120", "300"]);
    let mut socket = Socket::open().unwrap();
    let held = Timeouts {
        tcp: 900,
        tcp_fin: 120,
        udp: 300,
    };
    assert_eq!(socket.timeouts().unwrap(), held);
    let only_udp = Timeouts {
        udp: 60,
        ..Timeouts::default()
    };
    execute(&mut socket, &[Request::SetTimeouts(only_udp)]);
    assert_eq!(shown_timeouts(), "Timeout (tcp tcpfin udp): 900 120 60");
    let endless = Timeouts {
        tcp: u32::MAX,
        ..held
    };
    let refused = socket.execute(&[Request::SetTimeouts(endless)], 1);
    let refused = refused[0].as_ref().unwrap_err();
    assert_eq!(refused.errno(), Some(22), "{refused}");
    assert_eq!(shown_timeouts(), "Timeout (tcp tcpfin udp): 900 120 60");
}
