//! The chart's requirements for an image: read from the rendered output of helm, which is checked in and verified by
//! the scenario `install`. Only reads files.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::oci::{Kind, Places, look};
use crate::nested;

/// The rendered charts, with minimal and with maximal values.
const RENDERED: &[&str] = &["e2e/api/chart/minimal.yaml", "e2e/api/chart/full.yaml"];

/// A container of the chart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Container {
    /// Its place in the chart, for messages.
    pub(super) name: String,
    /// The program and its arguments.
    pub(super) command: Vec<String>,
    /// Mount points.
    pub(super) mounts: Vec<String>,
    /// The user it runs as, if set.
    pub(super) user: Option<String>,
    /// Its capabilities; those of root do nothing for other users.
    pub(super) capabilities: Vec<String>,
    /// Whether it is privileged.
    pub(super) privileged: bool,
}

impl Container {
    /// The program, which is also the name of its image.
    pub(super) fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    /// What the container lacks in an image with these contents, this PATH and this user.
    pub(super) fn missing(&self, places: &Places, path: &str, user: &str) -> Vec<String> {
        let mut missing = Vec::new();
        let program = self.program();
        let mut folders = path.split(':').map(|folder| format!("{folder}/{program}"));
        let runs = |place: String| matches!(look(places, &place), Some((_, Kind::File(true))));
        if !folders.any(runs) {
            missing.push(format!("there is no program {program} in {path}"));
        }
        for mount in &self.mounts {
            let above = mount.rsplit_once('/').map_or("", |(above, _)| above);
            if !matches!(look(places, above), Some((_, Kind::Folder))) {
                missing.push(format!("there is no folder {above}, for {mount}"));
            }
        }
        for named in self.command.iter().filter_map(|word| path_in(word)) {
            let mounted =
                |mount: &String| named == mount || named.starts_with(&format!("{mount}/"));
            if !self.mounts.iter().any(mounted) && look(places, named).is_none() {
                missing.push(format!("{named} is neither there nor mounted"));
            }
        }
        match &self.user {
            Some(wanted) if wanted != user => {
                missing.push(format!("it must run as {wanted}, but the image has {user}"));
            }
            None if user != "0:0" && (self.privileged || !self.capabilities.is_empty()) => {
                missing.push(format!("its capabilities are of no use to {user}"));
            }
            _ => {}
        }
        missing
    }
}

/// The path in an argument: `--state-dir=/var/lib/portolan`.
fn path_in(word: &str) -> Option<&str> {
    let value = word.split_once('=').map_or(word, |(_, value)| value);
    value.starts_with('/').then_some(value)
}

/// All containers of the chart.
///
/// # Errors
/// The rendered chart is unreadable or contains no containers.
pub(super) fn containers() -> Result<Vec<Container>> {
    let mut all = Vec::new();
    for file in RENDERED {
        let text = std::fs::read_to_string(nested::root().join(file)).context(*file)?;
        let found = containers_in(&text).context(*file)?;
        if found.is_empty() {
            bail!("{file} has no containers");
        }
        let (_, short) = file.rsplit_once('/').unwrap_or(("", file));
        all.extend(found.into_iter().map(|found| Container {
            name: format!("{} of {short}", found.name),
            ..found
        }));
    }
    Ok(all)
}

fn containers_in(text: &str) -> Result<Vec<Container>> {
    let mut found = Vec::new();
    for object in text.split("\n---") {
        // Other kinds are skipped; some of them contain what only helm's parsers accept as YAML.
        if !object
            .lines()
            .any(|line| matches!(line, "kind: Deployment" | "kind: ConfigMap"))
        {
            continue;
        }
        let object: Value = serde_saphyr::from_str(object)?;
        let set = match object["data"]["daemonset.yaml"].as_str() {
            Some(inner) => serde_saphyr::from_str(inner)?,
            None => object,
        };
        let pod = &set["spec"]["template"]["spec"];
        for list in ["initContainers", "containers"] {
            let list = pod[list].as_array().map_or(&[][..], Vec::as_slice);
            found.extend(list.iter().map(|container| read(pod, container)));
        }
    }
    Ok(found)
}

fn read(pod: &Value, container: &Value) -> Container {
    let (all, own) = (&pod["securityContext"], &container["securityContext"]);
    let number = |key: &str| own[key].as_u64().or_else(|| all[key].as_u64());
    let user = number("runAsUser").map(|user| {
        let group = number("runAsGroup").unwrap_or(0);
        format!("{user}:{group}")
    });
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    let mounts = mounts.filter_map(|mount| mount["mountPath"].as_str());
    Container {
        name: container["name"].as_str().unwrap_or_default().to_owned(),
        command: [texts(&container["command"]), texts(&container["args"])].concat(),
        mounts: mounts.map(str::to_owned).collect(),
        user,
        capabilities: texts(&own["capabilities"]["add"]),
        privileged: own["privileged"] == true,
    }
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::contents::{Contents, Entry, place_of};
    use crate::images::recipe::{IMAGES, PATH, Recipe};

    /// The contents of an image before files of this machine are added.
    fn places(recipe: &Recipe) -> Places {
        let mut contents = Contents::fixed(recipe);
        let program = Entry::File("/nonexistent".into());
        contents.entries.insert(place_of(recipe), program);
        let mut places = Places::new();
        for (place, entry) in contents.entries {
            for (at, _) in place.match_indices('/').skip(1) {
                places.entry(place[..at].to_owned()).or_insert(Kind::Folder);
            }
            let kind = match entry {
                Entry::Folder => Kind::Folder,
                Entry::Link(target) => Kind::Link(target),
                Entry::Text(_) => Kind::File(false),
                Entry::File(_) => Kind::File(true),
            };
            places.insert(place, kind);
        }
        places
    }

    fn image_of(container: &Container) -> &'static Recipe {
        let mut all = IMAGES.iter();
        let found = all.find(|recipe| recipe.name == container.program());
        found.unwrap_or_else(|| panic!("{container:?} has no image"))
    }

    #[test]
    fn every_container_of_the_chart_has_an_image_that_fits_it() {
        let containers = containers().unwrap();
        assert_eq!(containers.len(), 8, "{containers:?}");
        for container in containers {
            let recipe = image_of(&container);
            let missing = container.missing(&places(recipe), PATH, recipe.user);
            assert!(missing.is_empty(), "{}: {missing:?}", container.name);
        }
    }

    #[test]
    fn what_is_mounted_by_default_has_a_place_of_its_own() {
        for container in containers().unwrap() {
            let places = places(image_of(&container));
            for mount in container.mounts {
                // A file that the test's values select.
                let chosen = ["/run/xtables.lock", "/srv/portolan", "/etc/portolan/extra"];
                let chosen = chosen.contains(&&*mount);
                assert_eq!(look(&places, &mount).is_none(), chosen, "{mount}");
            }
        }
    }

    #[test]
    fn each_thing_that_an_image_lacks_is_named() {
        let container = Container {
            command: ["a", "--key=/etc/x/key", "--log=info"]
                .map(str::to_owned)
                .into(),
            mounts: vec!["/etc/y".to_owned()],
            user: Some("1:1".to_owned()),
            ..Container::default()
        };
        let mut places = Places::from([
            ("/usr".to_owned(), Kind::Folder),
            ("/usr/bin".to_owned(), Kind::Folder),
            ("/usr/bin/a".to_owned(), Kind::File(false)),
        ]);
        let missing = container.missing(&places, "/usr/bin", "0:0");
        assert_eq!(
            missing,
            [
                "there is no program a in /usr/bin",
                "there is no folder /etc, for /etc/y",
                "/etc/x/key is neither there nor mounted",
                "it must run as 1:1, but the image has 0:0",
            ]
        );
        places.insert("/usr/bin/a".to_owned(), Kind::File(true));
        places.insert("/etc".to_owned(), Kind::Folder);
        let container = Container {
            mounts: vec!["/etc/x".to_owned()],
            ..container
        };
        assert!(container.missing(&places, "/usr/bin", "1:1").is_empty());
        let root = Container {
            user: None,
            capabilities: vec!["NET_ADMIN".to_owned()],
            ..container
        };
        assert_eq!(root.missing(&places, "/usr/bin", "1:1").len(), 1);
        assert!(root.missing(&places, "/usr/bin", "0:0").is_empty());
    }
}
