//! What nodes agree on: documents that are replaced as a whole.

use super::Specification;
use crate::store::Control;

fn control(name: &str, rev: u64, value: &'static str) -> Control {
    Control { name: name.into(), rev, value: value.as_bytes().into() }
}

pub(super) const SPECIFICATIONS: &[Specification] = &[
    ("a document is replaced by whoever knows its revision, and by nobody else", |store| {
        Box::pin(async move {
            let put = async |rev, value| store.replace_control(&control("breaker stock", rev, value)).await.unwrap();
            assert!(!put(2, "before there is one").await);
            assert!(put(1, "first").await);
            assert!(!put(1, "another first").await);
            assert!(put(2, "second").await);
            assert!(!put(2, "another second").await);
            assert!(!put(4, "behind one that is not there").await);
            assert_eq!(store.controls().await.unwrap(), [control("breaker stock", 2, "second")]);
        })
    }),
    ("documents come by name", |store| {
        Box::pin(async move {
            for name in ["b", "a", "B"] {
                assert!(store.replace_control(&control(name, 1, "")).await.unwrap());
            }
            let names: Vec<String> = store.controls().await.unwrap().into_iter().map(|control| control.name).collect();
            assert_eq!(names, ["B", "a", "b"]);
        })
    }),
    ("of several that replace the same revision at once one does", |store| {
        Box::pin(async move {
            assert!(store.replace_control(&control("a", 1, "first")).await.unwrap());
            let replacements = ["x", "y", "z"].map(|value| control("a", 2, value));
            let replaced = futures::future::join_all(replacements.iter().map(|one| store.replace_control(one))).await;
            assert_eq!(replaced.into_iter().filter(|replaced| *replaced.as_ref().unwrap()).count(), 1);
        })
    }),
];
