//! The kinds that are watched: where they are, which of them are asked for, how they are read.

use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::api::networking::v1 as networking;
use kube::Resource;
use portolan_crds as crds;
use portolan_plan::ServiceId;
use portolan_planner::model::{ProxyConfig, SliceId};

use crate::object::ObjectId;

/// A kind of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Nodes.
    Node,
    /// Services.
    Service,
    /// Their endpoints.
    EndpointSlice,
    /// The ranges of cluster IPs.
    ServiceCidr,
    /// The one ProxyConfig.
    ProxyConfig,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Node,
        Self::Service,
        Self::EndpointSlice,
        Self::ServiceCidr,
        Self::ProxyConfig,
    ];

    /// The kind of a named object.
    pub fn of(id: &ObjectId) -> Self {
        match id {
            ObjectId::Node(_) => Self::Node,
            ObjectId::Service(_) => Self::Service,
            ObjectId::EndpointSlice(_) => Self::EndpointSlice,
            ObjectId::ServiceCidr(_) => Self::ServiceCidr,
            ObjectId::ProxyConfig(_) => Self::ProxyConfig,
        }
    }

    /// The path of its collection over all namespaces.
    pub(super) fn path(self) -> String {
        match self {
            Self::Node => core::Node::url_path(&(), None),
            Self::Service => core::Service::url_path(&(), None),
            Self::EndpointSlice => discovery::EndpointSlice::url_path(&(), None),
            Self::ServiceCidr => networking::ServiceCIDR::url_path(&(), None),
            Self::ProxyConfig => crds::ProxyConfig::url_path(&(), None),
        }
    }

    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
            Self::ServiceCidr => "ServiceCIDR",
            Self::ProxyConfig => "ProxyConfig",
        }
    }

    /// The resource with its group, as in rules of access.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::Service => "services",
            Self::EndpointSlice => "endpointslices.discovery.k8s.io",
            Self::ServiceCidr => "servicecidrs.networking.k8s.io",
            Self::ProxyConfig => "proxyconfigs.proxy.portolan.dev",
        }
    }

    /// Headless Services have nothing to serve, so the server does not send them (S-4).
    pub(super) fn field_selector(self) -> Option<String> {
        match self {
            Self::Service => Some("spec.clusterIP!=None".into()),
            Self::ProxyConfig => Some(format!("metadata.name={}", ProxyConfig::DEFAULT)),
            Self::Node | Self::EndpointSlice | Self::ServiceCidr => None,
        }
    }

    /// Neither are their slices sent (S-3).
    pub(super) fn label_selector(self) -> Option<String> {
        match self {
            Self::EndpointSlice => Some("!service.kubernetes.io/headless".into()),
            Self::Node | Self::Service | Self::ServiceCidr | Self::ProxyConfig => None,
        }
    }

    /// Servers before 1.33 do not have it; addresses are then routed one by one.
    pub(super) fn may_be_unknown(self) -> bool {
        self == Self::ServiceCidr
    }

    /// The name of an object of this kind.
    pub(super) fn id(self, namespace: &str, name: &str) -> ObjectId {
        let name: Arc<str> = name.into();
        match self {
            Self::Node => ObjectId::Node(name),
            Self::Service => ObjectId::Service(ServiceId::new(namespace, name)),
            Self::EndpointSlice => ObjectId::EndpointSlice(SliceId {
                namespace: namespace.into(),
                name,
            }),
            Self::ServiceCidr => ObjectId::ServiceCidr(name),
            Self::ProxyConfig => ObjectId::ProxyConfig(name),
        }
    }
}
