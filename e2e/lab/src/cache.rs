//! Folders of the lab's cache, outside the clone, and the factor for all deadlines.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use crate::progress::say;

/// A folder of the lab's cache, created if needed.
///
/// # Errors
/// Neither `XDG_CACHE_HOME` nor `HOME` is set, or the folder cannot be made.
pub fn folder(name: &str) -> Result<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let root = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let Some(root) = root else {
        bail!("neither XDG_CACHE_HOME nor HOME is set; set one of them for the location of caches");
    };
    let folder = root.join("portolan").join(name);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}

/// Locks a file of the cache; prints `waiting` while another process holds it. The lock lasts as long as the returned
/// file.
///
/// # Errors
/// The cache cannot be written.
pub fn lock(path: &Path, waiting: &str) -> Result<fs::File> {
    let locking = || format!("locking {}", path.display());
    let file = fs::File::create(path).with_context(locking)?;
    if file.try_lock().is_err() {
        say(waiting);
        file.lock().with_context(locking)?;
    }
    Ok(file)
}

/// A folder for one run, named after this process; it is kept so that logs can be read afterwards.
///
/// # Errors
/// The cache folder cannot be written.
pub fn run_folder(purpose: &str) -> Result<PathBuf> {
    const RUNS_KEPT: usize = 8;
    let runs = folder("runs")?;
    keep_newest(&runs, RUNS_KEPT, &|path, _| is_alive(path))?;
    let millis = SystemTime::UNIX_EPOCH
        .elapsed()
        .map_or(0, |since| since.as_millis());
    let folder = runs.join(format!("{purpose}-{}-{millis}", std::process::id()));
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    Ok(folder)
}

/// Removes all but the newest folders, except those for which `in_use`, given path and age, returns true.
///
/// # Errors
/// The folder cannot be read.
pub fn keep_newest(
    folder: &Path,
    count: usize,
    in_use: &dyn Fn(&Path, Duration) -> bool,
) -> Result<()> {
    let found = by_age(folder)?;
    let spare = found.len().saturating_sub(count);
    for (time, path) in found.into_iter().take(spare) {
        if !in_use(&path, time.elapsed().unwrap_or_default()) {
            drop(fs::remove_dir_all(path));
        }
    }
    Ok(())
}

/// The entries of a folder with their times, the oldest first.
///
/// # Errors
/// The folder cannot be read.
pub fn by_age(folder: &Path) -> Result<Vec<(SystemTime, PathBuf)>> {
    let reading = || format!("reading {}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        // Another run removed it meanwhile.
        if let Ok(time) = entry.metadata().and_then(|data| data.modified()) {
            found.push((time, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// Whether the process that a run's folder is named after still runs.
fn is_alive(run: &Path) -> bool {
    let name = run.file_name().unwrap_or_default().to_string_lossy();
    name.split('-')
        .nth(1)
        .is_some_and(|pid| Path::new("/proc").join(pid).exists())
}

/// How much slower than expected this machine is; every deadline is multiplied by it.
///
/// # Errors
/// `PORTOLAN_SLOWNESS` is no positive number.
pub fn slowness() -> Result<f64> {
    match std::env::var("PORTOLAN_SLOWNESS") {
        Err(_) => Ok(1.0),
        Ok(text) => parse_slowness(&text),
    }
}

fn parse_slowness(text: &str) -> Result<f64> {
    match text.trim().parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(factor),
        _ => bail!("PORTOLAN_SLOWNESS is `{text}`; it must be a positive number such as 1 or 2.5"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowness_must_be_a_positive_number() {
        assert_eq!(parse_slowness("2.5").unwrap(), 2.5);
        for bad in ["0", "-1", "fast", "", "inf", "NaN"] {
            let error = parse_slowness(bad).unwrap_err().to_string();
            assert!(error.contains("PORTOLAN_SLOWNESS"), "{error}");
        }
    }

    #[test]
    fn old_folders_are_swept_away_but_for_those_in_use() {
        let folder = std::env::temp_dir().join(format!("portolan-sweep-{}", std::process::id()));
        for name in ["a", "b", "c"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        keep_newest(&folder, 1, &|_, _| true).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 3);
        keep_newest(&folder, 1, &|path, _| path.ends_with("a")).unwrap();
        let left = fs::read_dir(&folder).unwrap().count();
        assert!(folder.join("a").exists() && left <= 2, "{left} are left");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_run_is_alive_as_long_as_the_process_in_its_name() {
        assert!(is_alive(Path::new(&format!(
            "/c/guest-{}-17",
            std::process::id()
        ))));
        // Process IDs end at 4,194,304.
        assert!(!is_alive(Path::new("/c/guest-9999999-17")));
        assert!(!is_alive(Path::new("/c/other")));
    }
}
