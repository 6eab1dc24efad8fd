//! Annotations of a Service for Portolan. An unreadable annotation is ignored, so that a typing mistake does not
//! remove the Service.

use std::sync::Arc;

use portolan_plan::Period;
use portolan_planner::Reason;

use super::field::{self, FieldError};

const PREFIX: &str = "proxy.portolan.dev/";

/// The annotations of a Service.
#[derive(Debug, Default)]
pub(super) struct Annotations {
    pub(super) boot_critical: bool,
    pub(super) scheduler: Option<Arc<str>>,
    pub(super) drain_seconds: Option<u32>,
    pub(super) ignored: Vec<Reason>,
}

impl Annotations {
    pub(super) fn read<'a>(all: impl Iterator<Item = (&'a String, &'a String)>) -> Self {
        let mut annotations = Self::default();
        for (key, text) in all {
            if let Some(name) = key.strip_prefix(PREFIX) {
                let field = format!("metadata.annotations[{key}]");
                if let Err(error) = annotations.set(name, text, &field) {
                    annotations.ignored.push(error.into());
                }
            }
        }
        annotations
    }

    fn set(&mut self, name: &str, text: &str, field: &str) -> Result<(), FieldError> {
        match name {
            "boot-critical" => self.boot_critical = boolean(text, field)?,
            "scheduler" => self.scheduler = Some(field::scheduler(text, field)?),
            "drain" => self.drain_seconds = Some(seconds(text, field)?),
            _ => {
                let known = "not known to this version; known are boot-critical, scheduler, drain";
                return Err(FieldError::new(field, known));
            }
        }
        Ok(())
    }
}

fn boolean(text: &str, field: &str) -> Result<bool, FieldError> {
    let wrong = || FieldError::new(field, format!("{text:?} is neither \"true\" nor \"false\""));
    text.parse().map_err(|_| wrong())
}

fn seconds(text: &str, field: &str) -> Result<u32, FieldError> {
    let period: Period = text
        .parse()
        .map_err(|e| FieldError::new(field, format!("{e}")))?;
    let seconds = period.as_milliseconds().div_ceil(1000);
    let too_long = |_| FieldError::new(field, format!("{text:?} is too long"));
    seconds.try_into().map_err(too_long)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn read(key: &str, text: &str) -> Annotations {
        let all = BTreeMap::from([(format!("{PREFIX}{key}"), text.to_owned())]);
        Annotations::read(all.iter())
    }

    #[test]
    fn annotations_set_scheduler_drain_and_boot_critical() {
        assert!(read("boot-critical", "true").boot_critical);
        assert_eq!(read("scheduler", "mh").scheduler.as_deref(), Some("mh"));
        assert_eq!(read("drain", "1m30s").drain_seconds, Some(90));
        assert_eq!(read("drain", "500ms").drain_seconds, Some(1));
    }

    #[test]
    fn an_annotation_that_cannot_be_read_is_noted_and_has_no_effect() {
        for (key, text) in [
            ("boot-critical", "yes"),
            ("scheduler", "r r"),
            ("scheduler", "fair"),
            ("scheduler", "RR"),
            ("drain", "soon"),
            ("drain", "9999999h"),
            ("drian", "5s"),
        ] {
            let annotations = read(key, text);
            assert_eq!(annotations.ignored.len(), 1, "{key}: {text}");
            assert!(!annotations.boot_critical);
            assert_eq!(
                (annotations.scheduler, annotations.drain_seconds),
                (None, None)
            );
        }
    }
}
