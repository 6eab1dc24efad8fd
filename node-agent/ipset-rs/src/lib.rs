//! ipset over nfnetlink, many entries a message: a codec without I/O and a small blocking socket.
