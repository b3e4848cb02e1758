//! What the nodes say of themselves: without it, a run in which nothing went wrong would look like one that held.

use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom};

use crate::world::World;

/// A log that was read is emptied when it is longer.
const LOG_BYTES_MAX: u64 = 32 << 20;

/// What each line that contains these words counts as.
const WORDS: [(&str, &str); 5] = [
    ("a node whose lease expired was ended", "takeovers"),
    ("node lost its lane", "zombies refused"),
    ("outcome of a commit unknown", "commits of unknown outcome"),
    ("node drained", "drains"),
    ("panicked at", "panics"),
];

/// Reads the nodes' logs piece by piece.
pub(crate) struct Caught {
    read: Vec<u64>,
    pub(crate) counts: [u64; WORDS.len()],
}

impl Caught {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { read: vec![0; nodes], counts: [0; WORDS.len()] }
    }

    /// Reads what has come since; `empty` those that have grown long.
    pub(crate) fn read(&mut self, world: &World) {
        for (node, read) in world.nodes.iter().zip(&mut self.read) {
            let Ok(mut file) = OpenOptions::new().read(true).append(true).open(&node.log) else { continue };
            let mut bytes = Vec::new();
            file.seek(SeekFrom::Start(*read)).unwrap();
            file.read_to_end(&mut bytes).unwrap();
            *read += bytes.len() as u64;
            for line in String::from_utf8_lossy(&bytes).lines() {
                for (count, (words, _)) in self.counts.iter_mut().zip(WORDS) {
                    *count += u64::from(line.contains(words));
                }
            }
            if *read > LOG_BYTES_MAX {
                file.set_len(0).unwrap();
                *read = 0;
            }
        }
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        WORDS.iter().zip(self.counts).find(|((_, known), _)| *known == name).map_or(0, |(_, count)| count)
    }

    pub(crate) fn text(&self) -> String {
        let each: Vec<String> = WORDS.iter().zip(self.counts).map(|((_, name), count)| format!("{name} {count}")).collect();
        each.join(", ")
    }
}
