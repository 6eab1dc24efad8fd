//! Texts from tools, files and URLs.

use portolan_agent::receive::{Address, Addresses, Controllers, Trust};
use portolan_controller::convergence::Question;
use portolan_reconcile::rules::ObservedRules;
use tempfile::TempDir;

/// The output of `iptables-save`.
pub(crate) fn iptables_save(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    assert_eq!(ObservedRules::parse(&text), ObservedRules::parse(&text));
}

/// The query of the page `/convergence`. A question is written so that it is read again.
pub(crate) fn convergence_query(bytes: &[u8]) {
    match Question::read(&String::from_utf8_lossy(bytes)) {
        Ok(question) => assert_eq!(Question::read(&question.query()), Ok(question)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The file with the addresses of controllers. Every address is written so that it is read again.
pub(crate) fn controllers_file(bytes: &[u8]) {
    let Ok(folder) = TempDir::new() else {
        return;
    };
    let path = folder.path().join("controllers");
    if std::fs::write(&path, bytes).is_err() {
        return;
    }
    let controllers = Controllers::new(Addresses::File(path), Trust::Insecure);
    for stream in 0..4 {
        match controllers.choose("node-a", stream) {
            Ok(access) => {
                let again = access.address.to_string().parse::<Address>();
                assert_eq!(again.as_ref(), Ok(&access.address));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}
