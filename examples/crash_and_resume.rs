//! Crash and resume: a process dies in the middle of giving an order back, another one goes on where it stood.
//!
//! The example runs itself as a child, and the child aborts as soon as the order is cancelled and the deadline's work is
//! under way; the parent then opens the same store. `cargo run --example crash_and_resume` prints:
//!
//! ```text
//! child: order 4711 placed, payable for half a second
//! child: the deadline has passed; aborting
//! parent: the child ended by a signal
//! parent: order 4711: cancelled (TIMEOUT), refunds: none
//! parent: effects at the shop: 1 cancel, 1 release, 1 return, 1 close
//! ```

#[path = "support/shop.rs"]
mod shop;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use overdue_workflows::order_timeout::Phase;
use overdue_workflows::sandbox::Service;
use shop::{World, until};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    if let Some(folder) = std::env::args().nth(1) {
        return child(Path::new(&folder)).await;
    }
    let folder = tempfile::tempdir()?;
    let status = tokio::process::Command::new(std::env::current_exe()?).arg(folder.path()).status().await?;
    println!("parent: the child ended {}", if status.signal().is_some() { "by a signal" } else { "by itself" });

    let world = World::open(folder.path()).await?;
    let order = until(&world.client, "4711", shop::OrderView::is_closed).await?;
    println!("parent: {}", order.summary());
    let count = |service| world.shop.effects(service).map(|effects| effects.iter().filter(|effect| effect.key.is_some()).count());
    println!(
        "parent: effects at the shop: {} cancel, {} release, {} return, {} close",
        count(Service::Orders)?,
        count(Service::Stock)?,
        count(Service::Coupons)?,
        count(Service::Payments)?
    );
    world.close().await;
    Ok(())
}

async fn child(folder: &Path) -> anyhow::Result<()> {
    let world = World::open(folder).await?;
    world.place_order("4711", Duration::from_millis(500), "PT0S").await?;
    println!("child: order 4711 placed, payable for half a second");
    until(&world.client, "4711", |order| !order.is_in(Phase::WaitingForPayment)).await?;
    println!("child: the deadline has passed; aborting");
    std::process::abort()
}
