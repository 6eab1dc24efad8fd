//! The kinds of objects that plans are made from: Node, Service, EndpointSlice, ServiceCIDR and ProxyConfig.
//!
//! They are listed here and nowhere else. What else depends on a kind is a `match` over [`Kind`] or [`Object`], so the
//! compiler names every place that a new kind concerns.

use std::fmt;

use super::Reason;
use super::event::ObjectChange;
use super::kept::ClusterObject;
use super::{EndpointSlice, Node, ProxyConfig, Service, ServiceCidr};

/// Types over all kinds, from the type of each kind and the name that Kubernetes gives it.
macro_rules! kinds {
    ($($kind:ident: $name:literal),* $(,)?) => {
        /// A kind of object.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {$(
            #[doc = $name]
            $kind,
        )*}

        impl Kind {
            /// All kinds.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$kind),*];

            /// The name as in the field `kind` of a manifest.
            pub fn name(self) -> &'static str {
                match self {$(Self::$kind => $name),*}
            }

            /// The identity of an object of this kind. The namespace does not matter for kinds without one.
            pub fn id(self, namespace: &str, name: &str) -> ObjectId {
                match self {$(Self::$kind => ObjectId::$kind($kind::id_of(namespace, name))),*}
            }
        }

        /// Kind, namespace and name of an object.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ObjectId {$(
            #[doc = $name]
            $kind(<$kind as ClusterObject>::Id),
        )*}

        impl ObjectId {
            /// The kind of the object.
            pub fn kind(&self) -> Kind {
                match self {$(Self::$kind(_) => Kind::$kind),*}
            }

            /// The event of its deletion.
            pub fn removed(&self) -> Event {
                match self.clone() {$(Self::$kind(id) => Event::$kind(ObjectChange::Remove(id))),*}
            }
        }

        impl fmt::Display for ObjectId {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {$(Self::$kind(id) => write!(f, concat!($name, " {}"), id)),*}
            }
        }

        /// An object of any kind.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Object {$(
            #[doc = $name]
            $kind($kind),
        )*}

        impl Object {
            /// Kind, namespace and name.
            pub fn id(&self) -> ObjectId {
                match self {$(Self::$kind(object) => ObjectId::$kind(object.id())),*}
            }

            /// The event of its creation or change.
            pub fn present(&self) -> Event {
                self.clone().into_event()
            }

            /// The same, without a copy of the object.
            pub fn into_event(self) -> Event {
                match self {$(Self::$kind(object) => Event::$kind(ObjectChange::Upsert(object))),*}
            }

            /// Fields that were ignored when the object was read.
            pub fn ignored(&self) -> &[Reason] {
                match self {$(Self::$kind(object) => object.ignored()),*}
            }

            /// The same, to add to them; `None` for kinds that are read completely or not at all.
            pub fn ignored_mut(&mut self) -> Option<&mut Vec<Reason>> {
                match self {$(Self::$kind(object) => object.ignored_mut()),*}
            }
        }

        /// Something happened to objects of a kind.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Event {$(
            #[doc = $name]
            $kind(ObjectChange<$kind>),
        )*}

        $(impl From<$kind> for Object {
            fn from(object: $kind) -> Self {
                Self::$kind(object)
            }
        }

        /// The event of its creation or change.
        impl From<$kind> for Event {
            fn from(object: $kind) -> Self {
                Self::$kind(ObjectChange::Upsert(object))
            }
        })*

        impl Event {
            /// These are all objects of a kind; those of other kinds are ignored (S-191).
            pub fn replace(kind: Kind, objects: Vec<Object>) -> Self {
                match kind {$(
                    Kind::$kind => {
                        let of_kind = objects.into_iter().filter_map(|object| match object {
                            Object::$kind(object) => Some(object),
                            _ => None,
                        });
                        Self::$kind(ObjectChange::Replace(of_kind.collect()))
                    }
                )*}
            }

            /// What the event says about one object: `None` nothing, `Some(None)` that it does not exist any more.
            pub fn object(&self, id: &ObjectId) -> Option<Option<Object>> {
                match (self, id) {
                    $((Self::$kind(change), ObjectId::$kind(id)) => {
                        change.object(id).map(|object| object.cloned().map(Object::$kind))
                    })*
                    _ => None,
                }
            }
        }
    };
}

kinds!(
    Node: "Node",
    Service: "Service",
    EndpointSlice: "EndpointSlice",
    ServiceCidr: "ServiceCIDR",
    ProxyConfig: "ProxyConfig",
);
