//! Tokens of the API.

use super::Specification;
use super::fixtures::at;
use crate::store::Token;

fn token(name: &str, byte: u8) -> Token {
    Token {
        name: name.into(),
        secret_hash: [byte; 32],
        scopes: "start,signal".into(),
        types: "order-timeout".into(),
        created_at: at(0),
        expires_at: byte.is_multiple_of(2).then(|| at(100)),
    }
}

pub(super) const SPECIFICATIONS: &[Specification] = &[
    ("a token is found by the hash of its secret, with all that it says", |store| {
        Box::pin(async move {
            for (name, byte) in [("shop", 1), ("operator", 2)] {
                assert!(store.create_token(&token(name, byte)).await.unwrap());
            }
            assert_eq!(store.find_token(&[1; 32]).await.unwrap(), Some(token("shop", 1)));
            assert_eq!(store.find_token(&[2; 32]).await.unwrap(), Some(token("operator", 2)));
            assert_eq!(store.find_token(&[3; 32]).await.unwrap(), None);
            assert_eq!(store.tokens().await.unwrap(), [token("operator", 2), token("shop", 1)], "by name");
        })
    }),
    ("a taken name is refused and keeps its token", |store| {
        Box::pin(async move {
            assert!(store.create_token(&token("shop", 1)).await.unwrap());
            assert!(!store.create_token(&token("shop", 2)).await.unwrap());
            assert_eq!(store.tokens().await.unwrap(), [token("shop", 1)]);
        })
    }),
    ("a revoked token is gone, and its name is free", |store| {
        Box::pin(async move {
            assert!(store.create_token(&token("shop", 1)).await.unwrap());
            assert!(store.revoke_token("shop").await.unwrap());
            assert!(!store.revoke_token("shop").await.unwrap());
            assert_eq!(store.find_token(&[1; 32]).await.unwrap(), None);
            assert!(store.create_token(&token("shop", 2)).await.unwrap());
        })
    }),
];
