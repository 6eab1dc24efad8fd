//! Traffic metrics of Services.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};

use super::snapshot::counter;
use crate::traffic::{Traffic, TrafficTotals};

/// Labels for the sum of the other Services. No Service can have this name.
const OTHERS: (&str, &str) = ("", "(others)");

/// Encodes all series; the last one is the sum of the Services without series of their own.
pub(super) fn encode(
    totals: &TrafficTotals,
    encoder: &mut DescriptorEncoder<'_>,
) -> Result<(), Error> {
    let own = totals.services.iter();
    let own = own.map(|(service, traffic)| ((&*service.namespace, &*service.name), traffic));
    let all: Vec<_> = own.chain([(OTHERS, &totals.others)]).collect();
    let name = "portolan_service_connections";
    let help = "Connections to a Service that were forwarded to an endpoint; with nftables, one that is dropped \
                later counts with each attempt";
    let mut metric = counter(encoder, name, help)?;
    for ((namespace, service), traffic) in &all {
        let label = [("namespace", *namespace), ("service", *service)];
        let mut metric = metric.encode_family(&label)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&traffic.connections, None)?;
    }
    if totals.connections_only {
        return Ok(());
    }
    let packets =
        "Packets of a Service's connections: in from clients, out as far as replies pass this node";
    let bytes = "Bytes of a Service's packets, including network layer headers";
    for (name, help, of) in [
        (
            "portolan_service_packets",
            packets,
            packets_of as fn(&Traffic) -> [(&'static str, u64); 2],
        ),
        ("portolan_service_bytes", bytes, bytes_of),
    ] {
        let mut metric = counter(encoder, name, help)?;
        for ((namespace, service), traffic) in &all {
            for (direction, count) in of(traffic) {
                let label = [
                    ("namespace", *namespace),
                    ("service", *service),
                    ("direction", direction),
                ];
                let mut metric = metric.encode_family(&label)?;
                metric.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
    }
    Ok(())
}

fn packets_of(traffic: &Traffic) -> [(&'static str, u64); 2] {
    [("in", traffic.packets_in), ("out", traffic.packets_out)]
}

fn bytes_of(traffic: &Traffic) -> [(&'static str, u64); 2] {
    [("in", traffic.bytes_in), ("out", traffic.bytes_out)]
}
