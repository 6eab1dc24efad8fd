//! Work that only the leader does.

use tokio::sync::watch;

/// Whether this controller leads; `None` if it is the only one.
pub type Leading = Option<watch::Receiver<bool>>;

/// Waits until this controller leads. Returns false when the election has ended.
pub async fn begins(leading: &mut Leading) -> bool {
    match leading {
        Some(leading) => leading.wait_for(|leads| *leads).await.is_ok(),
        None => true,
    }
}

/// Waits until this controller does not lead any more. Returns false when the election has ended.
pub async fn ends(leading: &mut Leading) -> bool {
    match leading {
        Some(leading) => leading.wait_for(|leads| !leads).await.is_ok(),
        None => std::future::pending().await,
    }
}

/// Does work while this controller leads: drops it when another one leads, and begins it again afterwards.
macro_rules! while_leading {
    ($leading:expr, $work:expr) => {{
        let mut leading: $crate::operator::leading::Leading = $leading;
        while $crate::operator::leading::begins(&mut leading).await {
            tokio::select! {
                () = $work => break,
                goes_on = $crate::operator::leading::ends(&mut leading) => if !goes_on { break },
            }
        }
    }};
}
pub(crate) use while_leading;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    async fn work(begun: &AtomicU32) {
        begun.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<()>().await;
    }

    #[tokio::test]
    async fn work_stops_when_another_controller_leads_and_begins_again() {
        let (election, leading) = watch::channel(false);
        let begun = AtomicU32::new(0);
        let works = async {
            while_leading!(Some(leading), work(&begun));
        };
        let elections = async {
            for (leads, expected) in [(false, 0), (true, 1), (false, 1), (true, 2)] {
                election.send_replace(leads);
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                assert_eq!(begun.load(Ordering::Relaxed), expected, "leads: {leads}");
            }
            drop(election);
        };
        tokio::join!(works, elections);
    }
}
