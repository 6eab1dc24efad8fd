//! What is kept of the watermark, whenever the program ends and whatever the disk does.

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

fn of(kinds: &[(u8, u64)]) -> wire::Watermark {
    let kinds = kinds.iter().map(|(kind, newest)| wire::KindWatermark {
        kind: format!("Kind{kind}"),
        newest: *newest,
        sum: newest.wrapping_mul(7),
    });
    wire::Watermark {
        kinds: kinds.collect(),
    }
}

/// Newest versions by kind.
fn newest(watermark: &wire::Watermark) -> Vec<(String, u64)> {
    let kinds = watermark.kinds.iter();
    kinds.map(|of| (of.kind.clone(), of.newest)).collect()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// S-230, I-12: whatever batches came and wherever the program ended, the next one has the last watermark of each
    /// kind, also a lower one, as after a restore of the cluster.
    #[test]
    fn what_was_noted_outlives_the_program(
        batches in prop::collection::vec(
            (prop::collection::vec((0..6_u8, any::<u64>()), 0..4), any::<bool>()),
            0..12,
        ),
    ) {
        let folder = TempDir::new().unwrap();
        let runtime = runtime();
        let mut expected = std::collections::BTreeMap::new();
        let mut remembered = Remembered::open(folder.path(), "node-a");
        for (batch, ends) in batches {
            runtime.block_on(remembered.note(of(&batch)));
            expected.extend(batch.iter().map(|(kind, newest)| (format!("Kind{kind}"), *newest)));
            if ends {
                remembered = Remembered::open(folder.path(), "node-a");
            }
            let mut kept = newest(remembered.watermark());
            kept.sort();
            prop_assert_eq!(&kept, &expected.clone().into_iter().collect::<Vec<_>>());
        }
        let other = Remembered::open(folder.path(), "node-b");
        prop_assert!(other.watermark().kinds.is_empty());
    }

    /// A damaged or truncated file is never read as another watermark.
    #[test]
    fn a_damaged_file_is_ignored(at in any::<prop::sample::Index>(), bit in 0..8_u32, cut in any::<bool>()) {
        let mut bytes = encode("node-a", &of(&[(1, 300), (2, 400)]));
        prop_assert!(decode(&bytes).is_some());
        let used = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let at = at.index(used);
        if cut {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << bit;
        }
        prop_assert!(decode(&bytes).is_none());
    }

    /// Nor is any other content.
    #[test]
    fn any_content_is_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let folder = TempDir::new().unwrap();
        std::fs::write(folder.path().join(FILE), &bytes).unwrap();
        let remembered = Remembered::open(folder.path(), "node-a");
        prop_assert!(remembered.watermark().kinds.is_empty());
    }
}

#[test]
fn a_controller_cannot_make_it_larger_than_its_file() {
    let mut watermark = wire::Watermark::default();
    let width = MAX_KIND_BYTES;
    let of_kind = |kind: String| wire::KindWatermark {
        kind,
        newest: u64::MAX,
        sum: u64::MAX,
    };
    let mut kinds = vec![of_kind("k".repeat(MAX_KIND_BYTES + 1))];
    kinds.extend((0..1000).map(|number| of_kind(format!("{number:0>width$}"))));
    merge(&mut watermark, wire::Watermark { kinds });
    assert_eq!(watermark.kinds.len(), MAX_KINDS);
    let bytes = encode(&"n".repeat(253), &watermark);
    assert_eq!(bytes.len(), FILE_BYTES);
    assert_eq!(decode(&bytes).unwrap().watermark, Some(watermark));
}

/// Without space on the disk, changes still reach the kernel, and the watermark is kept in memory.
#[tokio::test]
async fn a_full_disk_delays_nothing_and_writing_goes_on_later() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join(FILE);
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let mut remembered = Remembered::open(folder.path(), "node-a");
    remembered.note(of(&[(1, 300)])).await;
    assert_eq!(remembered.watermark(), &of(&[(1, 300)]));
    let file = remembered.file.as_mut().unwrap();
    assert!(file.failing);
    std::fs::remove_file(&path).unwrap();
    file.file = Arc::new(File::create(&path).unwrap());
    remembered.note(of(&[(2, 400)])).await;
    assert!(!remembered.file.as_ref().unwrap().failing);
    let again = Remembered::open(folder.path(), "node-a");
    assert_eq!(again.watermark(), &of(&[(1, 300), (2, 400)]));
}

/// A second write could overtake the first one, and each would delay a change by a second.
#[tokio::test]
async fn while_a_write_hangs_no_other_one_begins() {
    let folder = TempDir::new().unwrap();
    let mut remembered = Remembered::open(folder.path(), "node-a");
    let (end, ended) = std::sync::mpsc::sync_channel::<()>(0);
    let hanging = spawn_blocking(move || {
        ended.recv().unwrap_err();
        Ok(())
    });
    remembered.file.as_mut().unwrap().hanging = Some(hanging);
    remembered.note(of(&[(1, 300)])).await;
    assert_eq!(remembered.watermark(), &of(&[(1, 300)]));
    let on_disk = || Remembered::open(folder.path(), "node-a");
    assert!(on_disk().watermark().kinds.is_empty());
    drop(end);
    let file = remembered.file.as_ref().unwrap();
    while !file.hanging.as_ref().unwrap().is_finished() {
        tokio::task::yield_now().await;
    }
    remembered.note(of(&[(2, 400)])).await;
    assert_eq!(on_disk().watermark(), &of(&[(1, 300), (2, 400)]));
}
