//! What a configured statement is made of: enough of SQL's lexical rules to find named parameters, and nothing that only
//! looks like one. Text inside string literals, quoted identifiers, comments and dollar quotes is left alone.

use super::dialect::Dialect;

/// A piece of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A keyword, a name or a number.
    Word(&'a str),
    /// A quoted name, with its quotes.
    Quoted(&'a str),
    /// A string literal, with its quotes.
    Text(&'a str),
    /// `:name`, without the colon.
    Parameter(&'a str),
    /// A placeholder of the driver's own, such as `?` or `$1`.
    Placeholder(&'a str),
    /// Blanks and comments.
    Blank(&'a str),
    /// Any other character, or `::`.
    Symbol(&'a str),
}

impl<'a> Token<'a> {
    /// As it is written; of a parameter, only its name.
    pub(crate) fn text(self) -> &'a str {
        match self {
            Self::Word(text)
            | Self::Quoted(text)
            | Self::Text(text)
            | Self::Parameter(text)
            | Self::Placeholder(text)
            | Self::Blank(text)
            | Self::Symbol(text) => text,
        }
    }

    /// Whether it is this keyword or unquoted name; case makes no difference.
    pub(crate) fn is_word(self, word: &str) -> bool {
        matches!(self, Self::Word(text) if text.eq_ignore_ascii_case(word))
    }

    /// Whether it names this column, quoted or not.
    pub(crate) fn names(self, column: &str) -> bool {
        match self {
            Self::Word(text) => text.eq_ignore_ascii_case(column),
            Self::Quoted(text) => text.get(1..text.len() - 1).is_some_and(|name| name.eq_ignore_ascii_case(column)),
            _ => false,
        }
    }
}

/// Something was begun and not ended: a literal, a quoted name or a comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unterminated(pub(crate) &'static str);

/// Takes a statement apart. The pieces, put together, are the statement.
pub(crate) fn tokens(sql: &str, dialect: Dialect) -> Result<Vec<Token<'_>>, Unterminated> {
    let mut tokens = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        let (token, length) = next(rest, first, dialect)?;
        tokens.push(token);
        rest = &rest[length..];
    }
    Ok(tokens)
}

fn next(rest: &str, first: char, dialect: Dialect) -> Result<(Token<'_>, usize), Unterminated> {
    use Dialect::{MySql, Postgres, Sqlite};
    let second = rest[first.len_utf8()..].chars().next();
    let blank = |length: usize| Ok((Token::Blank(&rest[..length]), length));
    match (first, second) {
        _ if first.is_whitespace() => blank(rest.find(|c: char| !c.is_whitespace()).unwrap_or(rest.len())),
        ('-', Some('-')) if dialect != MySql || starts_comment(&rest[2..]) => blank(line(rest)),
        ('#', _) if dialect == MySql => blank(line(rest)),
        ('/', Some('*')) => blank(comment(rest, dialect)?),
        ('\'', _) => text(rest, '\'', dialect == MySql),
        ('E' | 'e', Some('\'')) if dialect == Postgres => {
            let length = 1 + quoted(&rest[1..], '\'', true).ok_or(Unterminated("a string literal"))?;
            Ok((Token::Text(&rest[..length]), length))
        }
        // A string in MySQL's default mode, a name everywhere else.
        ('"', _) if dialect == MySql => text(rest, '"', true),
        ('"', _) => name(rest, '"'),
        ('`', _) if dialect != Postgres => name(rest, '`'),
        ('[', _) if dialect == Sqlite => {
            let length = rest.find(']').ok_or(Unterminated("a quoted name"))? + 1;
            Ok((Token::Quoted(&rest[..length]), length))
        }
        ('$', _) if dialect == Postgres => Ok(dollar(rest)?),
        (':', Some(':')) => Ok((Token::Symbol(&rest[..2]), 2)),
        (':', Some(second)) if starts_name(second) => {
            let length = 1 + name_length(&rest[1..]);
            Ok((Token::Parameter(&rest[1..length]), length))
        }
        ('?', _) if dialect != Postgres => Ok((Token::Placeholder(&rest[..1]), 1)),
        ('@' | '$', Some(second)) if dialect == Sqlite && starts_name(second) => {
            let length = 1 + name_length(&rest[1..]);
            Ok((Token::Placeholder(&rest[..length]), length))
        }
        _ if starts_name(first) || first.is_ascii_digit() => {
            let length = name_length(rest);
            Ok((Token::Word(&rest[..length]), length))
        }
        _ => Ok((Token::Symbol(&rest[..first.len_utf8()]), first.len_utf8())),
    }
}

fn starts_name(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn name_length(rest: &str) -> usize {
    rest.find(|c: char| !(c == '_' || c.is_alphanumeric())).unwrap_or(rest.len())
}

/// In MySQL two dashes begin a comment only before a blank: `5--3` is a difference.
fn starts_comment(after: &str) -> bool {
    after.chars().next().is_none_or(|c| c.is_whitespace() || c.is_control())
}

fn line(rest: &str) -> usize {
    rest.find('\n').unwrap_or(rest.len())
}

/// The length of a block comment; PostgreSQL's hold each other.
fn comment(rest: &str, dialect: Dialect) -> Result<usize, Unterminated> {
    let (mut depth, mut at) = (0u32, 0);
    while let Some(tail) = rest.get(at..).filter(|tail| !tail.is_empty()) {
        if tail.starts_with("/*") && (depth == 0 || dialect == Dialect::Postgres) {
            depth += 1;
            at += 2;
        } else if tail.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Ok(at);
            }
        } else {
            at += tail.chars().next().map_or(1, char::len_utf8);
        }
    }
    Err(Unterminated("a comment"))
}

fn text(rest: &str, quote: char, escapes: bool) -> Result<(Token<'_>, usize), Unterminated> {
    let length = quoted(rest, quote, escapes).ok_or(Unterminated("a string literal"))?;
    Ok((Token::Text(&rest[..length]), length))
}

fn name(rest: &str, quote: char) -> Result<(Token<'_>, usize), Unterminated> {
    let length = quoted(rest, quote, false).ok_or(Unterminated("a quoted name"))?;
    Ok((Token::Quoted(&rest[..length]), length))
}

/// The length of what begins with `quote`, doubled quotes inside it included; with `escapes` a backslash guards the next
/// character.
fn quoted(rest: &str, quote: char, escapes: bool) -> Option<usize> {
    let mut characters = rest.char_indices().skip(1).peekable();
    while let Some((at, c)) = characters.next() {
        if c == '\\' && escapes {
            characters.next();
        } else if c == quote {
            match characters.peek() {
                Some((_, doubled)) if *doubled == quote => drop(characters.next()),
                _ => return Some(at + 1),
            }
        }
    }
    None
}

/// A dollar quote, or a numbered placeholder, or the character alone.
fn dollar(rest: &str) -> Result<(Token<'_>, usize), Unterminated> {
    let after = &rest[1..];
    if after.starts_with(|c: char| c.is_ascii_digit()) {
        let length = 1 + after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        return Ok((Token::Placeholder(&rest[..length]), length));
    }
    let tag = if after.starts_with(starts_name) { name_length(after) } else { 0 };
    if !after[tag..].starts_with('$') {
        return Ok((Token::Symbol(&rest[..1]), 1));
    }
    let opening = &rest[..tag + 2];
    let end = rest[opening.len()..].find(opening).ok_or(Unterminated("a dollar quote"))?;
    let length = opening.len() + end + opening.len();
    Ok((Token::Text(&rest[..length]), length))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parameters(sql: &str, dialect: Dialect) -> Vec<&str> {
        let tokens = tokens(sql, dialect).unwrap();
        tokens.into_iter().filter_map(|token| if let Token::Parameter(name) = token { Some(name) } else { None }).collect()
    }

    #[test]
    fn parameters_are_found_and_what_only_looks_like_one_is_not() {
        for (sql, dialect, expected) in [
            ("WHERE id = :orderId AND s<>:reason", Dialect::Sqlite, vec!["orderId", "reason"]),
            ("WHERE id=:a::bigint AND b::text = :b", Dialect::Postgres, vec!["a", "b"]),
            ("SELECT ':no', 'it''s :no', :yes", Dialect::Postgres, vec!["yes"]),
            (r"SELECT 'it\':no', :yes", Dialect::MySql, vec!["yes"]),
            (r"SELECT 'C:\', :yes, '\'", Dialect::Postgres, vec!["yes"]),
            (r"SELECT E'it\':no', :yes", Dialect::Postgres, vec!["yes"]),
            (r#"SELECT ":no", "a"":no", :yes"#, Dialect::Sqlite, vec!["yes"]),
            (r#"SELECT "say \":no", :yes"#, Dialect::MySql, vec!["yes"]),
            ("SELECT `:no`, :yes", Dialect::MySql, vec!["yes"]),
            ("SELECT [a :no], :yes", Dialect::Sqlite, vec!["yes"]),
            ("SELECT a[1:2], b[:low], :yes", Dialect::Postgres, vec!["low", "yes"]),
            ("SELECT 1 -- :no\n, :yes", Dialect::Postgres, vec!["yes"]),
            ("SELECT 5--:yes\n", Dialect::MySql, vec!["yes"]),
            ("SELECT 5 # :no\n, :yes", Dialect::MySql, vec!["yes"]),
            ("SELECT 5 # :yes", Dialect::Postgres, vec!["yes"]),
            ("SELECT /* :no /* :no */ :no */ :yes", Dialect::Postgres, vec!["yes"]),
            ("SELECT /* :no /* :no */ :yes", Dialect::MySql, vec!["yes"]),
            ("SELECT $$ :no ' $$, $tag$ :no $$ :no $tag$, :yes", Dialect::Postgres, vec!["yes"]),
            ("SET @x := :yes", Dialect::MySql, vec!["yes"]),
            ("SELECT ':é', :größe", Dialect::Postgres, vec!["größe"]),
        ] {
            assert_eq!(parameters(sql, dialect), expected, "{sql}");
        }
    }

    #[test]
    fn what_was_begun_and_not_ended_is_told() {
        for (sql, what) in [
            ("SELECT 'a", "a string literal"),
            ("SELECT 'a''", "a string literal"),
            ("SELECT \"a", "a quoted name"),
            ("SELECT /* a", "a comment"),
            ("SELECT /* a /* b */", "a comment"),
            ("SELECT $a$ b $$", "a dollar quote"),
        ] {
            assert_eq!(tokens(sql, Dialect::Postgres), Err(Unterminated(what)), "{sql}");
        }
    }

    proptest! {
        #[test]
        fn the_pieces_put_together_are_the_statement(sql in "[a:'\"`$é/*\\-# \n?\\[\\]\\\\0]{0,40}") {
            for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::MySql] {
                if let Ok(tokens) = tokens(&sql, dialect) {
                    let whole: String = tokens
                        .iter()
                        .map(|token| match token { Token::Parameter(name) => format!(":{name}"), other => other.text().to_owned() })
                        .collect();
                    prop_assert_eq!(&whole, &sql);
                }
            }
        }
    }
}
