//! Schedulers of IPVS: which operations need one, and which must not be requested.

use std::path::Path;

use portolan_reconcile::IpvsOp;

use crate::kernel::KernelError;

/// The directory of loaded modules.
pub(super) const MODULES: &str = "/sys/module";

/// Whether an operation needs a scheduler whose module was removed after it was requested. Such an operation is not
/// sent, because IPVS would load the module itself.
pub(super) fn lacks_scheduler(op: &IpvsOp, modules: &Path) -> bool {
    scheduler(op).is_some_and(|name| blocks_when_loaded(name, modules))
}

/// The scheduler that IPVS would load for an operation.
pub(super) fn scheduler(op: &IpvsOp) -> Option<&str> {
    match op {
        IpvsOp::AddVirtualServer { scheduling, .. }
        | IpvsOp::EditVirtualServer { scheduling, .. } => Some(&scheduling.scheduler),
        _ => None,
    }
}

pub(super) fn refuse(op: &IpvsOp) -> Result<(), KernelError> {
    let reason = not_loaded(scheduler(op).unwrap_or_default());
    // The shadow's list of loaded schedulers is outdated.
    Err(KernelError::new(op, &reason).in_doubt_if(true))
}

/// Whether requesting a scheduler may deadlock IPVS.
///
/// IPVS loads the module of an unknown scheduler while it holds its lock. The two modules below then wait for
/// network namespaces that are being removed, whose removal waits for the same lock (observed on Linux 6.1). If
/// IPVS itself is built in, `/sys/module` does not show whether a scheduler is available, so the request is made.
pub(super) fn blocks_when_loaded(scheduler: &str, modules: &Path) -> bool {
    ["lblc", "lblcr"].contains(&scheduler)
        && modules.join("ip_vs/initstate").exists()
        && !modules.join(format!("ip_vs_{scheduler}")).exists()
}

pub(super) fn not_loaded(scheduler: &str) -> String {
    format!(
        "its module has to be loaded in advance (modprobe ip_vs_{scheduler} on this node), because \
         loading it through IPVS can deadlock IPVS; or set another scheduler in \
         spec.settings.scheduler of the ProxyConfig or, if a Service requests it, in its annotation \
         proxy.portolan.dev/scheduler"
    )
}

pub(super) fn no_scheduler(scheduler: &str) -> String {
    format!(
        "the kernel has no scheduler {scheduler:?}: load its module (modprobe ip_vs_{scheduler}), or \
         set another one in spec.settings.scheduler of the ProxyConfig or, if a Service requests it, \
         in its annotation proxy.portolan.dev/scheduler; until then existing virtual servers keep \
         their scheduler, and new ones are not created"
    )
}

#[cfg(test)]
mod tests {
    use portolan_reconcile::Scheduling;

    use super::*;

    /// A module may be removed after it was requested.
    #[test]
    fn a_virtual_server_never_gets_a_scheduler_whose_loading_could_block_ipvs() {
        let modules = tempfile::tempdir().unwrap();
        let make = |name: &str| std::fs::create_dir(modules.path().join(name)).unwrap();
        let of = |scheduler: &str| {
            let scheduling = Scheduling {
                scheduler: scheduler.into(),
                flags: 0,
                timeout: 0,
            };
            let server = "TCP 10.96.0.1:80".parse().unwrap();
            lacks_scheduler(
                &IpvsOp::AddVirtualServer { server, scheduling },
                modules.path(),
            )
        };
        make("ip_vs");
        std::fs::write(modules.path().join("ip_vs/initstate"), "live\n").unwrap();
        assert!(!of("rr") && of("lblcr"), "S-101");
        make("ip_vs_lblcr");
        assert!(!of("lblcr"));
    }

    #[test]
    fn a_scheduler_whose_module_could_block_ipvs_is_requested_only_if_loaded() {
        let modules = tempfile::tempdir().unwrap();
        let make = |name: &str| std::fs::create_dir(modules.path().join(name)).unwrap();
        let blocks = |scheduler| blocks_when_loaded(scheduler, modules.path());
        make("ip_vs");
        assert!(!blocks("lblc"), "IPVS is part of the kernel");
        std::fs::write(modules.path().join("ip_vs/initstate"), "live\n").unwrap();
        assert!(blocks("lblc") && blocks("lblcr"), "S-101");
        assert!(!blocks("rr") && !blocks("mh"));
        make("ip_vs_lblc");
        assert!(!blocks("lblc") && blocks("lblcr"));
    }
}
