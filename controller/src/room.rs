//! Places for connections of clients that have not shown who they are. When all places are taken, the address with the
//! most of them gives one up, so a flood of connections from one address displaces itself.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

/// Time that each client has even if others wait, unless its address has more places than theirs.
pub(crate) const MIN_TIME: Duration = Duration::from_secs(2);

/// The places.
#[derive(Debug)]
pub(crate) struct Room {
    places: usize,
    taken: Mutex<Taken>,
}

/// The clients at one address, the oldest first. A Unix socket has no addresses.
type Guests = BTreeMap<u64, Guest>;

#[derive(Debug, Default)]
struct Taken {
    /// The number of the next place. Smaller numbers are older.
    next: u64,
    count: usize,
    of: HashMap<Option<IpAddr>, Guests>,
}

#[derive(Debug)]
struct Guest {
    since: Instant,
    /// Dropped to ask the client to leave.
    _stays: oneshot::Sender<Infallible>,
}

/// A place in a room. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Seat {
    room: Arc<Room>,
    from: Option<IpAddr>,
    number: u64,
    leave: oneshot::Receiver<Infallible>,
}

impl Room {
    /// A room with this number of places.
    pub(crate) fn new(places: usize) -> Arc<Self> {
        Arc::new(Self {
            places,
            taken: Mutex::default(),
        })
    }

    /// A place for a client at this address. `None` if all places are taken and no client has to leave for this one.
    pub(crate) fn take(self: &Arc<Self>, from: Option<IpAddr>) -> Option<Seat> {
        let since = Instant::now();
        let mut taken = self.taken();
        if taken.count >= self.places && !taken.make_room(from, since) {
            return None;
        }
        let (stays, leave) = oneshot::channel();
        let number = taken.next;
        let guest = Guest {
            since,
            _stays: stays,
        };
        taken.next += 1;
        taken.count += 1;
        taken.of.entry(from).or_default().insert(number, guest);
        drop(taken);
        Some(Seat {
            room: self.clone(),
            from,
            number,
            leave,
        })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Takes the place of a client for one at `from`. Returns false if no client has to leave.
    fn make_room(&mut self, from: Option<IpAddr>, now: Instant) -> bool {
        let own = self.of.get(&from).map_or(0, BTreeMap::len);
        let fullest = self.of.iter().max_by_key(|(_, guests)| guests.len());
        let leaves = match fullest {
            // With one more place, the newcomer's address still has no more than the other one.
            Some((fullest, guests)) if guests.len() > own + 1 => {
                guests.keys().next().map(|oldest| (*fullest, *oldest))
            }
            // One of its own leaves, never one of another address.
            Some(_) if own > 1 => self.oldest_of(from, now),
            _ => self.oldest(now),
        };
        leaves.is_some_and(|(from, number)| self.remove(from, number))
    }

    /// The oldest client of an address, if it has had its time.
    fn oldest_of(&self, from: Option<IpAddr>, now: Instant) -> Option<(Option<IpAddr>, u64)> {
        let (number, guest) = self.of.get(&from)?.first_key_value()?;
        (now.saturating_duration_since(guest.since) >= MIN_TIME).then_some((from, *number))
    }

    /// The oldest client of all, if it has had its time.
    fn oldest(&self, now: Instant) -> Option<(Option<IpAddr>, u64)> {
        let first = |(from, guests): (&Option<IpAddr>, &Guests)| {
            let (number, guest) = guests.first_key_value()?;
            Some((*number, guest.since, *from))
        };
        let oldest = self.of.iter().filter_map(first);
        let (number, since, from) = oldest.min_by_key(|(number, ..)| *number)?;
        (now.saturating_duration_since(since) >= MIN_TIME).then_some((from, number))
    }

    fn remove(&mut self, from: Option<IpAddr>, number: u64) -> bool {
        let Some(guests) = self.of.get_mut(&from) else {
            return false;
        };
        let was_here = guests.remove(&number).is_some();
        if guests.is_empty() {
            self.of.remove(&from);
        }
        self.count -= usize::from(was_here);
        was_here
    }
}

impl Seat {
    /// Waits until the place is needed for another client, which then has it already.
    pub(crate) async fn evicted(&mut self) {
        // Nothing is ever sent. The receiver must not be polled again after that.
        let Err(_) = (&mut self.leave).await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.room.taken().remove(self.from, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures::FutureExt as _;
    use proptest::prelude::*;
    use tokio::runtime::Builder;

    use super::*;

    /// An address of a client.
    fn at(number: u32) -> Option<IpAddr> {
        Some(Ipv4Addr::from(0x0a00_0000 + number).into())
    }

    fn is_evicted(seat: &mut Seat) -> bool {
        seat.evicted().now_or_never().is_some()
    }

    fn paused(test: impl Future<Output = Result<(), TestCaseError>>) -> Result<(), TestCaseError> {
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(test)
    }

    proptest! {
        /// S-232. Law `room`: however many connections one address opens, others that have fewer get their places at
        /// once and keep them.
        #[test]
        fn a_flood_displaces_only_itself(places in 2_usize..40, flood in 1_usize..200, honest in 1_u32..20) {
            paused(async {
                let room = Room::new(places);
                let flood: Vec<_> = (0..flood).filter_map(|_| room.take(at(0))).collect();
                // More clients than this need the places of each other.
                let honest = honest.min(u32::try_from(places / 2).unwrap());
                let mut seats = Vec::new();
                for client in 1..=honest {
                    seats.push(room.take(at(client)).expect("a place"));
                }
                // The flood goes on.
                let more: Vec<_> = (0..places).filter_map(|_| room.take(at(0))).collect();
                prop_assert!(seats.iter_mut().all(|seat| !is_evicted(seat)));
                prop_assert!(room.taken().count <= places);
                drop((flood, more, seats));
                prop_assert_eq!(room.taken().count, 0);
                prop_assert!(room.taken().of.is_empty());
                Ok(())
            })?;
        }

        /// Law `room`: for any sequence of arrivals and departures, as many places are counted as clients were not
        /// asked to leave, and never more than there are.
        #[test]
        fn places_are_counted_exactly(
            places in 1_usize..8,
            steps in prop::collection::vec((0_u32..4, 0_u64..3, any::<prop::sample::Index>()), 0..60),
        ) {
            paused(async {
                let room = Room::new(places);
                let mut seats = Vec::new();
                for (client, seconds, index) in steps {
                    tokio::time::advance(Duration::from_secs(seconds)).await;
                    if client == 0 && !seats.is_empty() {
                        seats.swap_remove(index.index(seats.len()));
                    } else {
                        seats.extend(room.take(at(client)));
                    }
                    let here = seats.iter_mut().filter_map(|seat: &mut Seat| {
                        seat.leave.try_recv().err().filter(|why| *why == oneshot::error::TryRecvError::Empty)
                    });
                    let here = here.count();
                    prop_assert_eq!(room.taken().count, here);
                    prop_assert!(here <= places);
                }
                Ok(())
            })?;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn among_equals_the_oldest_leaves_after_its_time() {
        let room = Room::new(2);
        let mut first = room.take(at(1)).unwrap();
        let mut second = room.take(at(2)).unwrap();
        assert!(room.take(at(3)).is_none(), "both have just come");
        tokio::time::advance(MIN_TIME).await;
        let _third = room.take(at(3)).unwrap();
        assert!(is_evicted(&mut first) && !is_evicted(&mut second));
        drop(first);
        assert_eq!(room.taken().count, 2, "the place belongs to the third");
    }

    /// S-232: an address with many places gives up one of its own for its next client, never one of another address.
    #[tokio::test(start_paused = true)]
    async fn an_address_displaces_only_itself() {
        let room = Room::new(4);
        let mut honest = room.take(at(1)).unwrap();
        let mut flood: Vec<_> = (0..3).map(|_| room.take(at(2)).unwrap()).collect();
        assert!(room.take(at(2)).is_none(), "all of them are new");
        tokio::time::advance(MIN_TIME).await;
        let more: Vec<_> = (0..3).map(|_| room.take(at(2)).unwrap()).collect();
        assert!(!is_evicted(&mut honest));
        assert!(flood.iter_mut().all(is_evicted));
        drop(more);
    }
}
