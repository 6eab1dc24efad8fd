//! Which Services are ours to serve.

use std::fmt;
use std::sync::Arc;

use crate::model::{NoClusterIp, Service};

/// Why nobody of ours serves a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotProxied {
    /// It has no cluster IP (S-1).
    NoClusterIp(Option<NoClusterIp>),
    /// Its label gives it to another proxy (S-2).
    OtherProxy {
        /// The value of the label.
        label: Arc<str>,
        /// Whose Services the settings ask for; empty means those without the label.
        ours: Arc<str>,
    },
    /// The settings ask for Services with a label, and it has none (S-2).
    NoLabel {
        /// The value that the settings ask for.
        ours: Arc<str>,
    },
    /// It has no port to answer on.
    NoPorts,
}

impl NotProxied {
    /// A word for tools.
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

/// The reason, and what to check next.
impl fmt::Display for NotProxied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoClusterIp(None) => f.write_str(
                "it has no cluster IP; check spec.clusterIP and whether the API server has given it one",
            ),
            Self::NoClusterIp(Some(NoClusterIp::Headless)) => f.write_str(
                "it is headless (spec.clusterIP: None): clients find its pods by DNS, no proxy is in \
                 between",
            ),
            Self::NoClusterIp(Some(NoClusterIp::ExternalName)) => f.write_str(
                "its type is ExternalName: it is a name in DNS, no proxy is in between; check \
                 spec.externalName",
            ),
            Self::OtherProxy { label, ours } => {
                write!(
                    f,
                    "its label service.kubernetes.io/service-proxy-name is {label:?}, which gives it to \
                     another proxy; "
                )?;
                match &**ours {
                    "" => f.write_str("take the label away, or see what that proxy does"),
                    ours => write!(
                        f,
                        "spec.settings.serviceProxyName of the ProxyConfig asks for {ours:?}"
                    ),
                }
            }
            Self::NoLabel { ours } => write!(
                f,
                "spec.settings.serviceProxyName of the ProxyConfig asks for Services with the label \
                 service.kubernetes.io/service-proxy-name {ours:?}, and it has no such label"
            ),
            Self::NoPorts => f.write_str("it has no port to answer on; check spec.ports"),
        }
    }
}

/// Why a Service is not ours to serve; `None` when it is.
pub(crate) fn not_proxied(service: &Service, proxy_name: &str) -> Option<NotProxied> {
    match service.proxy_name.as_ref() {
        // A label without a value gives it away too (S-2).
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
