//! The configuration of programs that manage the network of the host. In a pod, it is usually out of sight.

use std::collections::BTreeMap;
use std::path::Path;

use crate::doctor::facts::NetworkManagers;

/// Where configuration is read, from the lowest to the highest priority.
const PLACES: [&str; 4] = ["/usr/lib", "/usr/local/lib", "/run", "/etc"];

pub(super) fn read() -> NetworkManagers {
    let systemd = || configuration("systemd/networkd.conf", "systemd/networkd.conf.d");
    let manager = || {
        configuration(
            "NetworkManager/NetworkManager.conf",
            "NetworkManager/conf.d",
        )
    };
    let runs = |path: &str| Path::new(path).exists();
    NetworkManagers {
        networkd: runs("/run/systemd/netif/state").then(systemd),
        network_manager: runs("/run/NetworkManager").then(manager),
    }
}

/// The file of the highest priority, followed by the fragments in the order of their names. A fragment replaces one of
/// the same name in a place of lower priority.
fn configuration(file: &str, fragments: &str) -> String {
    let mut main = String::new();
    let mut all = BTreeMap::new();
    for place in PLACES.map(Path::new) {
        if let Ok(text) = std::fs::read_to_string(place.join(file)) {
            main = text;
        }
        let Ok(directory) = std::fs::read_dir(place.join(fragments)) else {
            continue;
        };
        for entry in directory.flatten() {
            let is_fragment = entry.path().extension().is_some_and(|end| end == "conf");
            if let (true, Ok(text)) = (is_fragment, std::fs::read_to_string(entry.path())) {
                all.insert(entry.file_name(), text);
            }
        }
    }
    let parts = std::iter::once(main).chain(all.into_values());
    parts.collect::<Vec<_>>().join("\n")
}
