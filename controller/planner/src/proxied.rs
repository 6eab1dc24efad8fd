//! Which Services this proxy serves.

use std::fmt;
use std::sync::Arc;

use crate::model::{NoClusterIp, Service};

/// Why this proxy does not serve a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotProxied {
    /// It has no cluster IP (S-1).
    NoClusterIp(Option<NoClusterIp>),
    /// Its label assigns it to another proxy (S-2).
    OtherProxy {
        /// The value of the label.
        label: Arc<str>,
        /// The label value in the settings; empty means Services without the label.
        ours: Arc<str>,
    },
    /// The settings select Services with a label, and it has none (S-2).
    NoLabel {
        /// The label value in the settings.
        ours: Arc<str>,
    },
    /// It has no port.
    NoPorts,
}

impl NotProxied {
    /// The reason as one word, for tools.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoClusterIp(None) => "NoClusterIP",
            Self::NoClusterIp(Some(NoClusterIp::Headless)) => "Headless",
            Self::NoClusterIp(Some(NoClusterIp::ExternalName)) => "ExternalName",
            Self::OtherProxy { .. } => "OtherProxy",
            Self::NoLabel { .. } => "NoLabel",
            Self::NoPorts => "NoPorts",
        }
    }
}

/// The reason and the next thing to check.
impl fmt::Display for NotProxied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoClusterIp(None) => f.write_str(
                "it has no cluster IP; check spec.clusterIP and whether the API server has given it one",
            ),
            Self::NoClusterIp(Some(NoClusterIp::Headless)) => f.write_str(
                "it is headless (spec.clusterIP: None): clients resolve its pods by DNS, without \
                 a proxy",
            ),
            Self::NoClusterIp(Some(NoClusterIp::ExternalName)) => f.write_str(
                "its type is ExternalName: it is a DNS name, without a proxy; check \
                 spec.externalName",
            ),
            Self::OtherProxy { label, ours } => {
                write!(
                    f,
                    "its label service.kubernetes.io/service-proxy-name is {label:?}, which assigns it to \
                     another proxy; "
                )?;
                match &**ours {
                    "" => f.write_str("remove the label, or check that proxy"),
                    ours => write!(
                        f,
                        "spec.settings.serviceProxyName of the ProxyConfig is {ours:?}"
                    ),
                }
            }
            Self::NoLabel { ours } => write!(
                f,
                "spec.settings.serviceProxyName of the ProxyConfig selects Services with the label \
                 service.kubernetes.io/service-proxy-name {ours:?}, and it has no such label"
            ),
            Self::NoPorts => f.write_str("it has no ports; check spec.ports"),
        }
    }
}

/// Why this proxy does not serve a Service; `None` if it does.
pub(crate) fn not_proxied(service: &Service, proxy_name: &str) -> Option<NotProxied> {
    match service.proxy_name.as_ref() {
        // A label with an empty value assigns it to another proxy too (S-2).
        Some(label) if **label != *proxy_name || label.is_empty() => Some(NotProxied::OtherProxy {
            label: label.clone(),
            ours: proxy_name.into(),
        }),
        None if !proxy_name.is_empty() => Some(NotProxied::NoLabel {
            ours: proxy_name.into(),
        }),
        _ if service.cluster_ips.is_empty() => Some(NotProxied::NoClusterIp(service.no_cluster_ip)),
        _ if service.ports.is_empty() => Some(NotProxied::NoPorts),
        _ => None,
    }
}
