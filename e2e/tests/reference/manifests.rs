//! Manifests in documents are read without a problem by the controller's own code.

use portolan_controller::manifests::FileContents;

use crate::{examples, root};

/// Objects of our kind or of kinds that plans use, in a block of YAML.
fn is_manifest(block: &str) -> bool {
    let has = |start: &str| block.lines().any(|line| line.starts_with(start));
    has("apiVersion: ") && has("kind: ") && !block.contains('…')
}

/// The blocks of YAML in a document, with their first lines.
fn blocks(text: &str) -> Vec<(usize, String)> {
    let (mut found, mut block) = (Vec::new(), None::<(usize, String)>);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim_end();
        match &mut block {
            None if line.trim_start() == "```yaml" => block = Some((number + 2, String::new())),
            None => {}
            Some(_) if line.trim_start() == "```" => found.extend(block.take()),
            Some((_, text)) => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    found
}

/// What is wrong with a manifest.
fn problems(name: &str, text: &str) -> Vec<String> {
    let contents = FileContents::read(name, text);
    let problems = contents.problems.iter();
    let mut problems: Vec<_> = problems.map(|problem| format!("{problem:?}")).collect();
    if contents.objects.is_empty() && contents.others.is_empty() {
        problems.push(format!("{name}: no object"));
    }
    problems
}

#[test]
fn manifests_in_documents_are_valid() {
    let (mut checked, mut wrong) = (0, Vec::new());
    for (path, text) in examples::documents() {
        for (line, block) in blocks(&text).iter().filter(|(_, block)| is_manifest(block)) {
            checked += 1;
            wrong.extend(problems(&format!("{}:{line}", path.display()), block));
        }
    }
    for entry in std::fs::read_dir(root().join("docs/examples")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        // Values are rendered with the chart in the scenario `install`.
        if name.ends_with(".yaml") && !name.starts_with("values-") {
            checked += 1;
            wrong.extend(problems(&name, &std::fs::read_to_string(&path).unwrap()));
        }
    }
    assert!(checked > 8, "only {checked} manifests were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_field_in_a_document_is_found() {
    let page = "```yaml\napiVersion: proxy.portolan.dev/v1alpha1\nkind: ProxyConfig\nmetadata: {name: default}\n\
        spec: {settings: {drift: Mend}}\n```\n";
    let found = blocks(page);
    assert_eq!(found.len(), 1);
    assert!(found.iter().all(|(_, block)| is_manifest(block)));
    let wrong = problems("page", &found.first().unwrap().1);
    assert!(
        wrong.iter().any(|problem| problem.contains("drift")),
        "{wrong:?}"
    );
}
