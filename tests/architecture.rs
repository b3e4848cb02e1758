//! How the code hangs together: what may know what, how large a room is, and which lints watch over it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A file of product code, without its tests.
struct Room {
    /// Such as `runtime/src/engine/node.rs`.
    path: String,
    code: String,
}

/// Files over 400 lines without tests, and why each is one room all the same.
const LARGE: [(&str, &str); 0] = [];
const LINES_MAX: usize = 400;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The product code under a folder: no test files, and of each file what stands before its tests.
fn rooms(folder: &str) -> Vec<Room> {
    let mut files = Vec::new();
    rust_files(&root().join(folder), &mut files);
    let tests = ["tests", "tests.rs", "conformance", "properties.rs", "measure.rs", "testing.rs"];
    let rooms: Vec<Room> = files
        .into_iter()
        .map(|file| file.strip_prefix(root()).unwrap().to_owned())
        .filter(|path| !path.components().any(|part| tests.contains(&part.as_os_str().to_str().unwrap())))
        .map(|path| {
            let text = std::fs::read_to_string(root().join(&path)).unwrap();
            let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
            Room { path: path.to_str().unwrap().to_owned(), code }
        })
        .collect();
    assert!(!rooms.is_empty(), "{folder} has no code");
    rooms
}

/// The code without comments, so that an example in one is not taken for code.
fn without_comments(code: &str) -> String {
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// The module of the runtime that a path in it belongs to: `engine` for `runtime/src/engine/node.rs`.
fn module(path: &str) -> &str {
    let inner = path.strip_prefix("runtime/src/").unwrap();
    inner.split('/').next().unwrap().trim_end_matches(".rs")
}

/// What a file of the runtime imports of its own crate.
fn imports(code: &str) -> BTreeSet<String> {
    let code = without_comments(code);
    let mut found = BTreeSet::new();
    for after in code.split("crate::").skip(1) {
        let list = match after.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or_default().split(',').map(str::trim).collect(),
            None => vec![after],
        };
        for name in list {
            found.insert(name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
        }
    }
    found
}

#[test]
fn imports_point_down_http_and_cli_to_client_and_verify_to_engine_to_store_to_replay_to_workflow_to_history() {
    // Each may use what stands behind it; a rank may not look up, nor sideways.
    let ranks: [&[&str]; 8] = [
        &["cli"],
        &["http"],
        &["client", "verify"],
        &["engine"],
        &["store"],
        &["replay"],
        &["workflow", "activity", "outbox"],
        &["history"],
    ];
    let rank: BTreeMap<&str, usize> =
        ranks.iter().enumerate().flat_map(|(at, names)| names.iter().map(move |name| (*name, at))).collect();
    let mut wrong = Vec::new();
    for room in rooms("runtime/src") {
        let Some(own) = rank.get(module(&room.path)) else { continue };
        for used in imports(&room.code) {
            if rank.get(used.as_str()).is_some_and(|other| other < own) {
                wrong.push(format!("{} looks up to {used}", room.path));
            }
        }
    }
    let known: BTreeSet<String> = UPWARD.iter().map(|(path, used, _)| format!("{path} looks up to {used}")).collect();
    let wrong: Vec<_> = wrong.into_iter().filter(|found| !known.contains(found)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Imports that point up, and why each is harmless.
const UPWARD: [(&str, &str, &str); 1] =
    [("runtime/src/client/tokens.rs", "http", "the scopes of a token are those of the table of routes")];

#[test]
fn replay_is_a_function_it_sees_no_store_no_clock_no_runtime_and_no_database() {
    for folder in ["runtime/src/replay", "runtime/src/workflow", "runtime/src/history"] {
        for room in rooms(folder) {
            let code = without_comments(&room.code);
            for word in [
                "tokio::",
                "sqlx",
                "crate::store",
                "crate::engine",
                "Clock",
                "SystemTime",
                "Instant::now",
                "rand::",
                "std::fs",
                "std::net",
            ] {
                assert!(!code.contains(word), "{} knows {word}", room.path);
            }
        }
    }
}

#[test]
fn the_runtime_knows_no_words_of_orders() {
    let words = ["payment", "payments", "stock", "coupon", "coupons", "refund", "refunds", "sku", "orders"];
    for room in rooms("runtime/src") {
        let code = without_comments(&room.code).to_lowercase();
        let found = code.split(|c: char| !c.is_alphabetic()).find(|word| words.contains(word));
        assert_eq!(found, None, "{}", room.path);
        // "order" is also a sequence: ORDER BY, in order, ordered, border.
        for name in ["order_id", "orderid", "order_timeout", "order-timeout"] {
            assert!(!code.contains(name), "{} knows {name}", room.path);
        }
    }
}

#[test]
fn crates_depend_from_workflows_to_activities_to_runtime_and_never_back() {
    let depends = |krate: &str, on: &str| {
        let manifest = std::fs::read_to_string(root().join(krate).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap().to_owned();
        dependencies.lines().any(|line| line.starts_with(on))
    };
    assert!(depends("workflows", "overdue-activities") && depends("workflows", "overdue-runtime"));
    assert!(depends("activities", "overdue-runtime"));
    assert!(!depends("activities", "overdue-workflows"));
    assert!(!depends("runtime", "overdue-"), "the runtime stands alone");
}

#[test]
fn no_room_is_over_four_hundred_lines_without_its_tests_but_for_a_reason() {
    let mut over = Vec::new();
    for folder in ["runtime/src", "activities/src", "workflows/src"] {
        for room in rooms(folder) {
            let lines = room.code.lines().count();
            let reason = LARGE.iter().find(|(path, _)| *path == room.path);
            match (lines > LINES_MAX, reason) {
                (true, None) => over.push(format!("{} has {lines} lines", room.path)),
                (false, Some(_)) => over.push(format!("{} has only {lines} lines: take it off the list", room.path)),
                _ => {}
            }
        }
    }
    assert!(over.is_empty(), "split by concept, or say here why it is one room: {over:#?}");
}

#[test]
fn nothing_of_the_product_panics_by_unwrap_or_leaves_work_undone() {
    for folder in ["runtime/src", "activities/src", "workflows/src"] {
        for room in rooms(folder) {
            let code = without_comments(&room.code);
            for word in [".unwrap()", "todo!(", "unimplemented!(", "dbg!(", "println!(\"DEBUG"] {
                assert!(!code.contains(word), "{} has {word}", room.path);
            }
            assert!(!room.code.contains("TODO") && !room.code.contains("FIXME"), "{} has a note without a place", room.path);
        }
    }
}

#[test]
fn every_crate_is_under_the_same_lints_and_they_are_on() {
    for krate in ["runtime", "activities", "workflows"] {
        let manifest = std::fs::read_to_string(root().join(krate).join("Cargo.toml")).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{krate}");
    }
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    for lint in [
        "unsafe_code = \"forbid\"",
        "missing_docs = \"warn\"",
        "unreachable_pub = \"warn\"",
        "all = { level = \"warn\", priority = -1 }",
        "unwrap_used = \"warn\"",
        "disallowed_methods = \"warn\"",
        "disallowed_types = \"warn\"",
        "dbg_macro = \"warn\"",
        "todo = \"warn\"",
        "unimplemented = \"warn\"",
    ] {
        assert!(workspace.lines().any(|line| line == lint), "{lint}");
    }
    let run = std::fs::read_to_string(root().join("tests/run")).unwrap();
    assert!(run.contains("--all-targets") && run.contains("-D warnings"), "a warning fails the test command");
}

#[test]
fn every_file_says_in_its_first_line_what_it_is_for() {
    for folder in ["runtime/src", "activities/src", "workflows/src", "tests"] {
        let mut files = Vec::new();
        rust_files(&root().join(folder), &mut files);
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(text.starts_with("//! "), "{}", file.display());
        }
    }
}
