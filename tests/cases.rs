//! `CASES.md` names a test for each known fault; here it is checked that each of those tests exists.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[test]
fn every_case_has_a_test_that_exists_or_says_why_it_has_none() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned();
    let table = std::fs::read_to_string(root.join("tests/CASES.md")).unwrap();
    let mut sources: BTreeMap<PathBuf, String> = BTreeMap::new();
    let mut cases = Vec::new();
    for row in table.lines().filter(|line| line.starts_with("| B")) {
        let columns: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [case, _, where_to] = columns[..] else { panic!("three columns: {row}") };
        cases.push(case.to_owned());
        let tests: Vec<&str> = where_to.split('`').skip(1).step_by(2).filter(|quoted| quoted.contains("::")).collect();
        assert!(
            !tests.is_empty() || where_to.starts_with("—"),
            "{case} names a test, or says after a dash why it has none: {row}"
        );
        for test in tests {
            let (file, name) = test.rsplit_once("::").unwrap();
            let source = sources.entry(root.join(file)).or_insert_with_key(|path| read(path));
            let is_test = |line: &&str| line.contains(&format!("fn {name}()"));
            let at =
                source.lines().position(|line| is_test(&line)).unwrap_or_else(|| panic!("{case}: {file} has no test {name}"));
            let before: Vec<&str> = source.lines().take(at).collect();
            let marked = before.iter().rev().take(4).any(|line| line.contains("#[test]") || line.contains("#[tokio::test"));
            assert!(marked, "{case}: {name} of {file} is not a test");
        }
    }
    let expected: Vec<String> = EXPECTED.iter().map(|number| format!("B{number:03}")).collect();
    assert_eq!(cases, expected, "a row for each case, in order");
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The cases of the fault log.
const EXPECTED: [u32; 54] = [
    1, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42, 44, 46, 47, 49, 51, 52, 54, 56, 58, 60,
    62, 64, 66, 68, 70, 73, 75, 76, 78, 80, 82, 84, 86, 88, 90, 92, 94, 96, 98, 100, 102, 104,
];
