//! The custom resources of proxy.portolan.dev: what users write and read with kubectl.
