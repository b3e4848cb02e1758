//! Tokens of the API.

use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};

use super::commit::Transaction;
use super::error::{Fault, unreadable};
use super::transfer;
use super::writer::Work;
use crate::store::Token;
use crate::time::Timestamp;

/// Far above what people hand out; a listing stays one page.
const TOKENS_MAX: i64 = 10_000;

/// Stores a token; `false` when its name is taken.
pub(super) struct Create(pub(super) Token);

impl Work for Create {
    type Value = bool;

    async fn apply(&self, within: &mut Transaction<'_>) -> Result<bool, Fault> {
        transfer::stay(within).await?;
        Ok(insert(within.connection, &self.0).await?)
    }
}

/// Stores a token; `false` when its name is taken.
pub(super) async fn insert(connection: &mut PgConnection, token: &Token) -> Result<bool, sqlx::Error> {
    let done = sqlx::query(
        "INSERT INTO overdue.tokens (name, secret_hash, scopes, types, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (name) DO NOTHING",
    )
    .bind(&token.name)
    .bind(&token.secret_hash[..])
    .bind(&token.scopes)
    .bind(&token.types)
    .bind(token.created_at.as_micros())
    .bind(token.expires_at.map(Timestamp::as_micros))
    .execute(connection)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Removes the token of this name; `false` when there is none.
pub(super) struct Revoke(pub(super) String);

impl Work for Revoke {
    type Value = bool;

    async fn apply(&self, within: &mut Transaction<'_>) -> Result<bool, Fault> {
        transfer::stay(within).await?;
        let revoked = sqlx::query("DELETE FROM overdue.tokens WHERE name = $1").bind(&self.0);
        let done = revoked.execute(&mut *within.connection).await?;
        Ok(done.rows_affected() == 1)
    }
}

pub(super) async fn find(connection: &mut PgConnection, secret_hash: &[u8; 32]) -> Result<Option<Token>, sqlx::Error> {
    sqlx::query("SELECT name, secret_hash, scopes, types, created_at, expires_at FROM overdue.tokens WHERE secret_hash = $1")
        .bind(&secret_hash[..])
        .fetch_optional(connection)
        .await?
        .map(|row| token_of(&row))
        .transpose()
}

pub(super) async fn all(connection: &mut PgConnection) -> Result<Vec<Token>, sqlx::Error> {
    sqlx::query("SELECT name, secret_hash, scopes, types, created_at, expires_at FROM overdue.tokens ORDER BY name LIMIT $1")
        .bind(TOKENS_MAX)
        .fetch_all(connection)
        .await?
        .iter()
        .map(token_of)
        .collect()
}

fn token_of(row: &PgRow) -> Result<Token, sqlx::Error> {
    let secret_hash: &[u8] = row.try_get(1)?;
    Ok(Token {
        name: row.try_get(0)?,
        secret_hash: secret_hash.try_into().map_err(|_| unreadable("secret_hash", "a value of another length"))?,
        scopes: row.try_get(2)?,
        types: row.try_get(3)?,
        created_at: Timestamp::from_micros(row.try_get(4)?),
        expires_at: row.try_get::<Option<i64>, _>(5)?.map(Timestamp::from_micros),
    })
}
