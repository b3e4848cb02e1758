//! Making tokens.

use sha2::{Digest, Sha256};

use super::{Client, ClientError};
use crate::engine::Environment;
use crate::http::Scope;
use crate::id::check_id;
use crate::payload::InvalidField;
use crate::store::{Store, Token};
use crate::time::Timestamp;

/// A token to be made.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Its name: who acts.
    pub name: String,
    /// Any of start, signal, read, operate, admin.
    pub scopes: Vec<String>,
    /// The workflow types that it may touch; all, if empty.
    pub types: Vec<String>,
    /// From when on it is refused.
    pub expires_at: Option<Timestamp>,
}

impl Client {
    /// Makes a token and gives its secret, which is stored nowhere.
    ///
    /// # Errors
    /// [`ClientError::Conflict`] when the name is taken.
    pub async fn create_token(&self, new: NewToken) -> Result<String, ClientError> {
        create_token(self.engine().store().as_ref(), self.engine().environment(), new).await
    }
}

/// Makes a token in a store, as the first one of a server that is not running yet.
///
/// # Errors
/// [`ClientError::Conflict`] when the name is taken.
pub async fn create_token(store: &dyn Store, environment: &Environment, new: NewToken) -> Result<String, ClientError> {
    let invalid = |field: &str, message: String| ClientError::Invalid(vec![InvalidField::new(field, message)]);
    check_id(&new.name).map_err(|error| invalid("name", error.to_string()))?;
    let known: Vec<&str> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
    if new.scopes.is_empty() || !new.scopes.iter().all(|scope| known.contains(&scope.as_str())) {
        return Err(invalid("scopes", format!("one or more of {}", known.join(", "))));
    }
    if new.types.iter().any(|name| name.contains(',') || check_id(name).is_err()) {
        return Err(invalid("types", "names of workflow types".into()));
    }
    let random: Vec<u8> = (0..4).flat_map(|_| environment.random.next_u64().to_be_bytes()).collect();
    let secret = format!("ovd_{}", hex::encode(random));
    let token = Token {
        name: new.name.clone(),
        secret_hash: Sha256::digest(secret.as_bytes()).into(),
        scopes: new.scopes.join(","),
        types: new.types.join(","),
        created_at: environment.clock.now(),
        expires_at: new.expires_at,
    };
    if store.create_token(&token).await? {
        Ok(secret)
    } else {
        Err(ClientError::conflict(format!("there is a token {:?} already; revoke it first", new.name), None))
    }
}
