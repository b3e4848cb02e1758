//! Tokens of the API.

use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::error::unreadable;
use crate::store::Token;
use crate::time::Timestamp;

/// Far above what people hand out; a listing stays one page.
const TOKENS_MAX: i64 = 10_000;

/// Stores a token; `false` when its name is taken.
pub(super) async fn create(connection: &mut SqliteConnection, token: &Token) -> Result<bool, sqlx::Error> {
    sqlx::query(
        "INSERT INTO tokens (name, secret_hash, scopes, types, created_at, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (name) DO NOTHING",
    )
    .bind(&token.name)
    .bind(token.secret_hash.to_vec())
    .bind(&token.scopes)
    .bind(&token.types)
    .bind(token.created_at.as_micros())
    .bind(token.expires_at.map(Timestamp::as_micros))
    .execute(connection)
    .await
    .map(|done| done.rows_affected() == 1)
}

/// Removes a token; `false` when there is none of that name.
pub(super) async fn revoke(connection: &mut SqliteConnection, name: &str) -> Result<bool, sqlx::Error> {
    sqlx::query("DELETE FROM tokens WHERE name = ?1").bind(name).execute(connection).await.map(|done| done.rows_affected() == 1)
}

pub(super) async fn find(connection: &mut SqliteConnection, secret_hash: &[u8; 32]) -> Result<Option<Token>, sqlx::Error> {
    sqlx::query("SELECT name, secret_hash, scopes, types, created_at, expires_at FROM tokens WHERE secret_hash = ?1")
        .bind(secret_hash.to_vec())
        .fetch_optional(connection)
        .await?
        .map(|row| token_of(&row))
        .transpose()
}

pub(super) async fn all(connection: &mut SqliteConnection) -> Result<Vec<Token>, sqlx::Error> {
    sqlx::query("SELECT name, secret_hash, scopes, types, created_at, expires_at FROM tokens ORDER BY name LIMIT ?1")
        .bind(TOKENS_MAX)
        .fetch_all(connection)
        .await?
        .iter()
        .map(token_of)
        .collect()
}

fn token_of(row: &SqliteRow) -> Result<Token, sqlx::Error> {
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
