//! What does not fit in memory while a graph is built: records by part, in one file that has no name and is
//! gone with the process that made it.
//!
//! Invariants: of each part at most a block waits in memory; a part comes back in the order in which it was filled.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
};

/// Bytes of a part that are written at a time.
const BLOCK: usize = 4 << 10;

pub(crate) struct Spill {
    file: File,
    end: u64,
    parts: Vec<Part>,
}

#[derive(Default)]
struct Part {
    waiting: Vec<u8>,
    written: Vec<(u64, u32)>,
}

impl Spill {
    pub(crate) fn new(folder: &Path, parts: usize) -> io::Result<Self> {
        let file = tempfile::tempfile_in(folder)?;
        Ok(Self { file, end: 0, parts: (0..parts).map(|_| Part::default()).collect() })
    }

    /// Adds numbers and bytes to a part.
    pub(crate) fn add(&mut self, part: usize, numbers: &[u64], bytes: &[u8]) -> io::Result<()> {
        let waiting = &mut self.parts[part].waiting;
        numbers.iter().for_each(|number| waiting.extend_from_slice(&number.to_le_bytes()));
        waiting.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        waiting.extend_from_slice(bytes);
        if waiting.len() >= BLOCK {
            self.file.seek(SeekFrom::Start(self.end))?;
            self.file.write_all(waiting)?;
            let len = waiting.len();
            self.parts[part].written.push((self.end, len as u32));
            self.end += len as u64;
            self.parts[part].waiting = Vec::new();
        }
        Ok(())
    }

    /// All of a part, which is empty then.
    pub(crate) fn take(&mut self, part: usize) -> io::Result<Vec<u8>> {
        let Part { waiting, written } = std::mem::take(&mut self.parts[part]);
        let len: usize = written.iter().map(|(_, len)| *len as usize).sum();
        let mut all = vec![0; len];
        let mut rest = &mut all[..];
        for (at, len) in written {
            let (now, later) = rest.split_at_mut(len as usize);
            self.file.seek(SeekFrom::Start(at))?;
            self.file.read_exact(now)?;
            rest = later;
        }
        all.extend_from_slice(&waiting);
        Ok(all)
    }
}

/// A part as it was filled: `N` numbers and bytes each time.
pub(crate) struct Records<'a, const N: usize>(pub(crate) &'a [u8]);

impl<'a, const N: usize> Iterator for Records<'a, N> {
    type Item = ([u64; N], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            let (bytes, rest) = self.0.split_first_chunk::<8>()?;
            (*number, self.0) = (u64::from_le_bytes(*bytes), rest);
        }
        let (len, rest) = self.0.split_first_chunk::<4>()?;
        let (bytes, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        self.0 = rest;
        Some((numbers, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_in_their_order() {
        let mut spill = Spill::new(&std::env::temp_dir(), 3).unwrap();
        for n in 0..20_000_u64 {
            spill.add((n % 3) as usize, &[n, n * n], format!("record {n}").as_bytes()).unwrap();
        }
        assert!(spill.parts.iter().all(|part| part.waiting.len() < BLOCK && part.written.len() > 10));
        for part in 0..3 {
            let all = spill.take(part as usize).unwrap();
            let found: Vec<_> = Records::<2>(&all).collect();
            let mine: Vec<u64> = (0..20_000).filter(|n| n % 3 == part).collect();
            assert_eq!(found.len(), mine.len());
            for ((numbers, bytes), n) in found.into_iter().zip(mine) {
                assert_eq!((numbers, bytes), ([n, n * n], format!("record {n}").as_bytes()));
            }
            assert!(spill.take(part as usize).unwrap().is_empty());
        }
    }
}
