//! `copy`: moves a store into another one, with its workflows in flight.

use std::process::ExitCode;

use super::args::{Connection, CopyArgs};
use super::program::Failure;
use super::store;
use crate::store::{CopyError, CopyReport, Portable, copy};

pub(super) async fn run(connection: &Connection, args: &CopyArgs) -> Result<ExitCode, Failure> {
    let from = store::open_to_copy(&args.from, None).await?;
    let to = match store::open_to_copy(&args.to, Some(from.facts().shards)).await {
        Ok(to) => to,
        Err(error) => {
            from.close().await;
            return Err(error.into());
        }
    };
    let report = copied(from.as_ref(), to.as_ref()).await;
    to.close().await;
    from.close().await;
    let (report, from, to) = report?;
    print(connection, &from, &to, &report)?;
    Ok(ExitCode::SUCCESS)
}

/// What was copied, and both sides as messages name them: the URLs that were given may hold passwords.
async fn copied(from: &dyn Portable, to: &dyn Portable) -> Result<(CopyReport, String, String), CopyError> {
    let (source, target) = (from.standing().await?.name.url, to.standing().await?.name.url);
    Ok((copy(from, to).await?, source, target))
}

fn print(connection: &Connection, from: &str, to: &str, report: &CopyReport) -> Result<(), Failure> {
    if connection.json {
        anstream::println!("{}", serde_json::to_string(report)?);
        return Ok(());
    }
    let CopyReport { workflows, history_rows, events, inbox_rows, tokens, hash, .. } = report;
    anstream::println!(
        "{workflows} workflows, {events} events in {history_rows} history rows, {inbox_rows} stored signals and {tokens} tokens \
         were moved; both sides have the hash {hash}"
    );
    anstream::println!("Serve {to} from now on; {from} refuses to be served.");
    Ok(())
}
