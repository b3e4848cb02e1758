//! The migrations as parts of the program: its folders of SQL files, each file by its name.
//!
//! Deliberately absent: sqlx's macro that reads a folder. It builds every database driver a second time, for the compiler.

use sqlx::SqlSafeStr;
use sqlx::migrate::{Migration, MigrationType, Migrator};

/// The files of one folder below `migrations/`, by their names without `.sql`; none may be left out.
macro_rules! migrations {
    ($folder:literal: $($file:literal),+ $(,)?) => {
        $crate::store::migrations::migrator(&[
            $(($file, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/", $folder, "/", $file, ".sql")))),+
        ])
    };
}
pub(super) use migrations;

/// What the files say, in the order of their numbers. Number and words of a name are recorded in the database.
pub(super) fn migrator(files: &[(&'static str, &'static str)]) -> Migrator {
    let migration = |&(name, sql): &(&'static str, &'static str)| {
        let (number, words) = name.split_once('_')?;
        let words = words.replace('_', " ").into();
        Some(Migration::new(number.parse().ok()?, words, MigrationType::Simple, sql.into_sql_str(), false))
    };
    Migrator::with_migrations(files.iter().filter_map(migration).collect())
}

#[cfg(test)]
pub(super) mod tests;
