//! The container images: built only from the workspace's programs, files of Debian packages and their
//! dependencies, without a base image and without a registry. Each is checked before it is released.
//!
//! Touches: the cache, the given folder, `buildah`. Invariant: an archive under its final name has passed every
//! check.

pub(crate) mod buildah;
mod chart;
mod check;
mod contents;
mod crates;
mod debian;
pub mod name;
mod oci;
mod recipe;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Error, Result};
use clap::Args;

use crate::nested::{Profile, Programs};
use crate::progress::{self, Step};
use crate::{cache, packages, process};
use buildah::Store;
use check::{Checks, Made, Subject};
use contents::Contents;
use oci::Image;
pub use recipe::VERSION;
use recipe::{IMAGES, Recipe};

/// The order of images.
#[derive(Debug, Args)]
pub struct Order {
    /// Tag of the images
    #[arg(long, value_name = "TAG", default_value = VERSION, value_parser = name::tag)]
    pub tag: String,
    /// Repository of the images, as for the chart's image.repository; default: names without a registry
    #[arg(long, value_name = "REGISTRY/PATH", value_parser = name::repository)]
    pub repository: Option<String>,
    /// Output directory of portolan-controller.tar and portolan-agent.tar; default: in the lab's cache
    #[arg(long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// Build profile of the programs
    #[arg(long, value_enum, default_value_t = Profile::Shipped)]
    pub profile: Profile,
}

/// Builds the images, checks them, and prints their paths. Returns whether all checks passed.
///
/// # Errors
/// The machine cannot be prepared, a build failed, or something cannot be written; the message has the remedy.
pub fn run(order: &Order, sink: &mut dyn Write) -> Result<bool> {
    make(order, sink).map_err(with_remedy)
}

/// The same twice with this build of the programs, for `cargo verify`; the images are not kept.
///
/// # Errors
/// As [`run`].
pub fn verify(profile: Profile, sink: &mut dyn Write) -> Result<bool> {
    prove(profile, sink).map_err(with_remedy)
}

fn make(order: &Order, sink: &mut dyn Write) -> Result<bool> {
    // Before a long build.
    let output = match &order.output {
        Some(folder) => folder.clone(),
        None => cache::folder("images")?,
    };
    fs::create_dir_all(&output).with_context(|| format!("creating {}", output.display()))?;
    let output = fs::canonicalize(&output).with_context(|| output.display().to_string())?;
    let works = Works::prepare(order)?;
    let mut all = Vec::new();
    let mut checks = Checks::new(sink);
    for recipe in IMAGES {
        let step = Step::start(recipe.name);
        let made = works.make(recipe, &step)?;
        step.done(&made.image.digest);
        works.check(&made, &mut checks)?;
        all.push(made);
    }
    let (passed, failed) = (checks.passed, checks.failed);
    if failed > 0 {
        checks.line(&format!(
            "{passed} passed, {failed} failed; no image was given out"
        ))?;
        return Ok(false);
    }
    for made in &all {
        let archive = give_out(&works.archive(made.recipe), &output)?;
        write!(sink, "\n{}", summary(made, &archive)?)?;
    }
    write!(sink, "\n{}", next(order, &output))?;
    Ok(true)
}

fn prove(profile: Profile, sink: &mut dyn Write) -> Result<bool> {
    let started = Instant::now();
    let works = Works::prepare(&Order {
        tag: VERSION.to_owned(),
        repository: Some("registry.example.com/portolan".to_owned()),
        output: None,
        profile,
    })?;
    let mut checks = Checks::new(sink);
    for recipe in IMAGES {
        let step = Step::start(recipe.name);
        let first = works.make(recipe, &step)?.image.digest;
        let made = works.make(recipe, &step)?;
        let second = &made.image.digest;
        step.done(second);
        let same = (first == *second).then_some(());
        let what = format!("{}: is the same when made again", recipe.name);
        checks.check(
            &what,
            same.with_context(|| format!("{first}, then {second}")),
        )?;
        works.check(&made, &mut checks)?;
    }
    let (passed, failed) = (checks.passed, checks.failed);
    let took = progress::seconds(started.elapsed());
    checks.line(&format!(
        "images: {passed} passed, {failed} failed in {took}"
    ))?;
    checks.line(&format!("{passed} passed, {failed} failed"))?;
    Ok(failed == 0)
}

/// The inputs of images and of their checks.
struct Works {
    programs: Programs,
    containers: Vec<chart::Container>,
    revision: Option<String>,
    store: Store,
    tag: String,
    repository: Option<String>,
}

impl Works {
    fn prepare(order: &Order) -> Result<Self> {
        packages::ensure()?;
        let containers = chart::containers()?;
        let store = Store::make()?;
        store.probe()?;
        let programs = Programs::build(order.profile)?;
        Ok(Self {
            programs,
            containers,
            revision: revision(),
            store,
            tag: order.tag.clone(),
            repository: order.repository.clone(),
        })
    }

    fn archive(&self, recipe: &Recipe) -> PathBuf {
        self.store.path(&format!("{}.tar", recipe.name))
    }

    /// Builds an archive from scratch, and reads it back.
    fn make(&self, recipe: &'static Recipe, step: &Step) -> Result<Made> {
        let archive = self.archive(recipe);
        let [root, look] = ["root", "look"].map(|name| self.store.path(name));
        for path in [&root, &look] {
            drop(fs::remove_dir_all(path));
        }
        drop(fs::remove_file(&archive));
        step.detail("gathering what goes into it");
        let program = &self.programs.named(recipe.program)?.path;
        let contents = Contents::gather(recipe, program)?;
        contents.write(&root)?;
        step.detail("packing");
        let revision = self.revision.as_deref();
        let labels = recipe::labels(recipe, VERSION, revision, contents.packages.iter());
        let reference = name::reference(self.repository.as_deref(), recipe.name, &self.tag);
        let store = &self.store;
        store.build(recipe, &root, &labels, &archive, &reference)?;
        fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))?;
        step.detail("reading it back");
        let image = Image::read(&archive, &look)?;
        fs::remove_dir_all(&look).with_context(|| format!("removing {}", look.display()))?;
        Ok(Made {
            recipe,
            image,
            labels,
        })
    }

    fn check(&self, made: &Made, checks: &mut Checks<'_>) -> Result<()> {
        let recipe = made.recipe;
        self.store.unpack(&self.archive(recipe), recipe.name)?;
        let subject = Subject {
            made,
            containers: &self.containers,
            store: &self.store,
        };
        subject.check(checks)
    }
}

/// The commit of the clone, with a suffix if there are changes. `None` outside of a clone.
fn revision() -> Option<String> {
    let git = |words: &[&str]| {
        let mut command = process::program("git").ok()?;
        process::output(command.arg("-C").arg(crate::nested::root()).args(words)).ok()
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    let sign = match changes.trim() {
        "" => "",
        _ => "-dirty",
    };
    Some(format!("{}{sign}", commit.trim()))
}

/// Moves an archive to its destination; it gets its final name only when it is complete.
fn give_out(archive: &Path, output: &Path) -> Result<PathBuf> {
    let name = archive.file_name().unwrap_or_default();
    let path = output.join(name);
    let draft = path.with_extension(format!("writing-{}", std::process::id()));
    let moved = fs::copy(archive, &draft).and_then(|_| fs::rename(&draft, &path));
    if moved.is_err() {
        drop(fs::remove_file(&draft));
    }
    moved.with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

fn summary(made: &Made, archive: &Path) -> Result<String> {
    let image = &made.image;
    let size = fs::metadata(archive)
        .with_context(|| format!("reading {}", archive.display()))?
        .len();
    let megabytes = |bytes: u64| format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10);
    let packages = image.config["Labels"][recipe::PACKAGES_LABEL].as_str();
    let packages = packages.unwrap_or_default().split_whitespace();
    Ok(format!(
        "{}\n  digest   {}\n  archive  {}, {}\n  holds    {} files of {} Debian packages and ours, \
         {}; runs as {}\n",
        image.reference,
        image.digest,
        archive.display(),
        megabytes(size),
        image.files(),
        packages.count(),
        megabytes(image.size),
        made.recipe.user
    ))
}

/// Prints the next steps.
fn next(order: &Order, output: &Path) -> String {
    let repository = order.repository.as_deref().unwrap_or("REGISTRY/PATH");
    let mut text =
        "Nothing was pushed. With skopeo, which uses the credentials of `skopeo login`:\n"
            .to_owned();
    for recipe in IMAGES {
        let archive = output.join(format!("{}.tar", recipe.name));
        let name = name::reference(Some(repository), recipe.name, &order.tag);
        text += &format!(
            "  skopeo copy oci-archive:{} docker://{name}\n",
            archive.display()
        );
    }
    text += &format!("Then helm installs them: --set image.repository={repository}");
    if order.tag != VERSION {
        text += &format!(" --set image.tag={}", order.tag);
    }
    text + "\n"
}

fn with_remedy(error: Error) -> Error {
    match buildah::remedy(&format!("{error:#}")) {
        Some(remedy) => Error::msg(format!("{error:#}\n{remedy}")),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(repository: Option<&str>, tag: &str) -> Order {
        Order {
            tag: tag.to_owned(),
            repository: repository.map(str::to_owned),
            output: None,
            profile: Profile::Dev,
        }
    }

    fn made() -> Made {
        let image = Image {
            digest: "sha256:12".to_owned(),
            reference: "r.example/p/portolan-agent:7".to_owned(),
            config: serde_json::json!({"Labels": {recipe::PACKAGES_LABEL: "a=1 b=2"}}),
            places: oci::Places::from([
                ("/etc".to_owned(), oci::Kind::Folder),
                ("/etc/group".to_owned(), oci::Kind::File(false)),
            ]),
            size: 12_340_000,
            ..Image::default()
        };
        Made {
            recipe: &IMAGES[1],
            image,
            labels: Vec::new(),
        }
    }

    #[test]
    fn a_summary_names_the_image_and_what_identifies_it() {
        let archive = std::env::temp_dir().join(format!("portolan-sum-{}", std::process::id()));
        fs::write(&archive, "1").unwrap();
        let text = summary(&made(), &archive).unwrap();
        fs::remove_file(&archive).unwrap();
        for part in [
            "r.example/p/portolan-agent:7\n",
            "digest   sha256:12\n",
            "1 files of 2 Debian packages and ours, 12.3 MB; runs as 0:0",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn next_steps_name_only_a_registry_that_was_given() {
        let text = next(&order(None, VERSION), Path::new("/out"));
        let line = format!(
            "skopeo copy oci-archive:/out/portolan-agent.tar \
             docker://REGISTRY/PATH/portolan-agent:{VERSION}\n"
        );
        assert!(text.contains(&line), "{text}");
        assert!(
            text.ends_with("--set image.repository=REGISTRY/PATH\n"),
            "{text}"
        );
        let text = next(&order(Some("r.example/p"), "7"), Path::new("/out"));
        assert!(
            text.contains("docker://r.example/p/portolan-agent:7\n"),
            "{text}"
        );
        assert!(text.ends_with("=r.example/p --set image.tag=7\n"), "{text}");
    }

    #[test]
    fn an_archive_is_given_out_whole_in_place_of_an_older_one() {
        let folder = std::env::temp_dir().join(format!("portolan-out-{}", std::process::id()));
        fs::create_dir_all(folder.join("output")).unwrap();
        let archive = folder.join("a.tar");
        fs::write(&archive, "new").unwrap();
        fs::write(folder.join("output/a.tar"), "older").unwrap();
        let path = give_out(&archive, &folder.join("output")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.join("output")).unwrap().count(), 1);
        assert!(give_out(&archive, &folder.join("none")).is_err());
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_remedy_follows_the_error_in_a_line_of_its_own() {
        let error = anyhow::anyhow!("write: no space left on device").context("copying");
        let text = with_remedy(error).to_string();
        let (first, second) = text.split_once('\n').unwrap();
        assert_eq!(first, "copying: write: no space left on device");
        assert!(second.contains("XDG_CACHE_HOME"), "{second}");
        assert_eq!(with_remedy(anyhow::anyhow!("no")).to_string(), "no");
    }
}
