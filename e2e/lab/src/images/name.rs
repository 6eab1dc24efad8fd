//! Names of images. Pure.

/// Validates a tag of a registry.
///
/// # Errors
/// The problem with it.
pub fn tag(text: &str) -> Result<String, String> {
    const LONGEST: usize = 128;
    let inside = |sign: char| sign.is_ascii_alphanumeric() || "._-".contains(sign);
    let begins_well = !text.starts_with(['.', '-']);
    if text.is_empty() || text.len() > LONGEST || !begins_well || !text.chars().all(inside) {
        return Err(format!(
            "a tag has letters, digits, `_`, `.` and `-`, the last two not at its beginning, and at \
             most {LONGEST} of them"
        ));
    }
    Ok(text.to_owned())
}

/// Validates a repository as in the chart's `image.repository`: `REGISTRY/PATH`.
///
/// # Errors
/// The problem with it.
pub fn repository(text: &str) -> Result<String, String> {
    let text = text.trim_end_matches('/');
    if text.contains("://") {
        return Err("a repository has no scheme: REGISTRY/PATH".to_owned());
    }
    let (registry, path) = text.split_once('/').unwrap_or((text, ""));
    // Without such a character, runtimes take the first part for a path in their default registry.
    if !(registry.contains(['.', ':']) || registry == "localhost") {
        return Err(format!(
            "`{registry}` names no registry, and there is no default one: REGISTRY/PATH, like \
             registry.example.com/portolan"
        ));
    }
    let host = |sign: char| sign.is_ascii_alphanumeric() || ".-:[]".contains(sign);
    let inside =
        |sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit() || "._-".contains(sign);
    let mut parts = path.split('/');
    let ends = |part: &str| part.starts_with(alphanumeric) && part.ends_with(alphanumeric);
    if !registry.chars().all(host) || !parts.all(|part| ends(part) && part.chars().all(inside)) {
        return Err(
            "the path in a registry has small letters, digits, and between them `.`, `_`, `-` and \
             `/`: REGISTRY/PATH, like registry.example.com/portolan"
                .to_owned(),
        );
    }
    Ok(text.to_owned())
}

fn alphanumeric(sign: char) -> bool {
    sign.is_ascii_alphanumeric()
}

/// The full name of an image.
pub(super) fn reference(repository: Option<&str>, name: &str, tag: &str) -> String {
    match repository {
        Some(repository) => format!("{repository}/{name}:{tag}"),
        None => format!("{name}:{tag}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_chart_asks_for() {
        let in_registry = reference(Some("r.example/net"), "portolan-agent", "0.1.0");
        assert_eq!(in_registry, "r.example/net/portolan-agent:0.1.0");
        assert_eq!(reference(None, "portolan-agent", "1"), "portolan-agent:1");
        let chart = crate::nested::root().join("e2e/api/chart/minimal.yaml");
        let chart = std::fs::read_to_string(chart).unwrap();
        let version = crate::images::recipe::VERSION;
        for name in ["portolan-controller", "portolan-agent"] {
            let name = reference(Some("registry.example.com/portolan"), name, version);
            assert!(chart.contains(&format!("image: {name}\n")), "{name}");
        }
    }

    #[test]
    fn a_repository_names_its_registry() {
        for good in [
            "registry.example.com/portolan",
            "localhost/p",
            "localhost:5000/a/b-c.d_e",
            "10.0.0.1:5000/p",
            "[fd00::1]:5000/p",
        ] {
            assert_eq!(repository(good).as_deref(), Ok(good));
        }
        assert_eq!(repository("r.example/p/").as_deref(), Ok("r.example/p"));
        for bad in ["portolan", "user/portolan", "", "/p"] {
            assert!(repository(bad).unwrap_err().contains("no default"), "{bad}");
        }
        for bad in [
            "r.example",
            "r.example/A",
            "r.example//p",
            "https://r.example/p",
            "r.ex/p:1",
        ] {
            assert!(repository(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn tags_are_those_that_registries_take() {
        for good in ["0.1.0", "v1", "latest", "_a", "1.2.3-rc.1"] {
            assert_eq!(tag(good).as_deref(), Ok(good));
        }
        for bad in ["", ".a", "-a", "a b", "a:b", "a+b", &"a".repeat(129)] {
            assert!(tag(bad).is_err(), "{bad}");
        }
    }
}
