//! Programs of two builds in one folder, because a program finds the others beside itself.

use std::fs;

use anyhow::{Context, Result};

use super::{Binary, Programs};
use crate::cache;

/// All of `usual` in a folder of this run, where those of `instead` replace the ones with the same name.
///
/// # Errors
/// The cache cannot be written.
pub(super) fn in_one_folder(usual: &Programs, instead: &Programs) -> Result<Programs> {
    let folder = cache::run_folder("together")?;
    let mut programs = Vec::new();
    for program in usual.iter() {
        let mut same = instead.iter().filter(|other| other.name == program.name);
        let found = same.next().unwrap_or(program);
        let path = folder.join(&found.name);
        // A link, as cargo makes them, or a copy on another file system.
        if fs::hard_link(&found.path, &path).is_err() {
            let copying = || format!("copying {}", found.path.display());
            fs::copy(&found.path, &path).with_context(copying)?;
        }
        programs.push(Binary {
            path,
            ..found.clone()
        });
    }
    Ok(Programs(programs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, text: &str) -> Binary {
        let path = std::env::temp_dir().join(format!("portolan-{text}-{}", std::process::id()));
        fs::write(&path, text).unwrap();
        Binary {
            name: name.to_owned(),
            kind: "bin".to_owned(),
            tests: false,
            package: "p".to_owned(),
            folder: "/w".into(),
            path,
        }
    }

    #[test]
    fn programs_of_the_second_build_replace_those_of_the_first() {
        let usual = Programs(vec![program("agent", "usual"), program("other", "other")]);
        let instead = Programs(vec![program("agent", "instead")]);
        let together = in_one_folder(&usual, &instead).unwrap();
        let paths: Vec<_> = together.iter().map(|program| &program.path).collect();
        assert!(paths[0].ends_with("agent") && paths[1].ends_with("other"));
        assert_eq!(paths[0].parent(), paths[1].parent());
        let text = |path: &&std::path::PathBuf| fs::read_to_string(path).unwrap();
        let texts: Vec<_> = paths.iter().map(text).collect();
        assert_eq!(texts, ["instead", "other"]);
        for binary in usual.iter().chain(instead.iter()) {
            fs::remove_file(&binary.path).unwrap();
        }
        fs::remove_dir_all(paths[0].parent().unwrap()).unwrap();
    }
}
