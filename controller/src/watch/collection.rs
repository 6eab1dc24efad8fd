//! Where the API server has the objects of a kind, and which of them are requested.

use std::borrow::Cow;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use k8s_openapi::api::networking::v1 as networking;
use kube::Resource;
use portolan_crds as crds;
use portolan_planner::model::{Kind, ProxyConfig};

/// A kind as a collection of the API server.
pub trait Collection {
    /// The path of the collection over all namespaces.
    fn path(self) -> String;

    /// Group and version, as in the field `apiVersion` of a manifest.
    fn api_version(self) -> Cow<'static, str>;

    /// The resource with its group, as in RBAC rules and `kubectl get`.
    fn resource(self) -> &'static str;

    /// The field selector of lists and watches.
    fn field_selector(self) -> Option<String>;

    /// The label selector of lists and watches.
    fn label_selector(self) -> Option<String>;

    /// Whether a supported API server may lack the kind.
    fn optional(self) -> bool;
}

impl Collection for Kind {
    fn path(self) -> String {
        match self {
            Self::Node => core::Node::url_path(&(), None),
            Self::Service => core::Service::url_path(&(), None),
            Self::EndpointSlice => discovery::EndpointSlice::url_path(&(), None),
            Self::ServiceCidr => networking::ServiceCIDR::url_path(&(), None),
            Self::ProxyConfig => crds::ProxyConfig::url_path(&(), None),
        }
    }

    fn api_version(self) -> Cow<'static, str> {
        match self {
            Self::Node => core::Node::api_version(&()),
            Self::Service => core::Service::api_version(&()),
            Self::EndpointSlice => discovery::EndpointSlice::api_version(&()),
            Self::ServiceCidr => networking::ServiceCIDR::api_version(&()),
            Self::ProxyConfig => crds::ProxyConfig::api_version(&()),
        }
    }

    fn resource(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::Service => "services",
            Self::EndpointSlice => "endpointslices.discovery.k8s.io",
            Self::ServiceCidr => "servicecidrs.networking.k8s.io",
            Self::ProxyConfig => "proxyconfigs.proxy.portolan.dev",
        }
    }

    fn field_selector(self) -> Option<String> {
        match self {
            // Headless Services have no virtual IP (S-4).
            Self::Service => Some("spec.clusterIP!=None".into()),
            Self::ProxyConfig => Some(format!("metadata.name={}", ProxyConfig::DEFAULT)),
            Self::Node | Self::EndpointSlice | Self::ServiceCidr => None,
        }
    }

    fn label_selector(self) -> Option<String> {
        match self {
            // Nor are the slices of headless Services needed (S-3).
            Self::EndpointSlice => Some("!service.kubernetes.io/headless".into()),
            Self::Node | Self::Service | Self::ServiceCidr | Self::ProxyConfig => None,
        }
    }

    fn optional(self) -> bool {
        // Kubernetes before 1.33 does not serve it by default; addresses then get single routes.
        self == Self::ServiceCidr
    }
}
