//! Writes cpio archives of the `newc` kind, which the kernel unpacks as its first file system.
//!
//! Several archives may follow each other in one file; a later entry replaces an earlier one. Implemented here
//! because it needs no staging folder and no root: owners and device nodes are just numbers.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};

const FOLDER: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
/// The kernel skips zeros between archives; the cpio program pads to whole sectors.
const BLOCK: u64 = 512;

/// An archive being written.
pub struct Archive<W> {
    out: W,
    written: u64,
    entries: u32,
    folders: BTreeSet<String>,
}

struct Header<'a> {
    path: &'a str,
    mode: u32,
    size: u32,
    device: (u32, u32),
}

impl<W: Write> Archive<W> {
    /// Starts an archive.
    pub fn new(out: W) -> Self {
        Self {
            out,
            written: 0,
            entries: 0,
            folders: BTreeSet::new(),
        }
    }

    /// Adds a folder and its parents.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn folder(&mut self, path: &str) -> io::Result<()> {
        let path = path.trim_matches('/');
        if path.is_empty() || !self.folders.insert(path.to_owned()) {
            return Ok(());
        }
        self.parent(path)?;
        self.header(&Header {
            path,
            mode: FOLDER | 0o755,
            size: 0,
            device: (0, 0),
        })
    }

    /// Adds a file from memory.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn text(&mut self, path: &str, permissions: u32, content: &str) -> io::Result<()> {
        self.file(path, permissions, content.len() as u64, content.as_bytes())
    }

    /// Adds a file of exactly `size` bytes.
    ///
    /// # Errors
    /// The archive cannot be written, or `content` has another length.
    pub fn file(
        &mut self,
        path: &str,
        permissions: u32,
        size: u64,
        content: impl Read,
    ) -> io::Result<()> {
        let path = path.trim_matches('/');
        let short = u32::try_from(size)
            .map_err(|_| io::Error::other(format!("{path}: larger than 4 GiB")))?;
        self.parent(path)?;
        let mode = REGULAR | (permissions & 0o7777);
        self.header(&Header {
            path,
            mode,
            size: short,
            device: (0, 0),
        })?;
        let copied = io::copy(&mut content.take(size), &mut self.out)?;
        if copied != size {
            return Err(io::Error::other(format!(
                "{path}: {copied} bytes instead of {size}"
            )));
        }
        self.written += size;
        self.pad(4)
    }

    /// Adds a symbolic link.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        let path = path.trim_matches('/');
        self.parent(path)?;
        let size = u32::try_from(target.len()).map_err(io::Error::other)?;
        self.header(&Header {
            path,
            mode: SYMLINK | 0o777,
            size,
            device: (0, 0),
        })?;
        self.bytes(target.as_bytes())?;
        self.pad(4)
    }

    /// Adds a character device.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn device(&mut self, path: &str, major: u32, minor: u32) -> io::Result<()> {
        let path = path.trim_matches('/');
        self.parent(path)?;
        let mode = CHARACTER_DEVICE | 0o600;
        self.header(&Header {
            path,
            mode,
            size: 0,
            device: (major, minor),
        })
    }

    /// Finishes the archive.
    ///
    /// # Errors
    /// The archive cannot be written.
    pub fn finish(mut self) -> io::Result<W> {
        self.header(&Header {
            path: "TRAILER!!!",
            mode: 0,
            size: 0,
            device: (0, 0),
        })?;
        self.pad(BLOCK)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn parent(&mut self, path: &str) -> io::Result<()> {
        path.rsplit_once('/')
            .map_or(Ok(()), |(parent, _)| self.folder(parent))
    }

    fn header(&mut self, entry: &Header<'_>) -> io::Result<()> {
        self.entries += 1;
        let name = u32::try_from(entry.path.len() + 1).map_err(io::Error::other)?;
        let (major, minor) = entry.device;
        // inode, mode, uid, gid, links, mtime, size, device (2), node's device (2), name, checksum
        let fields = [
            self.entries,
            entry.mode,
            0,
            0,
            1,
            0,
            entry.size,
            0,
            0,
            major,
            minor,
            name,
            0,
        ];
        let mut text = String::from("070701");
        for field in fields {
            text.push_str(&format!("{field:08x}"));
        }
        self.bytes(text.as_bytes())?;
        self.bytes(entry.path.as_bytes())?;
        self.bytes(&[0])?;
        self.pad(4)
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn pad(&mut self, multiple: u64) -> io::Result<()> {
        let missing = self.written.next_multiple_of(multiple) - self.written;
        self.written += missing;
        io::copy(&mut io::repeat(0).take(missing), &mut self.out).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names, modes and contents, parsed as by the kernel.
    fn unpack(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let (mut at, mut entries) = (0, Vec::new());
        loop {
            let field = |index: usize| {
                let start = at + 6 + index * 8;
                u32::from_str_radix(std::str::from_utf8(&bytes[start..start + 8]).unwrap(), 16)
                    .unwrap() as usize
            };
            assert_eq!(&bytes[at..at + 6], b"070701", "a header starts at {at}");
            let (mode, size, name) = (field(1), field(6), field(11));
            let path = String::from_utf8(bytes[at + 110..at + 110 + name - 1].to_vec()).unwrap();
            let data = (at + 110 + name).next_multiple_of(4);
            at = (data + size).next_multiple_of(4);
            if path == "TRAILER!!!" {
                return entries;
            }
            entries.push((
                path,
                u32::try_from(mode).unwrap(),
                bytes[data..data + size].to_vec(),
            ));
        }
    }

    #[test]
    fn what_is_written_is_read_back_with_the_folders_above_it() {
        let mut archive = Archive::new(Vec::new());
        archive
            .text("/etc/hosts", 0o644, "127.0.0.1 localhost\n")
            .unwrap();
        archive.text("/etc/shells", 0o644, "").unwrap();
        archive.link("bin", "usr/bin").unwrap();
        archive.device("/dev/console", 5, 1).unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 512, 0);
        let entries = unpack(&bytes);
        let names: Vec<&str> = entries.iter().map(|entry| entry.0.as_str()).collect();
        assert_eq!(
            names,
            [
                "etc",
                "etc/hosts",
                "etc/shells",
                "bin",
                "dev",
                "dev/console"
            ]
        );
        assert_eq!(entries[1].2, b"127.0.0.1 localhost\n");
        assert_eq!(entries[1].1, 0o100_644);
        assert_eq!(entries[3].1 & 0o170_000, SYMLINK);
        assert_eq!(entries[3].2, b"usr/bin");
    }

    #[test]
    fn a_file_that_shrank_while_it_was_read_is_an_error() {
        let error = Archive::new(Vec::new())
            .file("a", 0o644, 5, &b"abc"[..])
            .unwrap_err();
        assert_eq!(error.to_string(), "a: 3 bytes instead of 5");
    }
}
