//! Reads the contents of an image archive, independently of its writer.
//!
//! Touches: `tar`, the given folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::process;

/// Maximum number of symlinks followed for one path; more form a cycle.
const LINKS: usize = 16;

/// An entry at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A folder.
    Folder,
    /// A file, and whether it is executable.
    File(bool),
    /// A symlink to this target.
    Link(String),
}

/// All entries of an image, by path.
pub(super) type Places = BTreeMap<String, Kind>;

/// An image.
#[derive(Debug, Default)]
pub(super) struct Image {
    /// Digest of its manifest.
    pub(super) digest: String,
    /// Its name and tag.
    pub(super) reference: String,
    /// Annotations of the manifest.
    pub(super) annotations: Value,
    /// Its configuration: user, entrypoint, and labels.
    pub(super) config: Value,
    /// Its contents.
    pub(super) places: Places,
    /// Paths with an owner other than root, or with a time.
    pub(super) odd: Vec<String>,
    /// Size of its contents, bytes.
    pub(super) size: u64,
}

impl Image {
    /// Reads an archive by unpacking it into an empty folder.
    ///
    /// # Errors
    /// It is not an archive of one image for one platform.
    pub(super) fn read(archive: &Path, folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        let mut unpack = process::program("tar")?;
        unpack.arg("-xf").arg(archive).arg("-C").arg(folder);
        process::output(&mut unpack)?;
        let index = json(&folder.join("index.json"))?;
        let [entry] = index["manifests"].as_array().map_or(&[][..], Vec::as_slice) else {
            bail!("{} holds more or less than one image", archive.display());
        };
        let digest = text(&entry["digest"])?;
        let manifest = json(&blob(folder, &digest)?)?;
        let config = json(&blob(folder, &text(&manifest["config"]["digest"])?)?)?;
        let layers = manifest["layers"]
            .as_array()
            .context("there are no layers")?;
        let mut image = Self {
            digest,
            reference: text(&entry["annotations"]["org.opencontainers.image.ref.name"])?,
            annotations: manifest["annotations"].clone(),
            config: config["config"].clone(),
            ..Self::default()
        };
        for layer in layers {
            let mut list = process::program("tar")?;
            list.args(["--numeric-owner", "--full-time", "--utc", "-tvf"]);
            let listed = process::output(list.arg(blob(folder, &text(&layer["digest"])?)?))?;
            image.add(&listed)?;
        }
        Ok(image)
    }

    fn add(&mut self, listed: &str) -> Result<()> {
        for line in listed.lines() {
            let entry = Listed::parse(line).with_context(|| format!("tar printed `{line}`"))?;
            if entry.owner != "0/0" || !entry.time.starts_with("1970-01-01 00:00:00") {
                self.odd.push(entry.place.clone());
            }
            self.size += entry.size;
            self.places.insert(entry.place, entry.kind);
        }
        Ok(())
    }

    /// The number of files and symlinks.
    pub(super) fn files(&self) -> usize {
        let kinds = self.places.values();
        kinds.filter(|kind| **kind != Kind::Folder).count()
    }
}

/// A line of `tar -tv`.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    place: String,
    kind: Kind,
    owner: String,
    time: String,
    size: u64,
}

impl Listed {
    fn parse(line: &str) -> Result<Self> {
        let mut rest = line;
        let mut next = || {
            let (word, after) = rest.trim_start().split_once(' ')?;
            rest = after;
            Some(word)
        };
        let mut word = || next().context("it has too few words");
        let (mode, owner, size, day, hour) = (word()?, word()?, word()?, word()?, word()?);
        let (path, target) = rest.split_once(" -> ").unwrap_or((rest, ""));
        let kind = match mode.as_bytes().first() {
            Some(b'd') => Kind::Folder,
            Some(b'l') => Kind::Link(target.to_owned()),
            Some(b'-') => Kind::File(mode.contains('x')),
            _ => bail!("an image of ours holds files, folders and links only"),
        };
        Ok(Self {
            place: format!("/{}", path.trim_start_matches("./").trim_matches('/')),
            kind,
            owner: owner.to_owned(),
            time: format!("{day} {hour}"),
            size: size.parse()?,
        })
    }
}

/// The target of a path, with symlinks resolved as in the image. The image's root is a folder whether or not it is
/// listed.
pub(super) fn look(places: &Places, path: &str) -> Option<(String, Kind)> {
    let mut todo: Vec<String> = path.split('/').rev().map(str::to_owned).collect();
    let (mut here, mut kind, mut followed) = (String::new(), Kind::Folder, 0);
    while let Some(name) = todo.pop() {
        match name.as_str() {
            "" | "." => continue,
            ".." => {
                here.truncate(here.rfind('/').unwrap_or(0));
                kind = Kind::Folder;
                continue;
            }
            _ if kind != Kind::Folder => return None,
            _ => {}
        }
        let there = format!("{here}/{name}");
        match places.get(&there)? {
            Kind::Link(target) => {
                followed += 1;
                if followed > LINKS {
                    return None;
                }
                if target.starts_with('/') {
                    here.clear();
                }
                todo.extend(target.split('/').rev().map(str::to_owned));
            }
            found => (here, kind) = (there, found.clone()),
        }
    }
    Some((here, kind))
}

fn blob(folder: &Path, digest: &str) -> Result<std::path::PathBuf> {
    let (kind, hash) = digest.split_once(':').context("a digest has a colon")?;
    ensure!(
        !hash.contains('/') && !kind.contains('/'),
        "{digest} is no digest"
    );
    Ok(folder.join("blobs").join(kind).join(hash))
}

fn json(path: &Path) -> Result<Value> {
    let reading = || format!("reading {}", path.display());
    let text = fs::read_to_string(path).with_context(reading)?;
    serde_json::from_str(&text).with_context(reading)
}

fn text(value: &Value) -> Result<String> {
    value
        .as_str()
        .map(str::to_owned)
        .with_context(|| format!("`{value}` is no text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_tar_are_read_with_links_and_blanks_in_names() {
        let line = "-rwxr-xr-x 0/0           48536 1970-01-01 00:00:00 usr/bin/a b";
        let listed = Listed::parse(line).unwrap();
        assert_eq!(listed.place, "/usr/bin/a b");
        assert_eq!((listed.kind, listed.size), (Kind::File(true), 48_536));
        let line = "lrwxrwxrwx 0/0               0 1970-01-01 00:00:00 bin -> usr/bin";
        let listed = Listed::parse(line).unwrap();
        assert_eq!(listed.kind, Kind::Link("usr/bin".into()));
        let line = "drwxr-xr-x 10/0              0 2026-01-02 03:04:05 ./etc/";
        let listed = Listed::parse(line).unwrap();
        assert_eq!((listed.place.as_str(), listed.kind), ("/etc", Kind::Folder));
        assert_eq!(
            (listed.owner.as_str(), listed.time.as_str()),
            ("10/0", "2026-01-02 03:04:05")
        );
        assert!(Listed::parse("crw-r--r-- 0/0 1,3 1970-01-01 00:00:00 dev/null").is_err());
        assert!(Listed::parse("tar: removing leading /").is_err());
    }

    #[test]
    fn owners_and_times_of_the_build_are_noticed() {
        let mut image = Image::default();
        let line = |owner: &str, day: &str, name: &str| {
            format!("-rw-r--r-- {owner} 3 {day} 00:00:00 {name}\n")
        };
        let lines = line("0/0", "1970-01-01", "a")
            + &line("1000/0", "1970-01-01", "b")
            + &line("0/0", "2026-11-23", "c");
        image.add(&lines).unwrap();
        assert_eq!(image.odd, ["/b", "/c"]);
        assert_eq!((image.files(), image.size), (3, 9));
    }

    #[test]
    fn links_are_followed_inside_of_the_image() {
        let link = |to: &str| Kind::Link(to.to_owned());
        let places = Places::from([
            ("/usr".to_owned(), Kind::Folder),
            ("/usr/sbin".to_owned(), Kind::Folder),
            ("/usr/sbin/nft".to_owned(), Kind::File(true)),
            ("/usr/sbin/a".to_owned(), link("../../sbin/nft")),
            ("/sbin".to_owned(), link("usr/sbin")),
            ("/abs".to_owned(), link("/sbin/a")),
            ("/loop".to_owned(), link("loop")),
        ]);
        let found = |path: &str| look(&places, path).map(|(path, _)| path);
        for path in [
            "/usr/sbin/nft",
            "/sbin/nft",
            "/sbin/a",
            "/abs",
            "/../sbin//./nft",
        ] {
            assert_eq!(found(path).as_deref(), Some("/usr/sbin/nft"), "{path}");
        }
        for path in ["/loop", "/nothing", "/usr/sbin/nft/below"] {
            assert_eq!(found(path), None, "{path}");
        }
        assert_eq!(look(&places, "/"), Some((String::new(), Kind::Folder)));
    }
}
