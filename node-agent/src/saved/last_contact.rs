//! The time when a controller last confirmed the saved plan, as one line of a small file beside it.
//!
//! In a quiet cluster the plan does not change for days, and rewriting a large file only to confirm it would wear out
//! disks. The line contains the hash of the plan and a checksum. If it is invalid, the age of the plan counts from
//! when it was written.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portolan_plan::PlanHash;
use xxhash_rust::xxh3::xxh3_64;

const HEADER: &str = "portolan confirmed 1";

/// Formats the line.
pub(super) fn line(plan: PlanHash, now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let text = format!("{HEADER} {plan} {seconds}");
    format!("{text} {:016x}\n", xxh3_64(text.as_bytes()))
}

/// Parses the time in a line, if it is intact and for this plan.
pub(super) fn parse(line: &str, plan: PlanHash) -> Option<SystemTime> {
    let (text, _) = line.rsplit_once(' ')?;
    let (_, seconds) = text.rsplit_once(' ')?;
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(seconds.parse().ok()?))?;
    (self::line(plan, time) == line).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_line_or_one_of_another_plan_is_ignored() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let plan = PlanHash::default();
        let written = line(plan, now);
        assert_eq!(parse(&written, plan), Some(now));
        let other = PlanHash::from_bytes(&[7; 16]).unwrap();
        assert_eq!(parse(&written, other), None);
        for at in 0..written.len() {
            assert_eq!(parse(&written[..at], plan), None, "cut at {at}");
            let mut damaged = written.clone().into_bytes();
            damaged[at] ^= 1;
            let damaged = String::from_utf8(damaged).unwrap();
            assert_eq!(parse(&damaged, plan), None, "damaged at {at}");
        }
    }
}
