//! Kubeconfig files: one user at one address, complete in itself, so that it can be copied.

use anyhow::Result;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::authority::{Authority, Identity};

/// A file for `identity` at `https://ADDRESS:PORT`. It is JSON, which is YAML too.
pub(super) fn text(
    user: &str,
    identity: &Identity,
    authority: &Authority,
    address: &str,
    port: u16,
) -> Result<String> {
    let file = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{
            "name": "lab",
            "cluster": {
                "server": format!("https://{address}:{port}"),
                "certificate-authority-data": encoded(&authority.certificate())?,
            },
        }],
        "users": [{
            "name": user,
            "user": {
                "client-certificate-data": encoded(&identity.certificate)?,
                "client-key-data": encoded(&identity.key)?,
            },
        }],
        "contexts": [{
            "name": "lab",
            "context": {"cluster": "lab", "user": user, "namespace": "default"},
        }],
    });
    Ok(serde_json::to_string_pretty(&file)? + "\n")
}

/// In base64, as the API encodes bytes.
fn encoded(text: &str) -> Result<Value> {
    Ok(serde_json::to_value(ByteString(text.as_bytes().to_vec()))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::config::Kubeconfig;

    #[test]
    fn a_client_library_reads_the_file_and_finds_server_and_user() {
        let authority = Authority::new().unwrap();
        let identity = authority.client("admin", Some("system:masters")).unwrap();
        let text = text("admin", &identity, &authority, "10.0.2.2", 6443).unwrap();
        let read = Kubeconfig::from_yaml(&text).unwrap();
        let cluster = read.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://10.0.2.2:6443"));
        assert_eq!(read.current_context.as_deref(), Some("lab"));
        let data = cluster.certificate_authority_data.as_ref().unwrap();
        let wanted = encoded(&authority.certificate()).unwrap();
        assert_eq!(Some(data.as_str()), wanted.as_str());
    }
}
