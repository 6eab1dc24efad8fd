//! Decides which versions of a program are suitable. Pure.

/// A released version: no pre-release or vendor build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// First number.
    pub major: u32,
    /// Second number.
    pub minor: u32,
    /// Third number.
    pub patch: u32,
}

impl Version {
    /// Parses `v1.36.3`, `1.36.3` or `1.36.3+vendor`. Any other suffix (`-rc.1`, a vendor's `-gke.100`) is another
    /// program than the released one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let (numbers, _) = text.split_once('+').unwrap_or((text, ""));
        let mut parts = numbers.split('.').map(str::parse);
        let mut next = || parts.next()?.ok();
        let version = Self {
            major: next()?,
            minor: next()?,
            patch: next()?,
        };
        parts.next().is_none().then_some(version)
    }

    /// The first version in the output of a program.
    #[must_use]
    pub fn find(text: &str) -> Option<Self> {
        text.split_whitespace().find_map(Self::parse)
    }

    /// Whether it behaves like `wanted` in everything that scenarios test: equal except for fixes.
    #[must_use]
    pub fn serves_as(&self, wanted: &Self) -> bool {
        (self.major, self.minor) == (wanted.major, wanted.minor)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The version of a module required by a `go.mod`.
#[must_use]
pub fn required(go_mod: &str, module: &str) -> Option<Version> {
    go_mod.lines().find_map(|line| {
        let mut words = line
            .split_whitespace()
            .skip_while(|word| *word == "require");
        (words.next() == Some(module)).then(|| Version::parse(words.next()?))?
    })
}

/// Major and minor number of a Go release as printed by `go env GOVERSION`.
#[must_use]
pub fn of_go(text: &str) -> Option<(u32, u32)> {
    let numbers = text.trim().split("go").last()?;
    let mut parts = numbers.split(|sign: char| !sign.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn versions_are_found_in_what_the_programs_print() {
        for (text, wanted) in [
            ("Kubernetes v1.36.3\n", "1.36.3"),
            (
                "Client Version: v1.36.3\nKustomize Version: v5.8.1\n",
                "1.36.3",
            ),
            (
                "etcd Version: 3.4.23\nGit SHA: Not provided\nGo Version: go1.19.8",
                "3.4.23",
            ),
            ("Client Version: v1.36.1+k3s1", "1.36.1"),
        ] {
            assert_eq!(Version::find(text), Some(version(wanted)), "{text}");
        }
    }

    #[test]
    fn what_is_no_plain_release_has_no_version() {
        for text in [
            "v1.32.4-dispatcher",
            "v1.36.0-rc.1",
            "1.36",
            "1.36.3.4",
            "vx.1.2",
            "",
        ] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_same_minor_version_serves_and_no_other_does() {
        let ours = version("1.36.3");
        assert!(version("1.36.0").serves_as(&ours));
        assert!(!version("1.35.9").serves_as(&ours) && !version("2.36.3").serves_as(&ours));
    }

    #[test]
    fn the_required_version_is_read_from_either_form_of_a_line() {
        let text = "module m\n\nrequire a.b/c v1.2.3\n\nrequire (\n\ta.b/cd v4.5.6 // indirect\n)\n\
            replace x => a.b/d v7.8.9\n";
        assert_eq!(required(text, "a.b/c"), Some(version("1.2.3")));
        assert_eq!(required(text, "a.b/cd"), Some(version("4.5.6")));
        assert_eq!(required(text, "a.b/d"), None);
    }

    #[test]
    fn the_go_release_is_read_from_all_forms() {
        assert_eq!(of_go("go1.26.8\n"), Some((1, 26)));
        assert_eq!(of_go("go1.27rc1"), Some((1, 27)));
        assert_eq!(of_go("devel go1.28-abc123"), Some((1, 28)));
        assert_eq!(of_go(""), None);
    }
}
