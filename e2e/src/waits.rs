//! Waiting with a deadline. Every deadline is written for ordinary hardware and multiplied by one
//! factor, `PORTOLAN_SLOWNESS`, where the kernel is emulated.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::stop;

/// For one request or connection.
pub(crate) const ANSWER: Duration = Duration::from_secs(3);
/// For what programs do at once.
pub(crate) const SOON: Duration = Duration::from_secs(10);
/// For what takes several steps of several programs.
pub(crate) const LATER: Duration = Duration::from_secs(30);

/// Between two questions: a quarter of the time that the last one took, within these limits.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Who only waits for a condition waits this many times as long as ordinary hardware needs: other work may leave little
/// of the processors. It costs nothing unless the condition never holds.
const PATIENCE: f64 = 4.0;

/// How long waits may take here, as a multiple of what ordinary hardware needs.
#[derive(Debug, Clone, Copy)]
pub struct Waits {
    slowness: f64,
}

impl Waits {
    /// Waits with a given factor.
    ///
    /// # Errors
    /// When the factor is not a number from 0.1 to 1000.
    pub fn with_slowness(slowness: f64) -> Result<Self> {
        if !(0.1..=1000.0).contains(&slowness) {
            bail!("PORTOLAN_SLOWNESS is {slowness}; it must be a factor from 0.1 to 1000");
        }
        Ok(Self { slowness })
    }

    /// Reads `PORTOLAN_SLOWNESS`; 1 when it is not set.
    ///
    /// # Errors
    /// When it is set and not a number from 0.1 to 1000.
    pub fn from_environment() -> Result<Self> {
        let Ok(text) = std::env::var("PORTOLAN_SLOWNESS") else {
            return Self::with_slowness(1.0);
        };
        let slowness = text
            .parse()
            .with_context(|| format!("PORTOLAN_SLOWNESS is {text:?}; it must be a number"))?;
        Self::with_slowness(slowness)
    }

    /// A deadline on this machine.
    #[must_use]
    pub fn limit(&self, on_hardware: Duration) -> Duration {
        on_hardware.mul_f64(self.slowness)
    }

    /// Retries until `ask` succeeds. The deadline is no promise of the product: see [`Self::within`].
    ///
    /// # Errors
    /// When four times the deadline has passed: `what` was waited for, and the last error.
    pub fn eventually<T>(
        &self,
        what: &str,
        on_hardware: Duration,
        ask: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        self.eventually_while(what, on_hardware, || Ok(()), ask)
    }

    /// The same while another condition holds.
    ///
    /// # Errors
    /// As [`Self::eventually`]; that of the other thing at once.
    pub fn eventually_while<T>(
        &self,
        what: &str,
        on_hardware: Duration,
        holds: impl FnMut() -> Result<()>,
        ask: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        self.within(what, on_hardware.mul_f64(PATIENCE), holds, ask)
    }

    /// As [`Self::eventually_while`], with a deadline that the product promises.
    ///
    /// # Errors
    /// As [`Self::eventually_while`], when the deadline itself has passed.
    pub fn within<T>(
        &self,
        what: &str,
        on_hardware: Duration,
        mut holds: impl FnMut() -> Result<()>,
        mut ask: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let (limit, start) = (self.limit(on_hardware), Instant::now());
        loop {
            stop::check()?;
            holds()?;
            let asked = Instant::now();
            match ask() {
                Ok(answer) => return Ok(answer),
                Err(last) if start.elapsed() >= limit => {
                    let waited = limit.as_secs_f64();
                    return Err(last.context(format!("waited {waited:.1} s for {what}")));
                }
                // A question that takes the machine long must not take it whole.
                Err(_) => std::thread::sleep((asked.elapsed() / 4).clamp(PAUSE, LONGEST_PAUSE)),
            }
        }
    }

    /// Asks again and again until there is an answer; `every` is the time between questions.
    ///
    /// # Errors
    /// The question's own error at once; when the deadline has passed, `what` was waited for and
    /// `missing` (asked once, at the end) says what was seen instead.
    pub fn until<T>(
        &self,
        what: &str,
        on_hardware: Duration,
        every: Duration,
        mut ask: impl FnMut() -> Result<Option<T>>,
        missing: impl FnOnce() -> String,
    ) -> Result<T> {
        let limit = self.limit(on_hardware).mul_f64(PATIENCE);
        let start = Instant::now();
        loop {
            stop::check()?;
            if let Some(answer) = ask()? {
                return Ok(answer);
            }
            if start.elapsed() >= limit {
                bail!(
                    "waited {:.1} s for {what}: {}",
                    limit.as_secs_f64(),
                    missing()
                );
            }
            std::thread::sleep(every);
        }
    }
}

/// Sleeps until a moment, in steps short enough to notice a signal.
///
/// # Errors
/// If this process was asked to end.
pub fn sleep_until(moment: Instant) -> Result<()> {
    loop {
        stop::check()?;
        let left = moment.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_names_what_it_waited_for_and_what_it_saw() {
        let waits = Waits::with_slowness(1.0).unwrap();
        let error = waits
            .until::<()>(
                "rain",
                Duration::ZERO,
                Duration::ZERO,
                || Ok(None),
                || "sun".into(),
            )
            .unwrap_err();
        assert_eq!(error.to_string(), "waited 0.0 s for rain: sun");
    }

    #[test]
    fn the_last_error_is_reported_once_the_deadline_has_passed() {
        let waits = Waits::with_slowness(1.0).unwrap();
        let mut asked = 0;
        let mut ask = |enough| {
            asked += 1;
            anyhow::ensure!(asked == enough, "asked {asked} times");
            Ok(asked)
        };
        let answer = waits.eventually("rain", SOON, || ask(2));
        assert_eq!(answer.unwrap(), 2);
        let error = waits.eventually("rain", Duration::ZERO, || ask(2));
        let error = format!("{:#}", error.unwrap_err());
        assert_eq!(error, "waited 0.0 s for rain: asked 3 times");
        let error = waits.eventually_while("rain", SOON, || bail!("night"), || Ok(()));
        assert_eq!(error.unwrap_err().to_string(), "night");
    }

    #[test]
    fn a_factor_that_makes_no_sense_is_refused() {
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Waits::with_slowness(factor).is_err(), "{factor}");
        }
    }
}
