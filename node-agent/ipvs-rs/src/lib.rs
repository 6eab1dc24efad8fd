//! IPVS over generic netlink: a codec without I/O and a small blocking socket.
