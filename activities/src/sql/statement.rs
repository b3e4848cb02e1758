//! A configured statement, compiled: its named parameters become the driver's placeholders. Values are bound, never written
//! into the text.

use std::collections::BTreeMap;

use super::dialect::Dialect;
use super::token::{Token, tokens};

/// What stands for a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Every single value is bound as text: ids and amounts as they are spelled, times in UTC.
    Text(String),
    Null,
    /// Of parameters that are lists: an array on PostgreSQL, else as many placeholders.
    List(Vec<String>),
}

impl Value {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

/// The values of one execution, by the names of their parameters.
pub(crate) type Values = BTreeMap<&'static str, Value>;

/// A statement with its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    dialect: Dialect,
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug)]
enum Piece {
    Sql(String),
    Parameter(&'static str),
}

/// Compiles a statement; the message says what to write instead.
pub(crate) fn compile(sql: &str, dialect: Dialect, needed: &[&'static str], known: &[&'static str]) -> Result<Statement, String> {
    let tokens = tokens(sql, dialect).map_err(|unterminated| format!("holds {} that does not end", unterminated.0))?;
    let last = tokens.iter().rposition(|token| !matches!(token, Token::Blank(_) | Token::Symbol(";")));
    let tokens = &tokens[..last.map_or(0, |last| last + 1)];
    if tokens.is_empty() {
        return Err("is empty".to_owned());
    }
    let mut pieces = Vec::new();
    for token in tokens {
        match *token {
            Token::Parameter(name) => match needed.iter().chain(known).find(|known| **known == name) {
                Some(name) => pieces.push(Piece::Parameter(name)),
                None => {
                    let names = needed.iter().chain(known).map(|name| format!(":{name}")).collect::<Vec<_>>().join(", ");
                    return Err(format!("names :{name}, which there is not: it may use {names}"));
                }
            },
            Token::Placeholder(written) => {
                return Err(format!("holds the placeholder {written}: write named parameters, such as :{}", needed[0]));
            }
            Token::Symbol(";") => return Err("holds more than one statement: write one".to_owned()),
            other => pieces.push(Piece::Sql(other.text().to_owned())),
        }
    }
    let uses = |name: &str| pieces.iter().any(|piece| matches!(piece, Piece::Parameter(used) if *used == name));
    if let Some(missing) = needed.iter().find(|name| !uses(name)) {
        return Err(format!("does not use :{missing}, without which it cannot do its work"));
    }
    Ok(Statement { dialect, pieces })
}

impl Statement {
    /// The statement as the driver takes it, and what is to be bound, in order.
    pub(crate) fn render(&self, values: &Values) -> (String, Vec<Value>) {
        let (mut sql, mut bound) = (String::new(), Vec::new());
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        for piece in &self.pieces {
            let name = match piece {
                Piece::Sql(text) => {
                    sql.push_str(text);
                    continue;
                }
                Piece::Parameter(name) => *name,
            };
            let value = values.get(name).cloned().unwrap_or(Value::Null);
            match (self.dialect, value) {
                (Dialect::Postgres, value) => {
                    let number = *numbers.entry(name).or_insert_with(|| {
                        bound.push(value);
                        bound.len()
                    });
                    sql.push_str(&format!("${number}"));
                }
                (_, Value::List(items)) => {
                    sql.push_str(&vec!["?"; items.len()].join(", "));
                    bound.extend(items.into_iter().map(Value::Text));
                }
                (_, value) => {
                    sql.push('?');
                    bound.push(value);
                }
            }
        }
        (sql, bound)
    }

    /// A query whose columns of these names are read as text, whatever their types are.
    pub(crate) fn render_as_text(&self, values: &Values, columns: &[impl AsRef<str>]) -> (String, Vec<Value>) {
        let (sql, bound) = self.render(values);
        let text = self.dialect.text_type();
        let columns = columns.iter().map(|column| format!("CAST(q.{} AS {text})", self.dialect.quote(column.as_ref())));
        // On lines of its own: a comment at its end must not swallow the rest.
        (format!("SELECT {} FROM (\n{sql}\n) AS q", columns.collect::<Vec<_>>().join(", ")), bound)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(sql: &str, dialect: Dialect) -> Result<Statement, String> {
        compile(sql, dialect, &["orderId"], &["reason", "orderIds"])
    }

    fn values() -> Values {
        let list = Value::List(vec!["a".into(), "b".into()]);
        Values::from([("orderId", Value::text("o-1")), ("reason", Value::text("USER")), ("orderIds", list)])
    }

    #[test]
    fn a_name_becomes_the_drivers_own_placeholder_and_its_value_is_never_in_the_text() {
        let sql = "UPDATE o SET r = :reason WHERE id = :orderId AND r <> :reason; -- done";
        let o = Value::text("o-1");
        let user = Value::text("USER");
        for (dialect, rendered, bound) in [
            (Dialect::Postgres, "UPDATE o SET r = $1 WHERE id = $2 AND r <> $1", vec![user.clone(), o.clone()]),
            (Dialect::Sqlite, "UPDATE o SET r = ? WHERE id = ? AND r <> ?", vec![user.clone(), o.clone(), user.clone()]),
            (Dialect::MySql, "UPDATE o SET r = ? WHERE id = ? AND r <> ?", vec![user.clone(), o.clone(), user]),
        ] {
            assert_eq!(compiled(sql, dialect).unwrap().render(&values()), (rendered.to_owned(), bound));
        }
    }

    #[test]
    fn a_list_is_an_array_on_postgresql_and_as_many_placeholders_elsewhere() {
        let list = || Value::List(vec!["a".into(), "b".into()]);
        let sql = "UPDATE o SET x = :orderId WHERE id = ANY(:orderIds)";
        let rendered = compiled(sql, Dialect::Postgres).unwrap().render(&values());
        assert_eq!(rendered, ("UPDATE o SET x = $1 WHERE id = ANY($2)".to_owned(), vec![Value::text("o-1"), list()]));
        let rendered = compiled("SELECT :orderId WHERE id IN (:orderIds)", Dialect::MySql).unwrap().render(&values());
        let bound = ["o-1", "a", "b"].map(Value::text).to_vec();
        assert_eq!(rendered, ("SELECT ? WHERE id IN (?, ?)".to_owned(), bound));
    }

    #[test]
    fn an_unknown_name_and_a_missing_one_are_refused_by_name() {
        for (sql, message) in [
            ("UPDATE o SET x = :order_id", "names :order_id, which there is not: it may use :orderId, :reason, :orderIds"),
            ("UPDATE o SET x = :reason", "does not use :orderId, without which it cannot do its work"),
            ("UPDATE o SET x = ':orderId'", "does not use :orderId, without which it cannot do its work"),
            ("UPDATE o SET x = ? WHERE id = :orderId", "holds the placeholder ?: write named parameters, such as :orderId"),
            ("UPDATE o SET x = :orderId; DROP TABLE o", "holds more than one statement: write one"),
            ("UPDATE o SET x = 'a WHERE id = :orderId", "holds a string literal that does not end"),
            (" ; -- nothing", "is empty"),
        ] {
            assert_eq!(compiled(sql, Dialect::Sqlite).unwrap_err(), message, "{sql}");
        }
        let error = compiled("UPDATE o SET x = $1 WHERE id = :orderId", Dialect::Postgres).unwrap_err();
        assert_eq!(error, "holds the placeholder $1: write named parameters, such as :orderId");
    }
}
