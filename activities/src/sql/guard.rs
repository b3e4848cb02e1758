//! Whether an update is conditional: the status must be asked for in its WHERE, beside the order's id. Without that guard a
//! paid order would be cancelled, or a cancelled one paid, and nobody would judge who won.

use super::dialect::Dialect;
use super::token::{Token, tokens};

/// Checks that `sql` is an UPDATE whose WHERE holds `column` and the parameter `id`, and nothing that could go around them;
/// the message says what to write.
pub(crate) fn check(sql: &str, dialect: Dialect, column: &str, id: &str) -> Result<(), String> {
    let Ok(tokens) = tokens(sql, dialect) else { return Err("cannot be read".to_owned()) };
    let tokens: Vec<Token<'_>> = tokens.into_iter().filter(|token| !matches!(token, Token::Blank(_))).collect();
    if !tokens.first().is_some_and(|first| first.is_word("UPDATE")) {
        return Err("must be an UPDATE, and begin with that word".to_owned());
    }
    let outer = outer(&tokens);
    let Some(begin) = outer.iter().find(|(token, _)| token.is_word("WHERE")).map(|(_, at)| *at) else {
        return Err(format!("has no WHERE: ask there for {column} = '…' and the order's id (:{id})"));
    };
    let end = outer.iter().find(|(token, at)| *at > begin && token.is_word("RETURNING")).map_or(tokens.len(), |(_, at)| *at);
    let condition = &tokens[begin..end];
    if !condition.contains(&Token::Parameter(id)) {
        return Err(format!("does not use :{id} in its WHERE: it would change other orders"));
    }
    if !condition.iter().any(|token| token.names(column)) {
        let why = "whoever comes second must change nothing";
        return Err(format!(
            "has no guard on {column} in its WHERE: add AND {column} = '…' with the status of an unpaid order, because {why}"
        ));
    }
    if outer.iter().any(|(token, at)| (begin..end).contains(at) && (token.is_word("OR") || token.text() == "||")) {
        return Err("has an OR beside the guard in its WHERE, which goes around it: put the OR into parentheses".to_owned());
    }
    Ok(())
}

/// What stands outside of parentheses, with its place.
fn outer<'a>(tokens: &[Token<'a>]) -> Vec<(Token<'a>, usize)> {
    let mut depth = 0u32;
    let mut outer = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::Symbol("(") => depth += 1,
            Token::Symbol(")") => depth = depth.saturating_sub(1),
            _ if depth == 0 => outer.push((*token, at)),
            _ => {}
        }
    }
    outer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(sql: &str) -> Result<(), String> {
        check(sql, Dialect::Postgres, "status", "orderId")
    }

    #[test]
    fn a_conditional_update_passes() {
        for sql in [
            "UPDATE orders SET status = 'CANCELLED' WHERE id = :orderId AND status = 'UNPAID'",
            "update orders o set status = 'C' where o.\"status\" IN ('A', 'B') and (o.id) = (:orderId) RETURNING id",
            "/* who won */ UPDATE orders SET status = 'C' WHERE id = :orderId AND status = 'U' AND (:reason <> 'TIMEOUT' OR due <= now())",
        ] {
            assert_eq!(checked(sql), Ok(()), "{sql}");
        }
    }

    #[test]
    fn an_update_without_its_guard_is_refused_with_what_to_add() {
        for (sql, message) in [
            ("UPDATE orders SET status = 'C' WHERE id = :orderId", "has no guard on status in its WHERE: add AND status = '…'"),
            ("UPDATE orders SET status = 'C' WHERE id = :orderId AND note = 'status'", "has no guard on status"),
            ("UPDATE orders SET status = 'C' WHERE id = :orderId /* AND status = 'U' */", "has no guard on status"),
            ("UPDATE orders SET status = 'C' WHERE id = :orderId RETURNING status", "has no guard on status"),
            ("UPDATE orders SET status = 'C', x = (SELECT 1 WHERE status = :orderId)", "has no WHERE"),
            ("UPDATE orders SET x = :orderId WHERE status = 'U'", "does not use :orderId in its WHERE"),
            ("UPDATE orders SET status = 'C' WHERE id = :orderId OR status = 'U'", "has an OR beside the guard"),
            ("DELETE FROM orders WHERE id = :orderId AND status = 'U'", "must be an UPDATE"),
            ("WITH x AS (SELECT 1) UPDATE orders SET status = 'C' WHERE id = :orderId AND status = 'U'", "must be an UPDATE"),
        ] {
            let error = checked(sql).unwrap_err();
            assert!(error.starts_with(message), "{sql}: {error}");
        }
    }
}
