//! A merged `/usr`, as in Debian: `/bin`, `/sbin` and `/lib` are symlinks to folders below `/usr`.

/// The symlinks and their targets.
pub const LINKS: &[(&str, &str)] = &[
    ("/bin", "usr/bin"),
    ("/sbin", "usr/sbin"),
    ("/lib", "usr/lib"),
    ("/lib64", "usr/lib64"),
];

/// A path in the merged tree: `/bin/ip` is `/usr/bin/ip`.
#[must_use]
pub fn merged(path: &str) -> String {
    LINKS
        .iter()
        .find_map(|(short, long)| {
            path.strip_prefix(short)?
                .strip_prefix('/')
                .map(|rest| format!("/{long}/{rest}"))
        })
        .unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_places_are_mapped_into_the_merged_tree() {
        assert_eq!(merged("/bin/ip"), "/usr/bin/ip");
        assert_eq!(
            merged("/lib64/ld-linux-x86-64.so.2"),
            "/usr/lib64/ld-linux-x86-64.so.2"
        );
        assert_eq!(merged("/library"), "/library");
        assert_eq!(merged("/usr/bin/ip"), "/usr/bin/ip");
    }
}
