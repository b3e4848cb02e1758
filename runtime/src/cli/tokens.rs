//! `token create`, `list`, `revoke`: at a server, or in a store that no server holds.

use std::process::ExitCode;
use std::time::Duration;

use reqwest::Method;
use serde::Serialize;

use super::args::{Connection, TokenArgs, TokenTask};
use super::config::EngineSection;
use super::program::Failure;
use super::remote::{Remote, body, segment};
use super::store;
use crate::client::{NewToken, create_token};
use crate::engine::Environment;
use crate::time::Timestamp;

pub(super) async fn run(connection: &Connection, args: TokenArgs) -> Result<ExitCode, Failure> {
    match (args.task, args.store) {
        (TokenTask::Create { name, scopes, types, expires }, store) => {
            let new = NewToken { name, scopes, types, expires_at: expires.map(from_now) };
            match store {
                Some(url) => create_in_store(connection, &url, new).await,
                None => create_at_server(connection, new).await,
            }
        }
        (_, Some(_)) => Err("only create works on a store; list and revoke ask a server".into()),
        (TokenTask::List, None) => list(connection).await,
        (TokenTask::Revoke { name }, None) => {
            Remote::new(connection)?.ask(Method::DELETE, &format!("/v1/tokens/{}", segment(&name)), None).await?;
            anstream::println!("revoked");
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn from_now(expires: Duration) -> Timestamp {
    Environment::system().clock.now().saturating_add(expires)
}

async fn create_at_server(connection: &Connection, new: NewToken) -> Result<ExitCode, Failure> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Create {
        name: String,
        scopes: Vec<String>,
        types: Vec<String>,
        expires_at: Option<Timestamp>,
    }
    let NewToken { name, scopes, types, expires_at } = new;
    let create = body(&Create { name, scopes, types, expires_at })?;
    let answer = Remote::new(connection)?.ask(Method::POST, "/v1/tokens", Some(&create)).await?;
    let value = answer.value()?;
    print_secret(connection, value["name"].as_str().unwrap_or_default(), value["secret"].as_str().unwrap_or_default());
    Ok(ExitCode::SUCCESS)
}

async fn create_in_store(connection: &Connection, url: &str, new: NewToken) -> Result<ExitCode, Failure> {
    let store = store::open(url, EngineSection::default().shards).await?;
    let name = new.name.clone();
    let created = create_token(store.as_ref(), &Environment::system(), new).await;
    store.close().await;
    print_secret(connection, &name, &created?);
    Ok(ExitCode::SUCCESS)
}

fn print_secret(connection: &Connection, name: &str, secret: &str) {
    if connection.json {
        anstream::println!("{}", serde_json::json!({ "name": name, "secret": secret }));
    } else {
        anstream::println!("{secret}");
        anstream::eprintln!("This is the secret of token {name}. It is shown only now; send it as Authorization: Bearer …");
    }
}

async fn list(connection: &Connection) -> Result<ExitCode, Failure> {
    let answer = Remote::new(connection)?.ask(Method::GET, "/v1/tokens", None).await?;
    if connection.json {
        anstream::println!("{}", answer.body);
        return Ok(ExitCode::SUCCESS);
    }
    let value = answer.value()?;
    for token in value["tokens"].as_array().into_iter().flatten() {
        let text = |key: &str| token[key].as_str().unwrap_or_default();
        let types = if text("types").is_empty() { "all types" } else { text("types") };
        let expires =
            if text("expiresAt").is_empty() { "never expires".to_owned() } else { format!("until {}", text("expiresAt")) };
        anstream::println!("{}  {}  {types}  {expires}", text("name"), text("scopes"));
    }
    Ok(ExitCode::SUCCESS)
}
