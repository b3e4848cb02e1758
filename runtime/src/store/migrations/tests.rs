//! The folders, for tests that compare them with what the program has.

use std::path::Path;

use super::*;

/// The files of a folder, by name, with what they say.
pub(in crate::store) fn files_of(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations").join(folder);
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let name = |file: &Path| file.file_stem().unwrap().to_str().unwrap().to_owned();
    files.iter().map(|file| (name(file), std::fs::read_to_string(file).unwrap())).collect()
}

/// The same of what the program has.
pub(in crate::store) fn known_of(migrator: &Migrator) -> Vec<(String, String)> {
    let name = |one: &Migration| format!("{:04}_{}", one.version, one.description.replace(' ', "_"));
    migrator.iter().map(|one| (name(one), one.sql.as_str().to_owned())).collect()
}
