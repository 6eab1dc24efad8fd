//! All targets accept the inputs in `corpus`, damaged forms of them, and random inputs.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use portolan_fuzz_targets::{TARGETS, Target};

/// Number of random inputs of each target.
const RANDOM_INPUTS: u64 = 256;
/// Maximum size of the inputs of all targets together, in bytes.
const MAX_CORPUS_BYTES: u64 = 200_000;

/// Messages of panics in any thread. Tasks of a runtime end without a notice otherwise.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

/// The inputs of a target, by file name.
fn inputs(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = corpus().join(target.name);
    let entries =
        std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut inputs = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        inputs.push((name, std::fs::read(path).unwrap()));
    }
    inputs
}

/// Random bytes (splitmix64).
fn random(seed: u64) -> Vec<u8> {
    let number = |at: u64| {
        let mut z = seed.wrapping_mul(0x1000).wrapping_add(at);
        z = z.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    (0..seed % 40)
        .flat_map(|at| number(at).to_le_bytes())
        .collect()
}

/// The input with one changed byte, and its first half.
fn damaged(input: &[u8]) -> [Vec<u8>; 2] {
    let mut changed = input.to_vec();
    let middle = changed.len() / 2;
    if let Some(byte) = changed.get_mut(middle) {
        *byte ^= 0x41;
    }
    [changed, input[..middle].to_vec()]
}

fn run(target: &Target, name: &str, input: &[u8]) {
    (target.run)(input);
    // Not locked during the assertion, whose panic locks it again.
    let panics = PANICS.lock().unwrap().clone();
    assert!(panics.is_empty(), "{} {name}: {panics:?}", target.name);
}

/// I-3.
#[test]
fn every_target_accepts_all_inputs() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.lock().unwrap().push(panic.to_string());
        usual(panic);
    }));
    for target in TARGETS {
        let inputs = inputs(target);
        assert!(!inputs.is_empty(), "{} has no corpus", target.name);
        for (name, input) in inputs {
            run(target, &name, &input);
            for damaged in damaged(&input) {
                run(target, &format!("{name}, damaged"), &damaged);
            }
        }
        for seed in 0..RANDOM_INPUTS {
            run(target, &format!("random {seed}"), &random(seed));
        }
    }
}

#[test]
fn every_folder_of_the_corpus_belongs_to_a_target_and_all_are_small() {
    let names: BTreeSet<&str> = TARGETS.iter().map(|target| target.name).collect();
    for entry in std::fs::read_dir(corpus()).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(names.contains(name.to_str().unwrap()), "{name:?}");
    }
    let sizes = TARGETS.iter().flat_map(inputs);
    let bytes: u64 = sizes.map(|(_, input)| input.len() as u64).sum();
    assert!(bytes <= MAX_CORPUS_BYTES, "{bytes} bytes");
}
