//! Reading what the recorder wrote.

use std::path::Path;

/// The bytes before those of a record: kind, file, two unused, length, offset.
const HEAD_BYTES: usize = 16;

/// A file of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File {
    Database,
    Log,
    Journal,
    /// Their folder: which of them are there.
    Folder,
}

#[derive(Debug)]
pub(super) enum Event {
    Created(File),
    Wrote {
        file: File,
        at: usize,
        bytes: Vec<u8>,
    },
    Cut {
        file: File,
        length: usize,
    },
    /// What was done to it before survives from now on.
    Synchronized(File),
    Removed(File),
    /// A 2xx with this text is about to be sent.
    Promised(String),
}

/// Everything in a recording, in order. Its last record may be cut off: the program was killed.
pub(super) fn read(recording: &Path) -> Vec<Event> {
    let recorded = std::fs::read(recording).unwrap();
    let mut rest = &recorded[..];
    let mut events = Vec::new();
    while let Some((head, tail)) = rest.split_at_checked(HEAD_BYTES) {
        let length = u32::from_le_bytes(head[4..8].try_into().unwrap()) as usize;
        let at = usize::try_from(u64::from_le_bytes(head[8..16].try_into().unwrap())).unwrap();
        let Some((bytes, tail)) = tail.split_at_checked(length) else { break };
        let file = [File::Database, File::Log, File::Journal, File::Folder][usize::from(head[1])];
        events.push(match head[0] {
            b'C' => Event::Created(file),
            b'W' => Event::Wrote { file, at, bytes: bytes.to_vec() },
            b'T' => Event::Cut { file, length: at },
            b'S' => Event::Synchronized(file),
            b'U' => Event::Removed(file),
            b'A' => Event::Promised(String::from_utf8_lossy(bytes).into_owned()),
            other => panic!("a record of the kind {other}"),
        });
        rest = tail;
    }
    events
}
