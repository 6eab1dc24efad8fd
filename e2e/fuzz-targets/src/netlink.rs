//! Datagrams from the kernel.

use portolan_agent::kernel::linux::flows_in;

/// IPVS answers. A decoded answer is encoded so that it decodes to the same value.
pub(crate) fn ipvs(datagram: &[u8]) {
    let envelope = ipvs_rs::Envelope {
        family_id: 32,
        sequence: 1,
        acknowledge: true,
    };
    for message in ipvs_rs::messages(datagram).map_while(Result::ok) {
        let Ok(reply) = ipvs_rs::Reply::decode(&message) else {
            continue;
        };
        let mut written = Vec::new();
        if reply.encode(envelope, &mut written).is_ok() {
            let again = ipvs_rs::messages(&written).next().and_then(Result::ok);
            let again = again.and_then(|message| ipvs_rs::Reply::decode(&message).ok());
            assert_eq!(again, Some(reply));
        }
    }
}

/// ipset answers. A decoded answer is encoded so that it can be decoded.
pub(crate) fn ipset(datagram: &[u8]) {
    let envelope = ipset_rs::Envelope {
        sequence: 1,
        protocol: 7,
        acknowledge: true,
    };
    for message in ipset_rs::messages(datagram).map_while(Result::ok) {
        let failed = ipset_rs::failed_line(&message);
        assert!(failed.is_none() || ipset_rs::error_code(&message).is_some());
        let Ok(reply) = ipset_rs::Reply::decode(&message) else {
            continue;
        };
        let mut written = Vec::new();
        if reply.encode(envelope, &mut written).is_ok() {
            let again = ipset_rs::messages(&written).next().and_then(Result::ok);
            assert!(again.is_some_and(|message| ipset_rs::Reply::decode(&message).is_ok()));
        }
    }
}

/// nf_tables answers and transactions. A decoded message is encoded so that it decodes to the same value.
pub(crate) fn nft(datagram: &[u8]) {
    let envelope = nft_rs::Envelope {
        sequence: 1,
        acknowledge: true,
    };
    for message in nft_rs::messages(datagram).map_while(Result::ok) {
        let place = nft_rs::failed_offset(&message);
        assert!(place.is_none() || nft_rs::error_code(&message).is_some());
        let mut written = Vec::new();
        if let Ok(reply) = nft_rs::Reply::decode(&message)
            && reply.encode(envelope, &mut written).is_ok()
        {
            let again = nft_rs::messages(&written).next().and_then(Result::ok);
            let again = again.and_then(|message| nft_rs::Reply::decode(&message).ok());
            assert_eq!(again, Some(reply));
        }
        let mut written = Vec::new();
        if let Ok(operation) = nft_rs::Operation::decode(&message)
            && operation.encode(envelope, &mut written).is_ok()
        {
            let again = nft_rs::messages(&written).next().and_then(Result::ok);
            let again = again.and_then(|message| nft_rs::Operation::decode(&message).ok());
            assert_eq!(again, Some(operation));
        }
    }
}

/// Connection tracking. A datagram has no more flows than messages.
pub(crate) fn conntrack(datagram: &[u8]) {
    let messages = ipvs_rs::messages(datagram).map_while(Result::ok).count();
    assert!(flows_in(datagram).len() <= messages);
}
