//! Builds tools with the `go` client from the modules in `e2e/tools`, once, into the cache.
//!
//! Touches: `go` with its own caches, and one folder of the lab's cache. A program under its final name is complete;
//! it is built elsewhere and renamed.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::version::{self, Version};
use super::{Kind, Module, Tool};
use crate::progress::Step;
use crate::{cache, nested, process};

/// Incremented when the build changes, so that older builds are not used.
const RECIPE: u32 = 1;
/// The module whose minor version `e2e/tools/*/go.mod` requires.
const OLDEST_GO: (u32, u32) = (1, 26);
/// The version from which a JSON package is the default that breaks the API server's OpenAPI.
const WITH_JSON_V2: (u32, u32) = (1, 27);

/// A module at the version in its `go.mod`.
pub(super) struct Source {
    module: &'static Module,
    folder: PathBuf,
    pub(super) version: Version,
    /// Hash of everything that determines the build, except Go itself.
    hash: String,
}

/// The `go` client of this machine.
pub(super) struct Go {
    version: String,
    number: (u32, u32),
}

impl Source {
    pub(super) fn read(module: &'static Module) -> Result<Self> {
        let folder = nested::root().join("e2e/tools").join(module.folder);
        let read = |name: &str| {
            let path = folder.join(name);
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
        };
        let (go_mod, go_sum) = (read("go.mod")?, read("go.sum")?);
        let version = version::required(&go_mod, module.requires).with_context(|| {
            let path = folder.join("go.mod");
            format!(
                "{} requires no release of {}",
                path.display(),
                module.requires
            )
        })?;
        let mut hasher = DefaultHasher::new();
        (RECIPE, &go_mod, &go_sum, std::env::consts::ARCH).hash(&mut hasher);
        // Some modules have their own main package.
        let program = folder.join("main.go");
        if program.is_file() {
            read("main.go")?.hash(&mut hasher);
        }
        let hash = format!("{:016x}", hasher.finish());
        Ok(Self {
            module,
            folder,
            version,
            hash,
        })
    }

    /// The tools, built unless they exist; and their folder.
    pub(super) fn tools(&self, wanted: &[&'static Tool]) -> Result<PathBuf> {
        let go = Go::find(&self.folder);
        let folder = match &go {
            Ok(go) => self.place(&go.version)?,
            // Tools built with a suitable version remain usable.
            Err(_) => self.built_before(wanted)?.unwrap_or(self.place("none")?),
        };
        let missing: Vec<&Tool> = wanted
            .iter()
            .copied()
            .filter(|tool| !folder.join(tool.name).is_file())
            .collect();
        if missing.is_empty() {
            return Ok(folder);
        }
        let go = go?;
        fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        let step = Step::start(&format!("{} {}", self.module.title, self.version));
        for tool in &missing {
            step.detail(&format!("building {} (once; {})", tool.name, tool.takes));
            self.build(&go, tool, &folder)?;
        }
        let names: Vec<&str> = missing.iter().map(|tool| tool.name).collect();
        step.done(&format!("built {}", names.join(", ")));
        Ok(folder)
    }

    fn place(&self, go: &str) -> Result<PathBuf> {
        let name = format!("{}-{}-{}", self.module.folder, self.hash, go);
        Ok(cache::folder(super::CACHE)?.join(name))
    }

    fn built_before(&self, wanted: &[&'static Tool]) -> Result<Option<PathBuf>> {
        let cache = cache::folder(super::CACHE)?;
        let start = format!("{}-{}-", self.module.folder, self.hash);
        let entries =
            fs::read_dir(&cache).with_context(|| format!("reading {}", cache.display()))?;
        let mut folders = entries.flatten().map(|entry| entry.path());
        let complete = |folder: &PathBuf| {
            let name = folder.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&start) && wanted.iter().all(|tool| folder.join(tool.name).is_file())
        };
        Ok(folders.find(complete))
    }

    fn build(&self, go: &Go, tool: &Tool, folder: &Path) -> Result<()> {
        let draft = folder.join(format!("{}.building-{}", tool.name, std::process::id()));
        let mut command = prepared(process::dying_with_us("go", "TERM")?, &self.folder);
        if go.number >= WITH_JSON_V2 {
            command.env("GOEXPERIMENT", "nojsonv2");
        }
        match tool.kind {
            Kind::Program => command.arg("build"),
            Kind::Tests => command.args(["test", "-c"]),
        };
        command
            .args(["-mod=readonly", "-trimpath", "-buildvcs=false"])
            .args(["-ldflags", &self.linked()])
            .arg("-o")
            .arg(&draft)
            .arg(self.module.package(tool));
        let built = process::output(&mut command).with_context(|| {
            format!(
                "building {} in {}; modules are downloaded from `go env GOPROXY`, is that \
                 reachable?",
                tool.name,
                self.folder.display()
            )
        });
        if let Err(error) = built {
            // The first error is more useful than one of the clean-up.
            drop(fs::remove_file(&draft));
            return Err(error);
        }
        let path = folder.join(tool.name);
        fs::rename(&draft, &path).with_context(|| format!("renaming to {}", path.display()))
    }

    /// The folder with the sources of the module that determines the version.
    pub(super) fn sources(&self) -> Result<PathBuf> {
        let mut command = prepared(process::program("go")?, &self.folder);
        command.args(["list", "-mod=readonly", "-m", "-f", "{{.Dir}}"]);
        let said = process::output(command.arg(self.module.requires))?;
        match said.trim() {
            "" => bail!("`{}` names no folder", process::shown(&command)),
            folder => Ok(PathBuf::from(folder)),
        }
    }

    /// Without symbols, and with the version that Kubernetes' programs report.
    fn linked(&self) -> String {
        let mut flags = "-s -w".to_owned();
        if let Some(package) = self.module.version_package {
            let Version { major, minor, .. } = self.version;
            let variables = [
                ("gitVersion", format!("v{}", self.version)),
                ("gitMajor", major.to_string()),
                ("gitMinor", minor.to_string()),
            ];
            for (variable, value) in variables {
                flags += &format!(" -X {package}.{variable}={value}");
            }
        }
        flags
    }
}

impl Go {
    /// The version used in `folder`: `go` may download a newer toolchain by itself.
    fn find(folder: &Path) -> Result<Self> {
        let mut command = prepared(process::program("go")?, folder);
        let said = process::output(command.args(["env", "GOVERSION"])).with_context(wanted)?;
        Self::read(said.trim())
    }

    fn read(version: &str) -> Result<Self> {
        match version::of_go(version) {
            Some(number) if number >= OLDEST_GO => Ok(Self {
                version: version.replace([' ', '/'], "-"),
                number,
            }),
            _ => bail!("`go env GOVERSION` says `{version}`; {}", wanted()),
        }
    }
}

/// The error if Go is missing.
fn wanted() -> String {
    let (major, minor) = OLDEST_GO;
    format!(
        "the tools of the control plane are built with Go {major}.{minor} or newer: install it from \
         https://go.dev/dl and see that `go` is in PATH, or name a folder with the finished \
         programs in {}",
        super::ASSETS
    )
}

fn prepared(mut command: Command, folder: &Path) -> Command {
    command
        .current_dir(folder)
        // A workspace in a parent folder, if any, is for other modules.
        .env("GOWORK", "off")
        .env("CGO_ENABLED", "0")
        // The compiler is a Go program that would spend a tenth of its time on garbage collection.
        .env("GOGC", "400");
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::{MODULES, NODE_MODULES, OTHER_KUBERNETES};

    #[test]
    fn every_module_is_there_with_its_version_and_its_tools_and_public_sources_only() {
        let others = OTHER_KUBERNETES.iter().map(|(_, module)| module);
        for module in MODULES.iter().chain(NODE_MODULES).chain(others) {
            let source = Source::read(module).unwrap();
            let go_mod = fs::read_to_string(source.folder.join("go.mod")).unwrap();
            for tool in module
                .tools
                .iter()
                .filter(|tool| tool.kind == Kind::Program)
            {
                let package = module.package(tool);
                assert!(go_mod.contains(&package), "{package} is no tool");
            }
            for line in go_mod.lines().filter(|line| line.contains("=>")) {
                assert!(line.contains("=> k8s.io/"), "{line}");
            }
            assert_ne!(source.version.to_string(), "0.0.0");
        }
    }

    #[test]
    fn kubernetes_programs_get_their_version_and_etcd_has_its_own() {
        let flags = |folder| {
            let module = MODULES
                .iter()
                .find(|module| module.folder == folder)
                .unwrap();
            let source = Source::read(module).unwrap();
            (source.version.to_string(), source.linked())
        };
        let (version, flags_of_kubernetes) = flags("kubernetes");
        let flag = format!("version.gitVersion=v{version} -X");
        assert!(flags_of_kubernetes.contains(&flag), "{flags_of_kubernetes}");
        assert_eq!(flags("etcd").1, "-s -w");
    }

    #[test]
    fn an_old_go_is_refused_with_what_to_install() {
        for bad in ["go1.25.9", "go1.19", "", "none"] {
            let error = Go::read(bad).map(|go| go.version).unwrap_err().to_string();
            assert!(
                error.contains("https://go.dev/dl") && error.contains("1.26"),
                "{error}"
            );
        }
        assert_eq!(Go::read("go1.27.1").map(|go| go.number).unwrap(), (1, 27));
    }
}
