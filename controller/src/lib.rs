//! The Portolan controller: watches the cluster once, plans every node, streams the plans.
