//! Checks of programs that manage the network of the host.

use crate::doctor::{Check, Facts, Finding};

/// Programs that remove routes and policy rules of others, or take over the device. The agent restores them, and captured
/// packets are dropped meanwhile instead of being forwarded (S-244).
pub(super) fn network_managers(facts: &Facts) -> Vec<Finding> {
    let managers = &facts.network_managers;
    let networkd = managers.networkd.as_deref().map(networkd);
    let manager = managers.network_manager.as_deref();
    let manager = manager.map(|text| network_manager(text, &facts.device));
    [networkd, manager].into_iter().flatten().collect()
}

fn networkd(text: &str) -> Finding {
    let check = Check::NetworkManagers;
    let settings = ["ManageForeignRoutes", "ManageForeignRoutingPolicyRules"];
    // Both are on unless they are set.
    let is_on = |setting: &&str| {
        let value = values(text, setting).last();
        !value.is_some_and(|value| ["no", "n", "false", "f", "off", "0"].contains(&value))
    };
    let on: Vec<_> = settings
        .into_iter()
        .filter(is_on)
        .map(|setting| format!("{setting}=no"))
        .collect();
    if on.is_empty() {
        return Finding::ok(
            check,
            "systemd-networkd leaves routes and policy rules of others alone",
        );
    }
    let message = "systemd-networkd removes routes and policy rules of other programs when it starts and when links change: \
                   connections to Services pause until the agent has restored them";
    let remedy = format!(
        "write {} into the section [Network] of /etc/systemd/networkd.conf.d/portolan.conf, and restart \
         systemd-networkd",
        on.join(" and ")
    );
    Finding::warn(check, message, remedy)
}

fn network_manager(text: &str, device: &str) -> Finding {
    let check = Check::NetworkManagers;
    let mut lists = values(text, "unmanaged-devices");
    if lists.any(|list| {
        list.split([';', ','])
            .any(|pattern| matches(pattern.trim(), device))
    }) {
        return Finding::ok(check, format!("NetworkManager leaves {device} alone"));
    }
    let message =
        format!("NetworkManager may take over the agent's device {device}, and remove its routes");
    let remedy = format!(
        "write unmanaged-devices=interface-name:{device} into the section [keyfile] of \
         /etc/NetworkManager/conf.d/portolan.conf, and run `nmcli general reload`"
    );
    Finding::warn(check, message, remedy)
}

/// The values of a setting, in order.
fn values<'a>(text: &'a str, setting: &'a str) -> impl DoubleEndedIterator<Item = &'a str> {
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    pairs
        .filter(move |(name, _)| name.trim().trim_end_matches('+').trim_end() == setting)
        .map(|(_, value)| value.trim())
}

/// Whether a pattern of NetworkManager selects a device.
fn matches(pattern: &str, device: &str) -> bool {
    let Some(name) = pattern.strip_prefix("interface-name:") else {
        return pattern == "*";
    };
    match name.strip_suffix('*') {
        Some(start) => device.starts_with(start),
        None => name.trim_start_matches('=') == device,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn programs_that_leave_others_alone_are_fine() {
        let text = "[Network]\nManageForeignRoutes=yes\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=0\n";
        assert_eq!(networkd(text).level, Level::Ok, "the last value counts");
        for (pattern, level) in [
            ("interface-name:portolan0", Level::Ok),
            (
                "mac:02:00:00:00:00:01, interface-name:=portolan0",
                Level::Ok,
            ),
            ("interface-name:portolan*", Level::Ok),
            ("*", Level::Ok),
            ("interface-name:portolan", Level::Warn),
            ("interface-name:portolan1", Level::Warn),
        ] {
            let text = format!("[keyfile]\nunmanaged-devices += {pattern}\n");
            let found = network_manager(&text, "portolan0").level;
            assert_eq!(found, level, "{pattern}");
        }
    }
}
