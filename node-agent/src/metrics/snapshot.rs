//! Metrics that are read at scrape time.

use std::fmt::Error;

use portolan_plan::Family;
use portolan_reconcile::nftables::TableDriftKind;
use portolan_reconcile::{DriftCount, DriftKind};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, MetricEncoder,
    NoLabelSet,
};
use prometheus_client::metrics::MetricType;

use super::{Sources, traffic};
use crate::health::TrafficPolicy;
use crate::labels::{FamilyLabel, FamilyName};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyLabel {
    ip_family: FamilyName,
    traffic_policy: TrafficPolicy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InForceLabel {
    in_force: &'static str,
}

impl EncodeLabelValue for TrafficPolicy {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), Error> {
        let name = match self {
            Self::Internal => "internal",
            Self::External => "external",
        };
        name.encode(encoder)
    }
}

impl Collector for Sources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        self.waiting(&mut encoder)?;
        self.no_local(&mut encoder)?;
        self.flows(&mut encoder)?;
        self.drift(&mut encoder)?;
        if let Some(traffic) = &self.traffic {
            let totals = traffic.borrow().clone();
            traffic::encode(&totals, &mut encoder)?;
        }
        let failed = self.applied.borrow().failed;
        let name = "portolan_failing_operations";
        let help = "Kernel operations that failed in the last pass";
        gauge(&mut encoder, name, help)?.encode_gauge(&count(failed))?;
        let draining = self.draining.borrow().len();
        let name = "portolan_draining_addresses";
        let help = "Addresses of endpoints that receive no new connections and keep existing ones";
        gauge(&mut encoder, name, help)?.encode_gauge(&count(draining))?;
        let closed = self.health.closed().borrow().len();
        let closed_checks = self.health.closed_checks().borrow().len();
        let name = "portolan_closed_ports";
        let help = "Addresses and ports on which the agent should listen but cannot";
        gauge(&mut encoder, name, help)?.encode_gauge(&count(closed + closed_checks))?;
        self.troubled_services(&mut encoder)?;
        let unwritten = self.health.unwritten().borrow().len();
        let name = "portolan_unwritten_kernel_settings";
        let help = "Kernel settings that the node needs but the agent cannot write";
        gauge(&mut encoder, name, help)?.encode_gauge(&count(unwritten))
    }
}

impl Sources {
    fn troubled_services(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let troubles = self.applied.borrow().troubles.clone();
        let in_force = troubles.served_otherwise(&self.health.closed_checks().borrow());
        let name = "portolan_troubled_services";
        let help = "Services that are not on the node as their objects ask, by whether they are in force nevertheless";
        let mut metric = gauge(encoder, name, help)?;
        for (label, services) in [("no", troubles.failing_services()), ("yes", in_force)] {
            let label = InForceLabel { in_force: label };
            metric
                .encode_family(&label)?
                .encode_gauge(&count(services))?;
        }
        Ok(())
    }

    fn waiting(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let waiting = self.health.counters.waiting();
        let name = "kubeproxy_sync_proxy_rules_service_changes_pending";
        let help = "Changes of Services that no pass has included yet";
        let mut metric = gauge(encoder, name, help)?;
        for family in Family::BOTH {
            let label = FamilyLabel::from(family);
            metric
                .encode_family(&label)?
                .encode_gauge(&signed(waiting.services))?;
        }
        let name = "kubeproxy_sync_proxy_rules_endpoint_changes_pending";
        let help = "Changes of endpoint lists that no pass has included yet";
        let mut metric = gauge(encoder, name, help)?;
        for family in Family::BOTH {
            let label = FamilyLabel::from(family);
            let endpoints = signed(waiting.endpoints(family));
            metric.encode_family(&label)?.encode_gauge(&endpoints)?;
        }
        Ok(())
    }

    fn no_local(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let no_local = self.health.no_local();
        let name = "kubeproxy_sync_proxy_rules_no_local_endpoints_total";
        let help = "Services with policy Local and no endpoint on this node";
        let mut metric = gauge(encoder, name, help)?;
        for family in Family::BOTH {
            for policy in [TrafficPolicy::Internal, TrafficPolicy::External] {
                let label = PolicyLabel {
                    ip_family: FamilyName(family),
                    traffic_policy: policy,
                };
                let services = no_local.get(&(family, policy)).copied().unwrap_or(0);
                metric
                    .encode_family(&label)?
                    .encode_gauge(&signed(services))?;
            }
        }
        Ok(())
    }

    fn flows(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let flows = self.flows.borrow().clone();
        let of = |family: Family| flows.get(&family).copied().unwrap_or_default();
        let name = "kubeproxy_conntrack_reconciler_deleted_entries";
        let help = "Stale UDP flows deleted from connection tracking";
        let mut metric = counter(encoder, name, help)?;
        for family in Family::BOTH {
            let label = FamilyLabel::from(family);
            let deleted = of(family).deleted;
            let mut metric = metric.encode_family(&label)?;
            metric.encode_counter::<NoLabelSet, _, u64>(&deleted, None)?;
        }
        let name = "kubeproxy_conntrack_reconciler_sync_duration_seconds";
        let help = "Duration of the search for stale UDP flows";
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for family in Family::BOTH {
            let label = FamilyLabel::from(family);
            let of = of(family);
            let (sum, all) = (of.took.as_secs_f64(), of.cleanups);
            let mut metric = metric.encode_family(&label)?;
            metric.encode_histogram::<NoLabelSet>(sum, all, &[(f64::INFINITY, all)], None)?;
        }
        Ok(())
    }

    /// All series exist from the start, so that the first event appears as an increase.
    fn drift_by_kind(&self) -> Vec<(KindLabel, DriftCount)> {
        let applied = self.applied.borrow();
        let (of_ipvs, of_tables) = (&applied.drift, &applied.tables_drift);
        let of = |kind: &str, count: Option<&DriftCount>| {
            let kind = kind.replace(' ', "_");
            (KindLabel { kind }, count.copied().unwrap_or_default())
        };
        let ipvs = DriftKind::ALL.map(|kind| of(kind.as_str(), of_ipvs.get(&kind)));
        let tables = TableDriftKind::ALL.map(|kind| of(kind.as_str(), of_tables.get(&kind)));
        ipvs.into_iter().chain(tables).collect()
    }

    fn drift(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
        let kinds = self.drift_by_kind();
        let name = "portolan_drift_found";
        let help = "Objects in the kernel that differed from what the agent had written";
        let mut metric = counter(encoder, name, help)?;
        for (kind, count) in &kinds {
            let mut metric = metric.encode_family(kind)?;
            metric.encode_counter::<NoLabelSet, _, u64>(&count.found, None)?;
        }
        let name = "portolan_drift_repaired";
        let mut metric = counter(encoder, name, "Objects with drift that were repaired")?;
        for (kind, count) in &kinds {
            let mut metric = metric.encode_family(kind)?;
            metric.encode_counter::<NoLabelSet, _, u64>(&count.repaired, None)?;
        }
        let name = "portolan_drift_unrepaired";
        let mut metric = gauge(
            encoder,
            name,
            "Objects that differ from what the agent had written and are not repaired, or not yet",
        )?;
        for (kind, count) in &kinds {
            metric
                .encode_family(kind)?
                .encode_gauge(&signed(count.unrepaired))?;
        }
        Ok(())
    }
}

fn gauge<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<MetricEncoder<'a>, Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)
}

pub(super) fn counter<'a>(
    encoder: &'a mut DescriptorEncoder<'_>,
    name: &'a str,
    help: &str,
) -> Result<MetricEncoder<'a>, Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Counter)
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn count(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
