//! What Services have carried.

use std::fmt::Error;

use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};

use super::snapshot::counter;
use crate::traffic::{Told, Traffic};

/// No Service can be called so.
const OTHERS: (&str, &str) = ("", "(others)");

/// All of it, those together last that have no series of their own.
pub(super) fn encode(told: &Told, encoder: &mut DescriptorEncoder<'_>) -> Result<(), Error> {
    let own = told.services.iter();
    let own = own.map(|(service, traffic)| ((&*service.namespace, &*service.name), traffic));
    let all: Vec<_> = own.chain([(OTHERS, &told.others)]).collect();
    let name = "portolan_service_connections";
    let help = "Connections to a Service that were given to an endpoint";
    let mut metric = counter(encoder, name, help)?;
    for ((namespace, service), traffic) in &all {
        let label = [("namespace", *namespace), ("service", *service)];
        let mut metric = metric.encode_family(&label)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&traffic.connections, None)?;
    }
    let packets =
        "Packets of a Service's connections: in from clients, out as far as answers pass this node";
    let bytes = "The bytes of these packets, with headers of the network layer";
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
