//! Statements that read differently where the tables are distributed.
//!
//! There is one text. Where all tables stand in one server it is sent as it is written, and what concerns the others is a
//! comment. `/*citus …*/` is opened where Citus holds the tables; `/*one*/ … /*citus …*/` has a part that is replaced.

use std::sync::OnceLock;

use super::layout::Layout;

const ONLY_IN_ONE: &str = "/*one*/";
const ONLY_ON_CITUS: &str = "/*citus";
const END: &str = "*/";

pub(super) struct Statement {
    text: &'static str,
    on_citus: OnceLock<String>,
}

impl Statement {
    pub(super) const fn new(text: &'static str) -> Self {
        Self { text, on_citus: OnceLock::new() }
    }

    /// As it is sent where the tables lie so.
    pub(super) fn on(&'static self, layout: &Layout) -> &'static str {
        match layout {
            Layout::One => self.text,
            Layout::Citus(_) => self.on_citus.get_or_init(|| on_citus(self.text)),
        }
    }
}

fn on_citus(text: &str) -> String {
    let mut read = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once(ONLY_ON_CITUS) {
        let (opened, after) = comment.split_once(END).unwrap_or((comment, ""));
        read.push_str(before.split_once(ONLY_IN_ONE).map_or(before, |(kept, _)| kept));
        read.push_str(opened);
        rest = after;
    }
    read.push_str(rest);
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_concerns_citus_alone_is_a_comment_to_every_other_server() {
        static READ: Statement = Statement::new("SELECT 1 FROM t WHERE a = b /*citus AND a = ANY ($1)*/ LIMIT 1");
        assert_eq!(READ.on(&Layout::One), "SELECT 1 FROM t WHERE a = b /*citus AND a = ANY ($1)*/ LIMIT 1");
        assert_eq!(READ.on(&Layout::citus(vec![0])), "SELECT 1 FROM t WHERE a = b  AND a = ANY ($1) LIMIT 1");
    }

    #[test]
    fn what_citus_cannot_take_is_replaced_for_it() {
        static WRITE: Statement = Statement::new("SELECT /*one*/w.shard/*citus a.shard*/, w.id FROM w /*citus JOIN a*/");
        assert_eq!(WRITE.on(&Layout::citus(vec![0])), "SELECT  a.shard, w.id FROM w  JOIN a");
    }
}
