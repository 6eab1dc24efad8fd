//! The command lines of buildah.

use std::path::Path;

use super::super::contents;
use super::super::recipe::{self, Recipe};

/// Copies the contents of a folder into the container of an image, owned by root.
pub(super) fn copy(recipe: &Recipe, root: &Path) -> Vec<String> {
    let root = root.to_string_lossy();
    words(&["copy", "--quiet", "--chown", "0:0", recipe.name, &root, "/"])
}

/// Sets the configuration of an image, with labels that are annotations too.
pub(super) fn configure(recipe: &Recipe, labels: &[(&str, String)]) -> Vec<String> {
    let entrypoint = format!("[\"{}\"]", contents::place_of(recipe));
    let path = format!("PATH={}", recipe::PATH);
    let mut all = words(&["config", "--user", recipe.user, "--workingdir", "/"]);
    all.extend(words(&["--entrypoint", &entrypoint, "--env", &path]));
    all.extend(words(&["--created-by", "cargo lab image"]));
    for (key, value) in labels {
        for option in ["--label", "--annotation"] {
            all.extend(words(&[option, &format!("{key}={value}")]));
        }
    }
    all.push(recipe.name.to_owned());
    all
}

/// Writes the archive of an image.
///
/// All times are the epoch, and buildah's version is omitted, so that neither changes the image. It is compressed
/// here: otherwise pushing would compress it and change its digest in the registry.
pub(super) fn commit(recipe: &Recipe, archive: &Path, reference: &str) -> Vec<String> {
    let archive = format!("oci-archive:{}:{reference}", archive.display());
    let options = "commit --quiet --format oci --timestamp 0 --identity-label=false \
                   --disable-compression=false --rm";
    let options = options.split(' ').chain([recipe.name, &archive]);
    options.map(str::to_owned).collect()
}

/// Runs a command in a container, with only these capabilities.
pub(super) fn in_container(name: &str, capabilities: &[String], command: &[String]) -> Vec<String> {
    let mut all = words(&["run", "--isolation", "chroot", "--cap-drop", "ALL"]);
    for capability in capabilities {
        all.extend(words(&["--cap-add", &format!("CAP_{capability}")]));
    }
    all.extend(words(&[name, "--"]));
    all.extend_from_slice(command);
    all
}

/// Owned words of a command line.
pub(super) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::recipe::IMAGES;

    #[test]
    fn images_begin_with_nothing_and_owe_nothing_to_the_clock() {
        let line = commit(&IMAGES[0], Path::new("/c/a.tar"), "r.example:5000/p/c:1").join(" ");
        assert_eq!(
            line,
            "commit --quiet --format oci --timestamp 0 --identity-label=false \
             --disable-compression=false --rm portolan-controller oci-archive:/c/a.tar:r.example:5000/p/c:1"
        );
        let line = copy(&IMAGES[1], Path::new("/c/root")).join(" ");
        assert_eq!(line, "copy --quiet --chown 0:0 portolan-agent /c/root /");
    }

    #[test]
    fn what_is_said_is_in_the_configuration_and_in_the_manifest() {
        let line = configure(&IMAGES[0], &[("a.b", "two words".to_owned())]);
        let after = |option: &str| {
            let at = line.iter().position(|word| word == option).unwrap();
            line[at + 1].as_str()
        };
        assert_eq!(after("--user"), "65532:65532");
        assert_eq!(after("--entrypoint"), r#"["/usr/bin/portolan-controller"]"#);
        assert_eq!(after("--env"), "PATH=/usr/sbin:/usr/bin");
        assert_eq!(after("--label"), "a.b=two words");
        assert_eq!(after("--annotation"), "a.b=two words");
        assert_eq!(line.last().unwrap(), "portolan-controller");
    }

    #[test]
    fn a_container_has_the_capabilities_that_are_named_and_no_other() {
        let line = in_container("c", &words(&["NET_ADMIN"]), &words(&["nft", "--version"]));
        assert_eq!(
            line.join(" "),
            "run --isolation chroot --cap-drop ALL --cap-add CAP_NET_ADMIN c -- nft --version"
        );
    }
}
