//! The ProxyConfig: that it is there, what it says about publishing, and its status.

use std::time::Duration;

use portolan_crds as crds;
use portolan_crds::condition;
use portolan_plan::Settings;
use tracing::info;

use super::{Desk, Now, WRITES_PER_SECOND};
use crate::from_kube;
use crate::publish::config_status::{ConfigJudged, config_status};
use crate::publish::content::ContentHash;
use crate::publish::news;
use crate::publish::plan::SettingsRevision;
use crate::publish::previous::since;
use crate::publish::queue::Class;
use crate::publish::write::{Act, Kind, Target};

/// How often it is read: what it says about publishing is in no plan.
const PERIOD: Duration = Duration::from_secs(30);
/// The same while its newest settings are not known yet to whoever plans.
const SOON: Duration = Duration::from_secs(5);
/// The name of the only one.
pub(super) const NAME: &str = "default";

/// What is known of the ProxyConfig.
#[derive(Debug, Default)]
pub(super) struct ConfigRecord {
    /// A call about it is under way.
    busy: bool,
    read: bool,
    /// Since when the settings in force are of a generation that is not known.
    stale_since: Option<Duration>,
    status_written: Option<Duration>,
    judged: Option<ConfigJudged>,
    /// The number of the settings that nodes have whom no change has reached.
    number: Option<u64>,
}

impl ConfigRecord {
    /// Whether it is known what it says.
    pub(super) fn is_read(&self) -> bool {
        self.read
    }

    /// Whether a plan should wait for the generation of its settings.
    pub(super) fn awaits_settings(
        &self,
        settings: &Settings,
        revision: &SettingsRevision,
        now: Now,
        most: Duration,
    ) -> bool {
        let known = revision.known.as_ref();
        let is_known = known.is_some_and(|(_, known)| known == settings);
        let recently = |since: Duration| now.elapsed < since + most;
        !is_known && self.stale_since.is_some_and(recently)
    }

    pub(super) fn status_not_written(&mut self) {
        self.busy = false;
        self.status_written = None;
    }

    pub(super) fn not_read(&mut self) {
        self.busy = false;
    }
}

impl Desk {
    /// Settings reach nodes and this place by different ways.
    pub(super) fn settings_may_differ(
        &mut self,
        nodes: &std::collections::BTreeSet<std::sync::Arc<str>>,
        now: Now,
    ) {
        if nodes.is_empty() {
            return;
        }
        let settings = self.shared.read().planner.model().settings();
        let known = self.revision.known.as_ref();
        if known.is_none_or(|(_, known)| *known != settings) {
            self.config.stale_since.get_or_insert(now.elapsed);
            self.look(Target::Config, Class::Urgent, now);
        }
    }

    pub(super) fn look_at_config(&mut self, now: Now) {
        self.queue
            .push(Target::Config, Class::Plan, now.elapsed + PERIOD);
        if !self.config.busy {
            self.config.busy = true;
            self.issue(Target::Config, Kind::Config, NAME, Act::Read);
        }
    }

    pub(super) fn config_read(&mut self, config: Option<&crds::ProxyConfig>, now: Now) {
        self.config.busy = false;
        let Some(config) = config else {
            info!("there is no ProxyConfig default: it is created with an empty spec");
            self.config.busy = true;
            return self.issue(Target::Config, Kind::Config, NAME, Act::Create);
        };
        self.config.read = true;
        self.follow_publish(config);
        self.follow_revision(now);
        self.judge_config(config, now);
        self.follow_size(now);
        self.write_config_status(config, now);
    }

    /// Settings are given their number when they are in force already, and then nobody answers anything.
    fn follow_revision(&mut self, now: Now) {
        let known = self.shared.read();
        let config = known.planner.model().config_in_force();
        let number = config.and_then(|config| config.current.number);
        drop(known);
        if std::mem::replace(&mut self.config.number, number) != number {
            self.look_at_all_plans(Class::Background, now);
        }
    }

    fn follow_publish(&mut self, config: &crds::ProxyConfig) {
        let publish = config.spec.publish.clone().unwrap_or_default();
        self.sharing = publish.shared.unwrap_or_default();
        let per_second = publish.writes_per_second.unwrap_or(WRITES_PER_SECOND);
        self.per_second = per_second.clamp(1, 1000);
        self.pace.set(self.per_second);
    }

    fn judge_config(&mut self, config: &crds::ProxyConfig, now: Now) {
        let generation = config.metadata.generation.unwrap_or_default();
        let problem = match from_kube::proxy_config(config) {
            Err(error) => Some(error.to_string()),
            Ok(read) => {
                let in_force = self.shared.read().planner.model().settings();
                if read.current.settings != in_force {
                    // It was changed a moment ago.
                    let soon = now.elapsed + SOON;
                    return self.queue.push(Target::Config, Class::Plan, soon);
                }
                self.config.stale_since = None;
                let known = self.revision.known.as_ref();
                // Another generation of the same settings is nothing new for a node.
                if known.is_none_or(|(_, known)| *known != in_force) {
                    self.revision.known = Some((generation, in_force));
                    self.look_at_all_plans(Class::Plan, now);
                }
                None
            }
        };
        self.config.judged = Some(ConfigJudged {
            generation,
            problem,
            in_waves: config.spec.rollout.is_some(),
        });
    }

    fn write_config_status(&mut self, config: &crds::ProxyConfig, now: Now) {
        let mut old = config.status.clone().unwrap_or_default();
        // Those have other owners.
        old.rollout = None;
        old.guard = None;
        let kinds = [condition::ACCEPTED, condition::PODS_IN_RANGES];
        old.conditions
            .retain(|condition| kinds.contains(&&*condition.type_));
        let strays = self.strays();
        let judged = self.config.judged.as_ref();
        let known = self.shared.read();
        let status = config_status(&known, &strays, judged, now.wall, &old.conditions);
        drop(known);
        if ContentHash::of(&status) == ContentHash::of(&old) {
            return;
        }
        let verdict = |status: &crds::ProxyConfigStatus| {
            kinds.map(|kind| since(&status.conditions, kind).map(|since| since.verdict))
        };
        let written = self.config.status_written;
        let early = written.is_some_and(|written| now.elapsed < written + PERIOD);
        if early && verdict(&status) == verdict(&old) {
            // It is looked at again anyway.
            return;
        }
        for event in news::of_config(&old, &status) {
            self.events.tell(event);
        }
        self.config.busy = true;
        let act = Act::ApplyConfigStatus(Box::new(status));
        self.issue(Target::Config, Kind::Config, NAME, act);
    }

    pub(super) fn config_status_written(&mut self, now: Now) {
        self.config.busy = false;
        self.config.status_written = Some(now.elapsed);
    }
}
