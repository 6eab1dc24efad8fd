//! When statuses are written, and by which of several controllers.

use std::sync::Arc;

use portolan_plan::PlanHash;
use proptest::prelude::*;

use super::*;
use crate::agent_registry::{Acked, AgentRegistry, InForce};
use crate::publish::status::status;

const NODE: &str = "node-a";

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
}

fn now(seconds: u64) -> Now {
    Now {
        elapsed: Duration::from_secs(seconds),
        wall: at(seconds),
    }
}

fn applied(connected: bool, since: u64) -> Delivery {
    let acked = Acked {
        applied: Some(PlanHash(1)),
        received: PlanHash(1),
        ..Acked::default()
    };
    Delivery {
        agent_version: "0.1.0".into(),
        agent_pod: Some("agent-1".into()),
        stream: StreamId::default(),
        connected,
        since: at(since),
        acked: Some((at(since), Arc::new(acked))),
        overdue: None,
        drifted: Some(Arc::default()),
        closed_ports: Arc::default(),
        unwritten_settings: Arc::default(),
        schedulers: Arc::default(),
        troubled: None,
        in_force: InForce::default(),
    }
}

fn written(delivery: &Delivery, seconds: u64) -> StatusRecord {
    let status = status(Some(delivery), at(seconds), &Previous::default());
    StatusRecord {
        previous: Previous::read(&status),
        heartbeat: Some(at(seconds)),
        written_at: Some(Duration::from_secs(seconds)),
        written_for: stream_of(Some(delivery)),
        ..StatusRecord::new(at(0))
    }
}

#[test]
fn a_first_answer_is_written_at_once() {
    let record = StatusRecord::new(at(0));
    assert_eq!(
        record.decide(Some(&applied(true, 1)), None, Duration::ZERO, now(1)),
        Decision::Write
    );
    let silent = Delivery {
        acked: None,
        ..applied(true, 1)
    };
    assert_eq!(
        record.decide(Some(&silent), None, Duration::ZERO, now(1)),
        Decision::Later(at(31))
    );
    assert_eq!(
        record.decide(Some(&silent), None, Duration::ZERO, now(31)),
        Decision::Write
    );
}

#[test]
fn an_unchanged_status_is_written_every_five_minutes() {
    let delivery = applied(true, 0);
    let record = written(&delivery, 10);
    let decide = |seconds| record.decide(Some(&delivery), None, Duration::ZERO, now(seconds));
    assert_eq!(decide(11), Decision::Later(at(310)));
    assert_eq!(decide(310), Decision::Write);
}

#[test]
fn a_changed_condition_is_written_at_once_within_the_rate() {
    let record = written(&applied(true, 0), 10);
    let failing = Acked {
        failed_operations: 1,
        ..Acked::default()
    };
    let delivery = Delivery {
        acked: Some((at(11), Arc::new(failing))),
        ..applied(true, 0)
    };
    let decide = |seconds| record.decide(Some(&delivery), None, Duration::ZERO, now(seconds));
    assert_eq!(decide(11), Decision::Later(at(15)));
    assert_eq!(decide(15), Decision::Write);
}

#[test]
fn another_agent_is_written_at_once() {
    let record = written(&applied(true, 0), 10);
    let version = Delivery {
        agent_version: "0.2.0".into(),
        ..applied(true, 20)
    };
    let pod = Delivery {
        agent_pod: Some("agent-2".into()),
        ..applied(true, 20)
    };
    for delivery in [version, pod] {
        let decide = |seconds| record.decide(Some(&delivery), None, Duration::ZERO, now(seconds));
        assert_eq!(decide(12), Decision::Later(at(15)));
        assert_eq!(decide(21), Decision::Write);
    }
}

#[test]
fn an_agent_that_reconnects_within_a_minute_is_not_absent() {
    let record = written(&applied(true, 0), 10);
    let gone = applied(false, 20);
    let decide = |seconds| record.decide(Some(&gone), None, Duration::ZERO, now(seconds));
    assert_eq!(decide(21), Decision::Later(at(80)));
    assert_eq!(
        decide(80),
        Decision::Check,
        "another controller may have its stream"
    );
    let confirmed = StatusRecord {
        absence: Absence::Confirmed,
        ..written(&applied(true, 0), 10)
    };
    assert_eq!(
        confirmed.decide(Some(&gone), None, Duration::ZERO, now(80)),
        Decision::Write
    );
}

#[test]
fn an_agent_that_never_connected_counts_as_absent_after_another_controllers_heartbeat_is_due() {
    let record = StatusRecord::new(at(0));
    assert_eq!(
        record.decide(None, None, Duration::ZERO, now(1)),
        Decision::Later(at(360))
    );
    assert_eq!(
        record.decide(None, None, Duration::ZERO, now(360)),
        Decision::Check
    );
}

/// The controller that had the agent before learns from this write that it moved.
#[test]
fn the_first_answer_on_a_new_stream_is_written_even_if_nothing_changed() {
    let registry = AgentRegistry::default();
    let open = |seconds| {
        let stream = registry.connected(NODE, "0.1.0", None, at(seconds)).id;
        Delivery {
            stream,
            ..applied(true, seconds)
        }
    };
    let (first, second) = (open(0), open(20));
    let mut record = written(&first, 10);
    let decide = |record: &StatusRecord, delivery, seconds| {
        record.decide(Some(delivery), None, Duration::ZERO, now(seconds))
    };
    assert_eq!(decide(&record, &first, 20), Decision::Later(at(310)));
    assert_eq!(decide(&record, &second, 20), Decision::Write);
    record.pending = Some(Pending {
        previous: record.previous.clone(),
        heartbeat: at(20),
        stream: Some(second.stream),
    });
    record.written(Duration::from_secs(20));
    assert_eq!(decide(&record, &second, 21), Decision::Later(at(320)));
}

#[test]
fn absence_is_reported_after_another_controller_had_time_to_write_all_statuses() {
    let record = written(&applied(true, 0), 10);
    let gone = applied(false, 20);
    let decide = |patience, seconds| {
        let patience = Duration::from_secs(patience);
        record.decide(Some(&gone), None, patience, now(seconds))
    };
    assert_eq!(decide(100, 80), Decision::Later(at(180)));
    assert_eq!(decide(100, 180), Decision::Check);
}

/// The times of another controller are only compared with each other.
#[test]
fn the_controller_that_wrote_last_is_responsible_however_its_clock_is_set() {
    let hour = Duration::from_secs(3600);
    for elsewhere in [at(70) - hour, at(70), at(70) + hour] {
        let mut record = written(&applied(true, 0), 10);
        let gone = applied(false, 20);
        let previous = record.previous.clone();
        assert!(!record.read(Some(at(10)), now(80)), "its own write");
        assert!(!record.read(None, now(80)), "a status that was removed");
        assert!(record.read(Some(elsewhere), now(80)));
        let decide = |record: &StatusRecord, seconds| {
            record.decide(Some(&gone), None, Duration::ZERO, now(seconds))
        };
        assert_eq!(decide(&record, 81), Decision::Later(at(440)));
        // A list has the same status: no other controller has written since.
        record.listed(
            previous.clone(),
            Some(elsewhere),
            now(400).elapsed,
            now(400),
        );
        assert_eq!(decide(&record, 401), Decision::Later(at(440)));
        assert_eq!(decide(&record, 440), Decision::Check);
        // The next one has another heartbeat.
        let later = elsewhere + Duration::from_secs(300);
        record.listed(previous, Some(later), now(450).elapsed, now(450));
        assert_eq!(decide(&record, 451), Decision::Later(at(810)));
    }
}

/// The stored status: its conditions and its heartbeat.
type Stored = Option<(Previous, SystemTime)>;

/// A controller of several.
struct Controller {
    record: StatusRecord,
    registry: AgentRegistry,
    stream: StreamId,
    /// How far its clock is ahead.
    ahead: Duration,
    /// The second of its first list.
    lists: u64,
}

impl Controller {
    fn new(number: u64, ahead: u64) -> Self {
        // No two controllers write at the same microsecond.
        let ahead = Duration::from_secs(ahead) + Duration::from_millis(number);
        Self {
            record: StatusRecord::new(at(0) + ahead),
            registry: AgentRegistry::default(),
            stream: StreamId::default(),
            ahead,
            lists: 200 * number,
        }
    }

    fn now(&self, second: u64) -> Now {
        Now {
            elapsed: Duration::from_secs(second),
            wall: at(second) + self.ahead,
        }
    }

    fn open(&mut self, second: u64) {
        let wall = self.now(second).wall;
        self.stream = self.registry.connected(NODE, "0.1.0", None, wall).id;
        let acked = Acked {
            applied: Some(PlanHash(1)),
            received: PlanHash(1),
            ..Acked::default()
        };
        self.registry.acked(NODE, acked, wall);
        self.record.absence = Absence::Unchecked;
    }

    fn close(&mut self, second: u64) {
        let wall = self.now(second).wall;
        self.registry.gone(NODE, self.stream, wall);
        self.record.absence = Absence::Unchecked;
    }

    /// Does what is due, with calls that take no time. Returns whether it reported the agent as absent.
    fn turn(&mut self, second: u64, stored: &mut Stored) -> bool {
        let now = self.now(second);
        if second % 600 == self.lists
            && let Some((previous, heartbeat)) = stored.clone()
        {
            let since = now.elapsed;
            self.record.listed(previous, Some(heartbeat), since, now);
        }
        loop {
            let delivery = self.registry.get(NODE);
            let stream = stream_of(delivery.as_ref());
            let decision = self
                .record
                .decide(delivery.as_ref(), None, Duration::ZERO, now);
            match decision {
                Decision::Later(_) => return false,
                Decision::Check => {
                    let heartbeat = stored.as_ref().map(|(_, heartbeat)| *heartbeat);
                    self.record.absence = if self.record.read(heartbeat, now) {
                        Absence::Unchecked
                    } else {
                        Absence::Confirmed
                    };
                }
                Decision::Write => {
                    let status = status(delivery.as_ref(), now.wall, &self.record.previous);
                    let previous = Previous::read(&status);
                    *stored = Some((previous.clone(), now.wall));
                    self.record.pending = Some(Pending {
                        previous,
                        heartbeat: now.wall,
                        stream,
                    });
                    self.record.written(now.elapsed);
                    self.record.absence = Absence::Unchecked;
                    return stream.is_none();
                }
            }
        }
    }
}

/// A stay at a controller: its seconds, the seconds until the next one, and the controller.
fn stay() -> impl Strategy<Value = (u64, u64, usize)> {
    (1..700_u64, 0..50_u64, 0..3_usize)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// An agent that moves between controllers is never reported as absent, whatever their clocks show. When it is
    /// really gone, the last one reports it after a minute. Without that one, another does.
    #[test]
    fn only_an_agent_without_any_stream_is_absent(
        ahead in prop::array::uniform3(0..600_u64),
        stays in prop::collection::vec(stay(), 1..5),
        last_is_gone in any::<bool>(),
    ) {
        let numbered = (0..).zip(ahead);
        let mut controllers: Vec<_> = numbered.map(|(number, ahead)| Controller::new(number, ahead)).collect();
        let (mut stored, mut second, mut last) = (None, 0, 0);
        for (seconds, away, to) in stays {
            last = to;
            controllers[to].open(second);
            // Otherwise it may never have written.
            let seconds = seconds.max(10);
            for passed in 0..seconds + away {
                if passed == seconds {
                    controllers[to].close(second);
                }
                for controller in &mut controllers {
                    prop_assert!(!controller.turn(second, &mut stored), "absent at {second} s");
                }
                second += 1;
            }
            controllers[to].close(second);
        }
        let end = second + if last_is_gone { 2 * 360 + 1 } else { 61 };
        let mut is_reported = false;
        while !is_reported && second < end {
            for (number, controller) in controllers.iter_mut().enumerate() {
                if !(last_is_gone && number == last) {
                    is_reported |= controller.turn(second, &mut stored);
                }
            }
            second += 1;
        }
        prop_assert!(is_reported, "not reported by {second} s");
    }
}
