//! ProxyConfig.

use portolan_crds::ProxyConfig as Given;
use portolan_planner::model::ProxyConfig;

use super::field::{FieldError, own_name};
use super::settings::settings;

/// A ProxyConfig.
///
/// # Errors
/// [`FieldError`] names the field that makes no sense, and what is allowed.
pub fn proxy_config(object: &Given) -> Result<ProxyConfig, FieldError> {
    let name = own_name(&object.metadata)?;
    if &*name != ProxyConfig::DEFAULT {
        let problem =
            format!("{name:?} is in force nowhere; the one ProxyConfig is named \"default\"");
        return Err(FieldError::new("metadata.name", problem));
    }
    let given = object.spec.settings.clone().unwrap_or_default();
    Ok(ProxyConfig {
        name,
        settings: settings(given)?,
    })
}
