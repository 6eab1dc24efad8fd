//! A document as a tree of plain values, with its duplicate keys.
//!
//! Parsers keep the first or the last of two equal keys, or reject the whole file. Here the object with duplicate
//! keys is left out, a message names the key, and the other objects are read.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// One step down in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// The value of a key.
    Key(String),
    /// An item of a list, from 0.
    Item(usize),
}

/// A document.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Tree {
    pub(crate) value: Value,
    /// Paths of duplicate keys; the last value counts.
    pub(super) twice: Vec<Vec<Step>>,
}

impl Tree {
    /// The message about a duplicate key.
    pub(crate) fn twice(&self) -> Option<String> {
        self.twice.first().map(|way| twice(way))
    }
}

/// The message about a duplicate key.
pub(super) fn twice(way: &[Step]) -> String {
    format!("{}: duplicate key; remove one", written(way))
}

/// Reads a document.
///
/// # Errors
/// The parser's.
pub(super) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Tree, D::Error> {
    let (mut way, mut twice) = (Vec::new(), Vec::new());
    let reader = Reader {
        way: &mut way,
        twice: &mut twice,
    };
    let value = reader.deserialize(from)?;
    Ok(Tree { value, twice })
}

/// A path in the usual notation: `spec.ports[0].port`.
fn written(way: &[Step]) -> String {
    way.iter().fold(String::new(), |text, step| match step {
        Step::Item(index) => format!("{text}[{index}]"),
        Step::Key(key) if text.is_empty() => key.clone(),
        Step::Key(key) => format!("{text}.{key}"),
    })
}

struct Reader<'a> {
    way: &'a mut Vec<Step>,
    twice: &'a mut Vec<Vec<Step>>,
}

impl Reader<'_> {
    /// A reader for a nested value.
    fn below(&mut self) -> Reader<'_> {
        Reader {
            way: self.way,
            twice: self.twice,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of YAML or JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    // No planned number is that large: kubectl prints texts of many digits without quotes.
    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(value.to_string().into())
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(value.to_string().into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        self.deserialize(from)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        self.deserialize(from)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            self.way.push(Step::Item(items.len()));
            let item = list.next_element_seed(self.below())?;
            self.way.pop();
            match item {
                Some(item) => items.push(item),
                None => return Ok(items.into()),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            self.way.push(Step::Key(key));
            let value = map.next_value_seed(self.below())?;
            let way = self.way.clone();
            if let Some(Step::Key(key)) = self.way.pop()
                && fields.insert(key, value).is_some()
            {
                self.twice.push(way);
            }
        }
        Ok(fields.into())
    }
}
