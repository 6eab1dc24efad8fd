//! Tests of the life of a connection.

use tokio::io::{AsyncWriteExt as _, duplex};
use tokio::time::advance;

use super::*;
use crate::open_files::Places;
use crate::room::{MIN_TIME, Room};

/// Timers fire a little after their time.
const MORE: Duration = Duration::from_secs(1);

fn peer() -> Peer {
    let origin = Origin {
        address: None,
        text: "test".into(),
    };
    Peer::new(origin, false, true)
}

/// A connection of this client in a room with one place.
fn connection(room: &Arc<Room>, peer: &Peer) -> (Connection, tokio::io::DuplexStream) {
    let (ours, theirs) = duplex(64);
    let places = (room.take(None).unwrap(), Places::default().take().unwrap());
    let connection = Connection::new(Box::new(ours), peer.clone(), Counter::default(), places);
    (connection, theirs)
}

/// Whether the connection has ended.
async fn is_over(connection: &mut Connection) -> bool {
    let read = connection.read_u8();
    let read = tokio::time::timeout(Duration::ZERO, read).await;
    read.is_ok_and(|read| read.is_err())
}

/// S-232.
#[tokio::test(start_paused = true)]
async fn a_connection_without_a_stream_ends_and_frees_its_place() {
    let room = Room::new(1);
    let (mut connection, _theirs) = connection(&room, &peer());
    assert!(!is_over(&mut connection).await);
    advance(ADMISSION_TIMEOUT + MORE).await;
    assert!(is_over(&mut connection).await);
    assert!(is_over(&mut connection).await, "it stays so");
    assert!(room.take(None).is_some());
}

#[tokio::test(start_paused = true)]
async fn an_admitted_connection_lasts_as_long_as_its_stream() {
    let (room, peer) = (Room::new(1), peer());
    let (mut connection, _theirs) = connection(&room, &peer);
    assert!(peer.may_ask() && peer.let_in());
    advance(10 * ADMISSION_TIMEOUT).await;
    assert!(!is_over(&mut connection).await);
    assert!(room.take(None).is_some(), "it takes no place");
    assert!(!peer.may_ask() && !peer.let_in(), "it has had its stream");
    peer.leave();
    assert!(!is_over(&mut connection).await, "a last message may follow");
    advance(LEAVE_TIMEOUT + MORE).await;
    assert!(is_over(&mut connection).await);
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_not_admitted_end_their_connection() {
    let (room, peer) = (Room::new(1), peer());
    let (mut connection, _theirs) = connection(&room, &peer);
    for _ in 0..MAX_REQUESTS {
        assert!(peer.may_ask());
    }
    assert!(!is_over(&mut connection).await);
    assert!(!peer.may_ask());
    assert!(!peer.let_in(), "one of them was still being reviewed");
    assert!(!is_over(&mut connection).await);
    assert!(room.take(None).is_none(), "it has its place to its end");
    advance(LEAVE_TIMEOUT + MORE).await;
    assert!(is_over(&mut connection).await);
    assert!(room.take(None).is_some());
}

/// S-232: HTTP/2 reads nothing while it has something to write.
#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_has_no_more_time() {
    let room = Room::new(1);
    let (mut connection, _theirs) = connection(&room, &peer());
    let written = tokio::time::timeout(2 * ADMISSION_TIMEOUT, connection.write_all(&[0; 100]));
    let error = written.await.expect("an end").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
}

/// S-232: frames without effect cost processor time.
#[tokio::test]
async fn a_stranger_sends_a_bounded_number_of_bytes() {
    for admitted in [false, true] {
        let (room, peer) = (Room::new(1), peer());
        let (mut connection, mut theirs) = connection(&room, &peer);
        if admitted {
            assert!(peer.let_in());
        }
        let sent = vec![0; 2 * MAX_STRANGER_BYTES];
        let sending = tokio::spawn(async move {
            let _sent = theirs.write_all(&sent).await;
        });
        let mut received = Vec::new();
        let read = connection.read_to_end(&mut received).await;
        assert_eq!(read.is_ok(), admitted);
        assert_eq!(received.len() <= MAX_STRANGER_BYTES + 64, !admitted);
        drop(connection);
        sending.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_leaves_for_others_unless_its_stream_was_admitted() {
    for admitted in [false, true] {
        let (room, peer) = (Room::new(1), peer());
        let (mut connection, _theirs) = connection(&room, &peer);
        assert!(!is_over(&mut connection).await);
        advance(MIN_TIME).await;
        assert!(room.take(None).is_some(), "the place is given to another");
        if admitted {
            assert!(peer.let_in());
        }
        assert_eq!(is_over(&mut connection).await, !admitted);
    }
}
