use proptest::prelude::*;

use super::*;

/// A cluster whose DaemonSets converge immediately.
#[derive(Debug, Clone)]
struct World {
    sets: Sets,
    current: String,
    target: Option<String>,
    members: Vec<Member>,
}

/// Something that happens.
#[derive(Debug, Clone)]
enum Act {
    Begin(u8),
    Reach(u8),
    Complete,
    TakeBack,
    /// A change without waves.
    AtOnce(u8),
    /// A manual change: a DaemonSet that took labelled nodes takes the rest.
    Widen(bool),
    Join,
    Relabel(u8, Option<bool>),
    Delete(bool),
    /// The controller decides, and this many of the moves are carried out.
    Decide(u8),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0..4u8).prop_map(Act::Begin),
        6 => any::<u8>().prop_map(Act::Reach),
        3 => Just(Act::Complete),
        2 => Just(Act::TakeBack),
        1 => (0..4u8).prop_map(Act::AtOnce),
        1 => any::<bool>().prop_map(Act::Widen),
        1 => Just(Act::Join),
        1 => (any::<u8>(), any::<Option<bool>>()).prop_map(|(node, to)| Act::Relabel(node, to)),
        1 => any::<bool>().prop_map(Act::Delete),
        12 => (0..4u8).prop_map(Act::Decide),
    ]
}

fn track(blue: bool) -> Track {
    if blue { Track::Blue } else { Track::Green }
}

impl World {
    fn new(nodes: usize) -> Self {
        let mut world = Self {
            sets: Sets::default(),
            current: "0".into(),
            target: None,
            members: Vec::new(),
        };
        (0..nodes).for_each(|_| world.join());
        world
    }

    fn join(&mut self) {
        self.members.push(Member {
            name: format!("node-{}", self.members.len()).into(),
            label: None,
            reached: false,
        });
    }

    fn settle(&mut self, current: String) {
        (self.current, self.target) = (current, None);
        self.members
            .iter_mut()
            .for_each(|member| member.reached = false);
    }

    fn decided(&self) -> Assignment {
        let wanted = Wanted {
            current: &self.current,
            target: self.target.as_deref(),
        };
        let tracks = self.members.iter().filter_map(|member| self.at(member));
        let there = tracks.filter(|track| self.sets.get(*track).is_some());
        assign(&self.sets, wanted, &self.members, &there.collect())
    }

    fn at(&self, member: &Member) -> Option<Track> {
        self.sets.of(member.label)
    }

    /// The template of the pod on the node; `None` without a pod.
    fn agents(&self, member: &Member) -> Option<Arc<str>> {
        Some(self.sets.get(self.at(member)?)?.agents.clone())
    }

    fn follow(&mut self, assignment: &Assignment, most: usize) {
        self.sets = assignment.sets.clone();
        for one in assignment.moves.iter().take(most) {
            let found = self
                .members
                .iter_mut()
                .find(|member| member.name == one.node);
            found.unwrap().label = one.label;
        }
    }

    fn happen(&mut self, act: &Act) {
        match act {
            Act::Begin(agents) => {
                let agents = agents.to_string();
                self.members
                    .iter_mut()
                    .for_each(|member| member.reached = false);
                self.target = Some(agents).filter(|agents| *agents != self.current);
            }
            Act::Reach(number) => {
                let count = self.members.len();
                let index = usize::from(*number).checked_rem(count).unwrap_or_default();
                if let (Some(member), Some(_)) = (self.members.get_mut(index), &self.target) {
                    member.reached = true;
                }
            }
            Act::Complete => {
                let target = self.target.clone();
                let all = |member: &Member| {
                    member.reached && self.agents(member).as_deref() == self.target.as_deref()
                };
                if let (Some(target), true) = (target, self.members.iter().all(all)) {
                    self.settle(target);
                }
            }
            Act::TakeBack => self.settle(self.current.clone()),
            Act::AtOnce(agents) => self.settle(agents.to_string()),
            Act::Widen(blue) => {
                if let Some(held) = self.sets.get(track(*blue)).cloned() {
                    self.sets.put(track(*blue), &held.agents, Takes::Rest);
                }
            }
            Act::Join => self.join(),
            Act::Relabel(number, to) => {
                let count = self.members.len();
                let index = usize::from(*number).checked_rem(count).unwrap_or_default();
                if let Some(member) = self.members.get_mut(index) {
                    member.label = to.map(track);
                }
            }
            Act::Delete(blue) if *blue => self.sets.blue = None,
            Act::Delete(_) => self.sets.green = None,
            Act::Decide(most) => {
                let assignment = self.decided();
                self.follow(&assignment, usize::from(*most));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// From any state, each node ends with its wanted agents, and then no more moves follow.
    #[test]
    fn every_node_ends_with_the_agents_that_it_should_have(
        nodes in 0..6usize,
        acts in prop::collection::vec(act(), 0..60),
    ) {
        let mut world = World::new(nodes);
        acts.iter().for_each(|act| world.happen(act));
        for _ in 0..40 {
            let assignment = world.decided();
            world.follow(&assignment, 2);
        }
        let last = world.decided();
        prop_assert_eq!(&last.sets, &world.sets);
        prop_assert!(last.moves.is_empty(), "{:?} in {:?}", last.moves, world);
        for member in &world.members {
            let wanted = match &world.target {
                Some(target) if member.reached => target,
                _ => &world.current,
            };
            let agents = world.agents(member);
            prop_assert_eq!(agents.as_deref(), Some(&**wanted), "{}", member.name);
        }
        // New nodes get agents without a label while no rollout is in progress.
        let rest = Track::ALL.map(|track| world.sets.takes(track) == Some(Takes::Rest));
        prop_assert!(rest != [true, true]);
        prop_assert!(rest != [false, false] || world.target.is_some());
    }

    /// A pod may be recreated at any time. No node that the rollout has not reached gets the new agents, and no pod
    /// is recreated because of what happens to other nodes.
    #[test]
    fn no_node_gets_agents_that_the_rollout_did_not_reach(
        nodes in 1..6usize,
        acts in prop::collection::vec(act(), 0..80),
    ) {
        let mut world = World::new(nodes);
        for act in acts {
            let before: Vec<_> = world.members.iter().map(|member| world.agents(member)).collect();
            world.happen(&act);
            if !matches!(act, Act::Decide(_)) {
                continue;
            }
            for (member, before) in world.members.iter().zip(before) {
                let after = world.agents(member);
                let current = after.as_deref() == Some(&world.current);
                let target = member.reached && after.as_deref() == world.target.as_deref();
                prop_assert!(after == before || current || target, "{} has {after:?}, had {before:?}", member.name);
            }
        }
    }

    /// Without manual changes, a rollout of agents restarts each agent exactly once.
    #[test]
    fn a_change_moves_each_node_once(nodes in 1..8usize, changes in 1..5u8) {
        let mut world = World::new(nodes);
        for number in 1..=changes {
            for _ in 0..4 {
                world.happen(&Act::Decide(9));
            }
            world.happen(&Act::Begin(number));
            let mut moves = 0;
            for index in 0..nodes {
                world.happen(&Act::Reach(u8::try_from(index).unwrap()));
                for _ in 0..3 {
                    let assignment = world.decided();
                    moves += assignment.moves.len();
                    world.follow(&assignment, 9);
                }
            }
            prop_assert_eq!(moves, nodes);
            world.happen(&Act::Complete);
            prop_assert_eq!(&world.current, &number.to_string());
            let assignment = world.decided();
            prop_assert!(assignment.moves.is_empty());
            world.follow(&assignment, 0);
        }
    }
}

#[test]
fn rollbacks_are_paced_and_nodes_without_an_agent_move_at_once() {
    let one = |node: &str, back| Move {
        node: node.into(),
        to: Track::Blue,
        label: None,
        back,
    };
    let moves = [
        one("broken", true),
        one("reached", false),
        one("sound-1", true),
        one("sound-2", true),
        one("sound-3", true),
    ];
    let due = |under_way, most| {
        let due = due(&moves, under_way, most, |node| node.starts_with("sound"));
        due.iter()
            .map(|one| one.node.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(due(0, 2), ["broken", "reached", "sound-1", "sound-2"]);
    assert_eq!(due(1, 2), ["broken", "reached", "sound-1"]);
    assert_eq!(due(2, 2), ["broken", "reached"]);
}
