//! Reconciles the ProxyConfig: creates it, applies its write budget, and writes its status.

use std::time::Duration;

use portolan_crds as crds;
use portolan_crds::condition;
use portolan_plan::Settings;
use tracing::info;

use super::context::{Context, DEFAULT_WRITES_PER_SECOND, Now};
use super::plans::{Plans, outside_ranges};
use super::slices::Slices;
use crate::from_kube;
use crate::publish::config_status::{ConfigJudged, config_status};
use crate::publish::content::ContentHash;
use crate::publish::events;
use crate::publish::plan::SettingsRevision;
use crate::publish::previous::since;
use crate::publish::queue::Class;
use crate::publish::write::{Act, Kind, Target};

/// Interval between two reads of the ProxyConfig: the planner does not know its write budget. Also the minimum
/// interval between two status writes that change no condition.
const READ_INTERVAL: Duration = Duration::from_secs(30);
/// Delay before the ProxyConfig is read again while the planner does not know its newest settings yet.
const SETTINGS_RETRY_DELAY: Duration = Duration::from_secs(5);
/// The name of the only ProxyConfig.
const NAME: &str = "default";

/// The state of the ProxyConfig, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct Config {
    /// A call about it is in progress.
    busy: bool,
    read: bool,
    /// Since when the generation of the settings in force has been unknown.
    stale_since: Option<Duration>,
    status_written: Option<Duration>,
    judged: Option<ConfigJudged>,
    /// The revision of the settings of nodes that the rollout has not reached.
    number: Option<u64>,
    revision: SettingsRevision,
}

impl Config {
    /// Whether the ProxyConfig was read.
    pub(super) fn is_read(&self) -> bool {
        self.read
    }

    /// Whether a plan should wait for the generation of its settings.
    pub(super) fn awaits_settings(&self, settings: &Settings, now: Now, most: Duration) -> bool {
        let known = self.revision.known.as_ref();
        let is_known = known.is_some_and(|(_, known)| known == settings);
        let recently = |since: Duration| now.elapsed < since + most;
        !is_known && self.stale_since.is_some_and(recently)
    }

    /// The generation of the settings in force, as far as it is known.
    pub(super) fn revision(&self) -> &SettingsRevision {
        &self.revision
    }

    pub(super) fn status_not_written(&mut self) {
        self.busy = false;
        self.status_written = None;
    }

    pub(super) fn not_read(&mut self) {
        self.busy = false;
    }

    /// Records that settings were planned. They reach the planner and this reconciler in different ways.
    pub(super) fn settings_planned(&mut self, context: &mut Context, now: Now) {
        let settings = context.shared.read().planner.model().settings();
        let known = self.revision.known.as_ref();
        if known.is_none_or(|(_, known)| *known != settings) {
            self.stale_since.get_or_insert(now.elapsed);
            context.look(Target::Config, Class::Urgent, now);
        }
    }

    pub(super) fn reconcile(&mut self, context: &mut Context, now: Now) {
        context.look_after(Target::Config, Class::Plan, READ_INTERVAL, now);
        if !self.busy {
            self.busy = true;
            context.issue(Target::Config, Kind::Config, NAME, Act::Read);
        }
    }

    /// Processes the stored ProxyConfig.
    pub(super) fn answered(
        &mut self,
        config: Option<&crds::ProxyConfig>,
        plans: &mut Plans,
        slices: &mut Slices,
        context: &mut Context,
        now: Now,
    ) {
        self.busy = false;
        let Some(config) = config else {
            info!("creating the missing ProxyConfig default with an empty spec");
            self.busy = true;
            return context.issue(Target::Config, Kind::Config, NAME, Act::Create);
        };
        self.read = true;
        let publish = config.spec.publish.clone().unwrap_or_default();
        slices.set_sharing(publish.shared.unwrap_or_default());
        context.set_budget(
            publish
                .writes_per_second
                .unwrap_or(DEFAULT_WRITES_PER_SECOND),
        );
        self.follow_revision(plans, context, now);
        self.judge(config, plans, context, now);
        if slices.follow_size(context, now) {
            plans.sweep(context, now);
        }
        self.write_status(config, context, now);
    }

    /// Settings get their number when they are in force already; no agent acknowledges anything then.
    fn follow_revision(&mut self, plans: &Plans, context: &mut Context, now: Now) {
        let known = context.shared.read();
        let config = known.planner.model().config_in_force();
        let number = config.and_then(|config| config.current.number);
        drop(known);
        if std::mem::replace(&mut self.number, number) != number {
            plans.look_at_all(Class::Background, context, now);
        }
    }

    fn judge(
        &mut self,
        config: &crds::ProxyConfig,
        plans: &Plans,
        context: &mut Context,
        now: Now,
    ) {
        let generation = config.metadata.generation.unwrap_or_default();
        let problem = match from_kube::proxy_config(config) {
            Err(error) => Some(error.to_string()),
            Ok(read) => {
                let in_force = context.shared.read().planner.model().settings();
                if read.current.settings != in_force {
                    // The ProxyConfig has just changed, and the planner still has other settings; read it again soon.
                    return context.look_after(
                        Target::Config,
                        Class::Plan,
                        SETTINGS_RETRY_DELAY,
                        now,
                    );
                }
                self.stale_since = None;
                let known = self.revision.known.as_ref();
                // Another generation of the same settings does not change a node.
                if known.is_none_or(|(_, known)| *known != in_force) {
                    self.revision.known = Some((generation, in_force));
                    plans.look_at_all(Class::Plan, context, now);
                }
                None
            }
        };
        self.judged = Some(ConfigJudged {
            generation,
            problem,
            in_waves: config.spec.rollout.is_some(),
        });
    }

    fn write_status(&mut self, config: &crds::ProxyConfig, context: &mut Context, now: Now) {
        let mut old = config.status.clone().unwrap_or_default();
        // Other field managers own these fields.
        old.rollout = None;
        old.guard = None;
        let kinds = [condition::ACCEPTED, condition::PODS_IN_RANGES];
        old.conditions
            .retain(|condition| kinds.contains(&&*condition.type_));
        let outside_ranges = outside_ranges(&context.shared);
        let judged = self.judged.as_ref();
        let known = context.shared.read();
        let status = config_status(&known, &outside_ranges, judged, now.wall, &old.conditions);
        drop(known);
        if ContentHash::of(&status) == ContentHash::of(&old) {
            return;
        }
        let verdict = |status: &crds::ProxyConfigStatus| {
            kinds.map(|kind| since(&status.conditions, kind).map(|since| since.verdict))
        };
        let written = self.status_written;
        let early = written.is_some_and(|written| now.elapsed < written + READ_INTERVAL);
        if early && verdict(&status) == verdict(&old) {
            // The ProxyConfig is reconciled again anyway.
            return;
        }
        for event in events::of_config(&old, &status) {
            context.events.record(event);
        }
        self.busy = true;
        let act = Act::ApplyConfigStatus(Box::new(status));
        context.issue(Target::Config, Kind::Config, NAME, act);
    }

    pub(super) fn status_written(&mut self, now: Now) {
        self.busy = false;
        self.status_written = Some(now.elapsed);
    }
}
