//! When a controller last stood behind the plan on disk, as one line of a small file beside it.
//!
//! A quiet cluster changes no plan for days, and writing a large one again only to say that it is
//! still good would wear out disks. The line names the plan that it is about and carries a checksum:
//! whatever is wrong with it, the plan counts as old as it was written.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portolan_plan::PlanHash;
use xxhash_rust::xxh3::xxh3_64;

const HEADER: &str = "portolan heard 1";

/// The line.
pub(super) fn line(plan: PlanHash, now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let text = format!("{HEADER} {plan} {seconds}");
    format!("{text} {:016x}\n", xxh3_64(text.as_bytes()))
}

/// The time in a line, if it is whole and about this plan.
pub(super) fn read(line: &str, plan: PlanHash) -> Option<SystemTime> {
    let (text, _) = line.rsplit_once(' ')?;
    let (_, seconds) = text.rsplit_once(' ')?;
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(seconds.parse().ok()?))?;
    (self::line(plan, time) == line).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whole_and_of_its_plan_or_not_at_all() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let plan = PlanHash::default();
        let written = line(plan, now);
        assert_eq!(read(&written, plan), Some(now));
        let other = PlanHash::from_bytes(&[7; 16]).unwrap();
        assert_eq!(read(&written, other), None);
        for at in 0..written.len() {
            assert_eq!(read(&written[..at], plan), None, "cut at {at}");
            let mut damaged = written.clone().into_bytes();
            damaged[at] ^= 1;
            let damaged = String::from_utf8(damaged).unwrap();
            assert_eq!(read(&damaged, plan), None, "damaged at {at}");
        }
    }
}
