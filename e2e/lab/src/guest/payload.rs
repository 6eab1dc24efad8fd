//! The additions of one run to the base image: programs with their libraries, input files, the command.

use std::fs::{self, File};
use std::io::{BufWriter, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::archive::Archive;
use super::image::{Image, add_file};
use super::{Job, recipe};
use crate::installed::{libraries, usr_merge};

/// Folder of the programs in the guest, first in PATH.
const PROGRAMS: &str = "/portolan/bin";

/// Files of this machine for one run.
#[derive(Debug, Default, Clone)]
pub struct Payload {
    programs: Vec<PathBuf>,
    files: Vec<(String, PathBuf)>,
}

impl Payload {
    /// Adds a program under its file name.
    pub fn program(&mut self, path: &Path) {
        self.programs.push(path.to_owned());
    }

    /// Adds a file at a path in the guest.
    pub fn file(&mut self, place: &str, path: &Path) {
        self.files.push((place.to_owned(), path.to_owned()));
    }

    /// Adds a folder recursively, except the top-level names in `except`.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn folder(&mut self, place: &str, path: &Path, except: &[&str]) -> Result<()> {
        let reading = || format!("reading {}", path.display());
        for entry in fs::read_dir(path).with_context(reading)? {
            let entry = entry.with_context(reading)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if except.contains(&name.as_str()) {
                continue;
            }
            let (place, path) = (format!("{place}/{name}"), entry.path());
            if path.is_dir() {
                self.folder(&place, &path, &[])?;
            } else {
                self.files.push((place, path));
            }
        }
        Ok(())
    }
}

/// Writes the initial file system of one run: the base image followed by the run's own archive.
pub(super) fn write(initrd: &Path, image: &Image, job: &Job) -> Result<()> {
    let writing = || format!("writing {}", initrd.display());
    fs::copy(image.base(), initrd).with_context(writing)?;
    let mut file = File::options()
        .write(true)
        .open(initrd)
        .with_context(writing)?;
    file.seek(SeekFrom::End(0)).with_context(writing)?;
    let mut archive = Archive::new(BufWriter::new(file));
    for library in libraries::needed(&job.payload.programs)? {
        let place = usr_merge::merged(&library.to_string_lossy());
        add_file(&mut archive, &place, &library)?;
    }
    for program in &job.payload.programs {
        let Some(name) = program.file_name() else {
            bail!("{} is no file", program.display())
        };
        let place = format!("{PROGRAMS}/{}", name.to_string_lossy());
        add_file(&mut archive, &place, program)?;
    }
    for (place, path) in &job.payload.files {
        add_file(&mut archive, place, path)?;
    }
    archive
        .text("/portolan/settings", 0o644, &settings(job))
        .with_context(writing)?;
    archive
        .text("/portolan/run", 0o755, &command(job))
        .with_context(writing)?;
    archive.finish().with_context(writing)?;
    Ok(())
}

fn settings(job: &Job) -> String {
    let own = job.modules.iter().map(String::as_str);
    let modules: Vec<&str> = recipe::MODULES.iter().copied().chain(own).collect();
    let (modules, network) = (quoted(&modules.join(" ")), u8::from(job.network));
    format!("MODULES={modules}\nNETWORK={network}\n")
}

/// The command as a script, so that any arguments are preserved.
fn command(job: &Job) -> String {
    let mut text = String::from("#!/bin/dash\n");
    for (name, value) in &job.environment {
        text.push_str(&format!("export {name}={}\n", quoted(value)));
    }
    text.push_str("exec");
    for word in &job.command {
        text.push(' ');
        text.push_str(&quoted(word));
    }
    text.push('\n');
    text
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(words: &[&str]) -> Job {
        Job::new(
            words.iter().map(|word| (*word).to_owned()).collect(),
            Payload::default(),
        )
    }

    #[test]
    fn arguments_reach_the_guest_as_they_are() {
        let mut job = job(&["sh", "-c", "echo it's $HOME; exit 3", ""]);
        job.environment = vec![("COLUMNS".into(), "80".into())];
        assert_eq!(
            command(&job),
            "#!/bin/dash\nexport COLUMNS='80'\n\
             exec 'sh' '-c' 'echo it'\\''s $HOME; exit 3' ''\n"
        );
    }

    #[test]
    fn settings_name_the_modules_to_load_and_whether_there_is_a_network() {
        let mut job = job(&["true"]);
        job.modules = vec!["br_netfilter".into()];
        job.network = true;
        let text = settings(&job);
        assert!(text.starts_with("MODULES='ip_vs "), "{text}");
        assert!(text.ends_with(" br_netfilter'\nNETWORK=1\n"), "{text}");
    }

    #[test]
    fn a_folder_is_added_with_all_below_it_but_for_the_excepted() {
        let root = std::env::temp_dir().join(format!("portolan-payload-{}", std::process::id()));
        fs::create_dir_all(root.join("demo/src")).unwrap();
        fs::create_dir_all(root.join("src")).unwrap();
        fs::write(root.join("demo/src/a.yaml"), "a").unwrap();
        fs::write(root.join("src/lib.rs"), "b").unwrap();
        let mut payload = Payload::default();
        payload.folder("/portolan/e2e", &root, &["src"]).unwrap();
        assert_eq!(payload.files.len(), 1);
        assert_eq!(payload.files[0].0, "/portolan/e2e/demo/src/a.yaml");
        fs::remove_dir_all(&root).unwrap();
    }
}
