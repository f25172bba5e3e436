//! One value for each cluster of a device, for the threads that share it.
//!
//! Invariant: a value stays where it is. Where the device is given more clusters the column is lengthened while others
//! use it; only one thread at a time does that.

use std::{ops::Index, sync::OnceLock};

pub(crate) struct Column<T> {
    first: Box<[T]>,
    /// What it was lengthened by.
    more: OnceLock<Box<Column<T>>>,
}

impl<T> Column<T> {
    pub(crate) fn new(len: u32, value: impl Fn() -> T) -> Self {
        Self { first: (0..len).map(|_| value()).collect(), more: OnceLock::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.more.get().map_or(0, |more| more.len())
    }

    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        let at = id as usize;
        self.first.get(at).or_else(|| self.more.get()?.get((at - self.first.len()) as u32))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        (0..self.len() as u32).filter_map(|id| self.get(id))
    }

    /// Puts so many more behind it; one that has none is not asked for, and stays so.
    pub(crate) fn lengthen(&self, by: u32, value: impl Fn() -> T) {
        match self.more.get() {
            _ if self.first.is_empty() => {}
            Some(more) => more.lengthen(by, value),
            None => drop(self.more.set(Box::new(Self::new(by, value)))),
        }
    }
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Self { first: Box::default(), more: OnceLock::new() }
    }
}

impl<T> Index<u32> for Column<T> {
    type Output = T;

    fn index(&self, id: u32) -> &T {
        self.get(id).unwrap_or_else(|| panic!("cluster {id} of {}", self.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_stays_where_it_is_when_a_column_is_lengthened() {
        let column = Column::new(3, || 1);
        let first = &raw const column[2];
        column.lengthen(2, || 2);
        column.lengthen(1, || 3);
        assert!(std::ptr::eq(first, &raw const column[2]));
        assert_eq!((column.len(), column.iter().copied().collect::<Vec<_>>()), (6, vec![1, 1, 1, 2, 2, 3]));
        assert_eq!((column.get(6), Column::<u8>::default().len()), (None, 0));
        let none = Column::default();
        none.lengthen(4, || 1);
        assert_eq!(none.len(), 0);
    }
}
