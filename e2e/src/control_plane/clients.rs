//! Clients of the control plane: identities, kubeconfig files, kubectl.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{Context, Result};
use rcgen::KeyPair;
use serde_json::Value;

use super::authority::Identity;
use super::{ADMIN_FILE, ControlPlane, FROM_A_GUEST, TOKENS_FILE, kubeconfig};
use crate::program::Program;

/// From where a client reaches the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// From this machine: 127.0.0.1.
    Here,
    /// From an emulated guest on this machine: 10.0.2.2.
    Guest,
}

impl Reach {
    fn address(self) -> &'static str {
        match self {
            Self::Here => "127.0.0.1",
            Self::Guest => FROM_A_GUEST,
        }
    }

    fn file(self, user: &str) -> String {
        match self {
            Self::Here => format!("{user}.kubeconfig"),
            Self::Guest => format!("{user}.guest.kubeconfig"),
        }
    }
}

/// May do everything.
const ADMIN: &str = "admin";
/// The group of cluster administrators.
const MASTERS: &str = "system:masters";

impl ControlPlane {
    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self, reach: Reach) -> PathBuf {
        self.folder.path.join(reach.file(ADMIN))
    }

    /// Creates a user with the RBAC permissions of that name or group, and returns the path of its
    /// kubeconfig. A second call creates new keys for the same user.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn user(&self, user: &str, group: Option<&str>, reach: Reach) -> Result<PathBuf> {
        let identity = self.authority.client(user, group)?;
        self.write_kubeconfig(user, &identity, reach)
    }

    /// Runs kubectl as administrator and gives back what it printed.
    ///
    /// # Errors
    /// When it ends with anything but 0; the message contains its output.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.kubectl_with_input(arguments, "")
    }

    /// Like [`Self::kubectl`], with arguments that are separated by single spaces.
    ///
    /// # Errors
    /// As [`Self::kubectl`].
    pub fn kubectl_line(&self, line: &str) -> Result<String> {
        self.kubectl(&line.split(' ').collect::<Vec<_>>())
    }

    /// Like [`Self::kubectl`], with text on its standard input.
    ///
    /// # Errors
    /// As [`Self::kubectl`].
    pub fn kubectl_with_input(&self, arguments: &[&str], input: &str) -> Result<String> {
        let config = self.kubeconfig(Reach::Here).display().to_string();
        let cache = self.folder.path.join("kubectl").display().to_string();
        // Not the home directory of the caller: the cache of one server is wrong for the next.
        let own = ["--kubeconfig", &config, "--cache-dir", &cache];
        let words = [&own, arguments].concat();
        // Older releases take a manifest that begins with a brace for JSON.
        match input.starts_with('{') {
            true => Program::Kubectl.run_with_input(&words, &format!("---\n{input}")),
            false => Program::Kubectl.run_with_input(&words, input),
        }
    }

    /// Creates or changes the objects of manifests.
    ///
    /// # Errors
    /// The error of kubectl.
    pub fn apply(&self, manifests: &str) -> Result<()> {
        self.kubectl_with_input(&["apply", "-f", "-"], manifests)
            .map(drop)
    }

    /// The minor version of the API server: 37 of 1.37.2.
    ///
    /// # Errors
    /// The error of kubectl, or if its answer has no number.
    pub fn minor(&self) -> Result<u32> {
        let versions: Value = serde_json::from_str(&self.kubectl(&["version", "-o", "json"])?)?;
        let minor = versions["serverVersion"]["minor"].as_str();
        let minor = minor.context("kubectl prints no minor version of the server")?;
        let digits = minor.trim_end_matches(|c: char| !c.is_ascii_digit());
        let number = digits.parse();
        number.with_context(|| format!("the minor version is {minor:?}"))
    }

    /// Writes what the programs need before the first of them starts.
    pub(super) fn write_identities(&self) -> Result<()> {
        self.write("ca.crt", &self.authority.certificate())?;
        let mut names = Vec::new();
        if let Some(nodes) = &self.options.nodes {
            names.push(nodes.address.to_string());
            names.extend(nodes.names.iter().cloned());
            self.write(TOKENS_FILE, &nodes.tokens)?;
            let client = self.authority.client("kubelet-client", Some(MASTERS))?;
            self.write_identity("kubelet-client", &client)?;
        }
        self.write_identity("server", &self.authority.server(names)?)?;
        self.write_identity("aggregator", &self.authority.client("aggregator", None)?)?;
        let accounts = KeyPair::generate()?;
        self.write("accounts.key", &accounts.serialize_pem())?;
        self.write("accounts.pub", &accounts.public_key_pem())
    }

    /// Writes the administrator's files; the API server's port is known from here on.
    pub(super) fn write_admin(&self) -> Result<()> {
        let identity = self.authority.client(ADMIN, Some(MASTERS))?;
        for reach in [Reach::Here, Reach::Guest] {
            self.write_kubeconfig(ADMIN, &identity, reach)?;
        }
        debug_assert_eq!(Reach::Here.file(ADMIN), ADMIN_FILE);
        Ok(())
    }

    fn write_kubeconfig(&self, user: &str, identity: &Identity, reach: Reach) -> Result<PathBuf> {
        let port = self.ports.api_server;
        let text = kubeconfig::text(user, identity, &self.authority, reach.address(), port)?;
        let name = reach.file(user);
        self.write(&name, &text)?;
        Ok(self.folder.path.join(name))
    }

    fn write_identity(&self, name: &str, identity: &Identity) -> Result<()> {
        self.write(&format!("{name}.crt"), &identity.certificate)?;
        self.write(&format!("{name}.key"), &identity.key)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.path.join(name);
        let writing = || format!("write {}", path.display());
        std::fs::write(&path, text).with_context(writing)?;
        // kubectl warns about a file with keys that others could read.
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).with_context(writing)
    }
}
