//! Laws of the search, with models of two controllers and a paused clock (S-231). A model answers as a controller does:
//! it serves the agent if its objects are young enough at that moment.

use proptest::collection::vec;
use proptest::prelude::*;
use tokio::time::sleep;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// A controller.
#[derive(Debug, Clone)]
struct Model {
    /// Seconds at which it receives something from its API server, in order.
    contacts: Vec<u64>,
    /// Time until it answers, and from the answer to its first batch.
    latency: Duration,
    /// It never answers attempts that begin earlier.
    answers_from: Duration,
}

impl Model {
    fn new(contacts: Vec<u64>) -> Self {
        Self {
            contacts,
            latency: Duration::ZERO,
            answers_from: Duration::ZERO,
        }
    }

    fn age(&self, now: Duration) -> Duration {
        let contacts = self.contacts.iter().map(|at| Duration::from_secs(*at));
        let last = contacts.take_while(|at| *at <= now).last();
        now - last.unwrap_or_default()
    }
}

/// A move of the agent.
#[derive(Debug, Clone, Copy)]
struct Move {
    to: usize,
    /// When the controller compared its age.
    decided: Duration,
    /// When its first batch began.
    moved: Duration,
}

#[derive(Debug)]
struct World {
    start: Instant,
    controllers: [Model; 2],
}

impl World {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn age(&self, controller: usize) -> Duration {
        self.controllers[controller].age(self.now())
    }

    fn ask(self: Arc<Self>, to: usize, younger_than: Duration) -> Attempt<Move> {
        Box::pin(async move {
            let asked = &self.controllers[to];
            if self.now() < asked.answers_from {
                std::future::pending::<()>().await;
            }
            sleep(asked.latency).await;
            if self.age(to) >= younger_than {
                return None;
            }
            let decided = self.now();
            sleep(asked.latency).await;
            let moved = self.now();
            Some(Move { to, decided, moved })
        })
    }

    /// Follows a controller until the agent moves or the time is over. As a real one, it reports its age first, when
    /// it becomes outdated or current, and when it is outdated and its age decreases; it checks this every second.
    async fn follow(self: &Arc<Self>, followed: usize, end: Duration) -> Option<Move> {
        let mut search = Search::new("node-a".into());
        let mut last = self.age(followed);
        search.reported(Outdated::of(last));
        loop {
            let ask = |_, younger_than| Some(self.clone().ask(1 - followed, younger_than));
            let next = self.start + SECOND * u32::try_from(self.now().as_secs() + 1).unwrap();
            tokio::select! {
                biased;
                () = sleep_until(next) => {}
                found = search.found(ask) => return Some(found),
            }
            if self.now() >= end {
                return None;
            }
            let age = self.age(followed);
            let is_stale = |age: Duration| age >= Duration::from_secs(90);
            if is_stale(age) != is_stale(last) || (is_stale(age) && age < last) {
                search.reported(Outdated::of(age));
            }
            last = age;
        }
    }
}

/// All moves of an agent that begins at the first controller.
fn moves(controllers: [Model; 2], end: Duration) -> Vec<Move> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let start = Instant::now();
        let world = Arc::new(World { start, controllers });
        let (mut followed, mut moves) = (0, Vec::new());
        while let Some(found) = world.follow(followed, end).await {
            followed = found.to;
            moves.push(found);
        }
        moves
    })
}

/// The sums of gaps between contacts.
fn contacts(longest_gap: u64, count: usize) -> impl Strategy<Value = Vec<u64>> {
    vec(1..=longest_gap, 0..=count).prop_map(|gaps| {
        let sums = gaps.into_iter().scan(0, |sum, gap| {
            *sum += gap;
            Some(*sum)
        });
        sums.collect()
    })
}

fn model() -> impl Strategy<Value = Model> {
    let silent = prop_oneof![2 => Just(0_u64), 1 => 0..1000_u64];
    (contacts(400, 10), 0..20_000_u64, silent).prop_map(|(contacts, latency, silent)| Model {
        contacts,
        latency: Duration::from_millis(latency),
        answers_from: Duration::from_secs(silent),
    })
}

proptest! {
    /// Whatever the controllers receive, an agent moves only from an outdated controller to a current one whose
    /// objects are younger by 75 s.
    #[test]
    fn an_agent_moves_only_to_much_younger_objects(
        first in model(),
        second in model(),
    ) {
        let controllers = [first, second];
        for found in moves(controllers.clone(), SECOND * 2000) {
            // What the agent knows is as old as the last check of its controller.
            let check = Duration::from_secs(found.decided.as_secs());
            let from = controllers[1 - found.to].age(check) + (found.decided - check);
            let to = controllers[found.to].age(found.decided);
            prop_assert!(from >= SECOND * 90, "{found:?}: it was {from:?} old");
            prop_assert!(to < SECOND * 90, "{found:?}: it is {to:?} old");
            prop_assert!(to + SECOND * 75 <= from, "{found:?}: {from:?} to {to:?}");
        }
    }

    /// The API server is down for both. Their last events differ by the interval of bookmarks.
    #[test]
    fn no_agent_moves_if_all_controllers_lose_the_api_server(
        first in 0..=62_u64,
        second in 0..=62_u64,
        latency in 0..20_000_u64,
    ) {
        let lost = |last| Model {
            latency: Duration::from_millis(latency),
            ..Model::new(vec![last])
        };
        let moves = moves([lost(first), lost(second)], SECOND * 3600);
        prop_assert!(moves.is_empty(), "{moves:?}");
    }

    /// One controller is cut off; the other receives something every minute at least.
    #[test]
    fn an_agent_of_an_outdated_controller_moves_to_a_fresh_one_and_stays(
        last in 0..=60_u64,
        gaps in vec(1..=60_u64, 60..=80),
        latency in 0..4_000_u64,
        answers_from in prop_oneof![Just(0_u64), 0..400_u64],
    ) {
        let contacts = gaps.into_iter().scan(0, |sum, gap| {
            *sum += gap;
            Some(*sum)
        });
        let contacts: Vec<_> = contacts.collect();
        let end = Duration::from_secs(*contacts.last().unwrap());
        let fresh = Model {
            latency: Duration::from_millis(latency),
            answers_from: Duration::from_secs(answers_from),
            ..Model::new(contacts)
        };
        // By then the difference suffices. An attempt takes up to 30 s, and begins every 20 s.
        let limit = Duration::from_secs((last + 60 + 75).max(answers_from) + 30) + SECOND * 8;
        prop_assume!(limit < end);
        let moves = moves([Model::new(vec![last]), fresh], end);
        prop_assert_eq!(moves.len(), 1, "{:?}", moves);
        prop_assert!(moves[0].moved <= limit, "{moves:?} after {limit:?}");
    }
}

/// The agents of one controller do not all ask another one at once.
#[tokio::test(start_paused = true)]
async fn the_first_attempt_is_spread_over_ten_seconds() {
    let start = Instant::now();
    let mut begun = Vec::new();
    for node in 0..50 {
        let now = Instant::now();
        let mut search = Search::<()>::new(format!("node-{node}").into());
        search.reported(Outdated::of(STALE_AFTER));
        let ask = |_, _| -> Option<Attempt<()>> { Some(Box::pin(std::future::ready(Some(())))) };
        search.found(ask).await;
        begun.push(now.elapsed());
    }
    assert!(start.elapsed() >= SECOND * 500);
    let (first, last) = (begun.iter().min(), begun.iter().max());
    assert!(
        first >= Some(&(SECOND * 10)) && last <= Some(&(SECOND * 21)),
        "{begun:?}"
    );
    assert!(last > Some(&(SECOND * 15)), "{begun:?}");
}
