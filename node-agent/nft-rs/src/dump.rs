//! Lists objects. Each list is of one generation: it is read again if a transaction came between.
//!
//! For the elements of a set, that is not enough. Their list is sent in several messages, and each one continues after
//! the number of elements that were passed before. If elements come, go or move between two messages, that number leads
//! to another place: some elements are missing from the list, or occur twice. There are two causes without another
//! generation (`net/netfilter/nf_tables_api.c` and `nft_set_hash.c`):
//!
//! - The kernel adds the elements of a transaction before its generation begins, and removes elements after that.
//! - A hash set with a size, and without the flags `timeout` and `dynamic`, is a table that is allocated once
//!   (`nft_hash`). Other hash sets are tables that grow and shrink (`nft_rhash`). A worker moves their elements some time
//!   after the transaction.
//!
//! So a single list is right if no other program changes the set meanwhile, and if the kernel does not resize the set.
//! [`Socket::settled_elements`] is for other sets.

use std::collections::{BTreeMap, BTreeSet};

use crate::bytes::Bytes;
use crate::chain::Chain;
use crate::element::Element;
use crate::errno::Errno;
use crate::error::Error;
use crate::family::{Family, TableId};
use crate::query::Query;
use crate::reply::Reply;
use crate::rule::Rule;
use crate::set::Set;
use crate::socket::{DUMP_ATTEMPTS, Socket};
use crate::table::Table;

impl Socket {
    /// The tables of a family, or all, with those of other programs.
    ///
    /// # Errors
    /// The kernel refused the request, the socket failed, or the list changed each time it was read.
    pub fn tables(&mut self, family: Option<Family>) -> Result<Vec<Table>, Error> {
        let replies = self.ask(&Query::Tables(family))?;
        Ok(replies
            .into_iter()
            .filter_map(|reply| match reply {
                Reply::Table(table) => Some(table),
                _ => None,
            })
            .collect())
    }

    /// A table; `None` if it does not exist.
    ///
    /// # Errors
    /// The same as [`Socket::tables`].
    pub fn table(&mut self, table: &TableId) -> Result<Option<Table>, Error> {
        let tables = self.tables(Some(table.family))?;
        Ok(tables.into_iter().find(|found| found.id() == *table))
    }

    /// The chains of a table. A missing table has none.
    ///
    /// # Errors
    /// The same as [`Socket::tables`].
    pub fn chains(&mut self, table: &TableId) -> Result<Vec<Chain>, Error> {
        let replies = self.ask(&Query::Chains(table.clone()))?;
        Ok(replies
            .into_iter()
            .filter_map(|reply| match reply {
                Reply::Chain(of, chain) if of == *table => Some(chain),
                _ => None,
            })
            .collect())
    }

    /// The sets and maps of a table, without elements. A missing table has none.
    ///
    /// # Errors
    /// The same as [`Socket::tables`].
    pub fn sets(&mut self, table: &TableId) -> Result<Vec<Set>, Error> {
        let replies = found(self.ask(&Query::Sets(table.clone())))?;
        Ok(replies
            .unwrap_or_default()
            .into_iter()
            .filter_map(|reply| match reply {
                Reply::Set(of, set) if of == *table => Some(set),
                _ => None,
            })
            .collect())
    }

    /// The rules of a table, those of each chain in their order. A missing table has none.
    ///
    /// # Errors
    /// The same as [`Socket::tables`].
    pub fn rules(&mut self, table: &TableId) -> Result<Vec<Rule>, Error> {
        let replies = found(self.ask(&Query::Rules(table.clone())))?;
        Ok(replies
            .unwrap_or_default()
            .into_iter()
            .filter_map(|reply| match reply {
                Reply::Rule(of, rule) if of == *table => Some(rule),
                _ => None,
            })
            .collect())
    }

    /// The elements of a set; `None` if it does not exist.
    ///
    /// The list can lack elements or contain some twice if another program changes the set meanwhile; and after a large
    /// change of a hash set that has no size, or has the flag `timeout` or `dynamic`, because the kernel then moves its
    /// elements. For such sets there is [`Socket::settled_elements`].
    ///
    /// # Errors
    /// The same as [`Socket::tables`].
    pub fn elements(&mut self, table: &TableId, set: &str) -> Result<Option<Vec<Element>>, Error> {
        self.fold_elements(table, set, Vec::new, Vec::push)
    }

    /// Passes the elements of a set to `add` as they come, for large sets; `None` if the set does not exist. If the list
    /// changes while it is read, it is read again into another `new` value. [`Socket::elements`] says for which sets the
    /// list can be wrong.
    ///
    /// # Errors
    /// The same as [`Socket::tables`].
    pub fn fold_elements<T>(
        &mut self,
        table: &TableId,
        set: &str,
        new: impl FnMut() -> T,
        mut add: impl FnMut(&mut T, Element),
    ) -> Result<Option<T>, Error> {
        let query = Query::Elements(table.clone(), set.into());
        found(self.fold(&query, new, |value, reply| {
            if let Reply::Elements(part) = reply {
                for element in part.elements {
                    add(value, element);
                }
            }
        }))
    }

    /// The elements of a hash set that changes, for which [`Socket::elements`] can be wrong; `None` if it does not exist.
    /// The set is listed until two lists in a row have the same keys and no key twice, and the last one is returned. If
    /// there are no such lists after `reads` attempts, because packets change the set all the time, these are the elements
    /// of all lists, with those that ended meanwhile.
    ///
    /// # Errors
    /// The same as [`Socket::tables`].
    pub fn settled_elements(
        &mut self,
        table: &TableId,
        set: &str,
        reads: u32,
    ) -> Result<Option<Vec<Element>>, Error> {
        let mut all = BTreeMap::<Bytes, Element>::new();
        let mut before = BTreeSet::new();
        for number in 0..reads {
            let Some(list) = self.elements(table, set)? else {
                return Ok(None);
            };
            let keys: BTreeSet<_> = list.iter().map(|element| element.key.clone()).collect();
            if number > 0 && keys.len() == list.len() && keys == before {
                return Ok(Some(list));
            }
            let by_key = list.into_iter();
            all.extend(by_key.map(|element| (element.key.clone(), element)));
            before = keys;
        }
        Ok(Some(all.into_values().collect()))
    }

    /// Reads several lists of one generation, which is returned with the result. If another program commits meanwhile,
    /// `read` is called again, at most 20 times.
    ///
    /// # Errors
    /// The errors of `read`; [`Error::Interrupted`] after the last attempt.
    pub fn consistently<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> Result<T, Error>,
    ) -> Result<(T, u32), Error> {
        for _ in 0..DUMP_ATTEMPTS {
            let before = self.generation()?.id;
            let value = read(self)?;
            if self.generation()?.id == before {
                return Ok((value, before));
            }
        }
        Err(Error::Interrupted {
            what: "read several lists".to_owned(),
            attempts: DUMP_ATTEMPTS,
        })
    }
}

/// `None` if the table or the set does not exist.
fn found<T>(listed: Result<T, Error>) -> Result<Option<T>, Error> {
    match listed {
        Ok(listed) => Ok(Some(listed)),
        Err(Error::Query {
            errno: Errno::NOT_FOUND,
            ..
        }) => Ok(None),
        Err(error) => Err(error),
    }
}
