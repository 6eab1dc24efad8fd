//! kubectl, with every command on the screen as a person would type it, and its real output.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::console::{Colour, Console};
use crate::program::Program;

/// Runs kubectl as the user of one kubeconfig.
#[derive(Debug)]
pub(super) struct Kubectl {
    kubeconfig: String,
    cache: PathBuf,
    console: Console,
}

impl Kubectl {
    pub(super) fn new(kubeconfig: &Path, cache: PathBuf, console: Console) -> Self {
        Self {
            kubeconfig: kubeconfig.display().to_string(),
            cache,
            console,
        }
    }

    /// Shows the command, runs it, and shows all that it printed.
    pub(super) fn show(&self, line: &str) -> Result<()> {
        let typed = format!("$ kubectl {line}");
        self.console.line(&self.console.paint(Colour::Bold, &typed));
        let words: Vec<&str> = line.split_whitespace().collect();
        let ended = Program::Kubectl.try_with_input(&self.words(&words), "")?;
        for text in [&ended.output, &ended.errors] {
            text.lines().for_each(|line| self.console.line(line));
        }
        self.console.line("");
        if !ended.status.success() {
            bail!("kubectl {line} ended with {}", ended.status);
        }
        Ok(())
    }

    /// Runs it behind the scenes.
    pub(super) fn quietly(&self, words: &[&str], input: &str) -> Result<String> {
        Program::Kubectl.run_with_input(&self.words(words), input)
    }

    fn words<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        // Not the home directory of the caller: the cache of one server is wrong for the next.
        let cache = self.cache.to_str().unwrap_or_default();
        let own = ["--kubeconfig", &self.kubeconfig, "--cache-dir", cache];
        [&own, words].concat()
    }
}
