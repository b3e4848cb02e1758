//! What a disk holds after a power cut: all that was synchronized, and of the rest what it likes.

use overdue_runtime::engine::Randomness;
use overdue_runtime::testing::SeededRandom;

use super::recording::{Event, File};

/// What a disk writes whole or not at all.
const SECTOR: usize = 512;

/// What becomes of that which was not synchronized.
#[derive(Clone, Copy, Debug)]
pub(super) enum Loss {
    /// All of it is lost.
    All,
    /// Nothing is.
    None,
    /// Each sector of it is, or is not, as a seed has it.
    Torn(u64),
}

/// The database's files, as they are found after a cut: the database, its log, its rollback journal.
pub(super) type Files = [Option<Vec<u8>>; 3];

#[derive(Default)]
pub(super) struct Disk {
    files: [State; 3],
}

#[derive(Default)]
struct State {
    /// What is in it for certain.
    synchronized: Vec<u8>,
    /// What was done to it since.
    since: Vec<Change>,
    /// Whether it is there.
    exists: bool,
    /// Whether its folder says so for certain.
    is_named: bool,
}

enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Cut(usize),
}

impl Disk {
    pub(super) fn take(&mut self, event: &Event) {
        match event {
            Event::Created(file) => self.files[*file as usize] = State { exists: true, ..State::default() },
            Event::Wrote { file, at, bytes } => {
                self.files[*file as usize].since.push(Change::Write { at: *at, bytes: bytes.clone() });
            }
            Event::Cut { file, length } => self.files[*file as usize].since.push(Change::Cut(*length)),
            Event::Removed(file) => self.files[*file as usize].exists = false,
            Event::Synchronized(File::Folder) => self.files.iter_mut().for_each(|file| file.is_named = file.exists),
            Event::Synchronized(file) => {
                let file = &mut self.files[*file as usize];
                for change in std::mem::take(&mut file.since) {
                    change.apply(&mut file.synchronized, |_| true);
                }
            }
            Event::Promised(_) => {}
        }
    }

    /// What is found after a cut now.
    pub(super) fn after(&self, loss: Loss) -> Files {
        let random = SeededRandom::new(if let Loss::Torn(seed) = loss { seed } else { 0 });
        let survives = |_: usize| match loss {
            Loss::All => false,
            Loss::None => true,
            Loss::Torn(_) => random.next_u64() & 1 == 1,
        };
        [0, 1, 2].map(|number| {
            let file = &self.files[number];
            let is_there = if file.exists == file.is_named || survives(0) { file.exists } else { file.is_named };
            if !is_there {
                return None;
            }
            let mut bytes = file.synchronized.clone();
            for change in &file.since {
                change.apply(&mut bytes, survives);
            }
            Some(bytes)
        })
    }
}

impl Change {
    /// Does to a file what the disk keeps of it.
    fn apply(&self, file: &mut Vec<u8>, survives: impl Fn(usize) -> bool) {
        match self {
            Self::Cut(length) => {
                if survives(0) {
                    file.resize(*length, 0);
                }
            }
            Self::Write { at, bytes } => {
                let mut from = 0;
                while from < bytes.len() {
                    let to = bytes.len().min(from + SECTOR - (at + from) % SECTOR);
                    if survives(from) {
                        if file.len() < at + to {
                            file.resize(at + to, 0);
                        }
                        file[at + from..at + to].copy_from_slice(&bytes[from..to]);
                    }
                    from = to;
                }
            }
        }
    }
}
