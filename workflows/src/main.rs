//! The `overdue` program: the shop's workflows and activities, put together.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Command, FromArgMatches};
use overdue_activities::{DownstreamsConfig, WebhooksConfig};
use overdue_runtime::cli::Program;
use overdue_workflows::{Settings, SettingsSection, demo, register};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    overdue_activities::init_crypto();
    let about = "Cancels unpaid orders at their deadline, gives everything back, and refunds payments that win late";
    let demo = demo::Options::augment_args(
        Command::new("demo").about("Play a thousand orders against a misbehaving shop and audit the result"),
    );
    Program::new("overdue", env!("CARGO_PKG_VERSION"), about)
        .registering(&["downstreams", "workflows", "webhooks"], |config, environment, code| {
            let section: Option<SettingsSection> = config.table("workflows", &["order-timeout", "order_timeout"])?;
            register(&mut code.workflows, section.map_or_else(Settings::default, SettingsSection::settings));
            let downstreams: DownstreamsConfig = config.section("downstreams")?.ok_or(
                "say where the shop's services are: [downstreams.orders] url = \"…\", and likewise stock, coupons and payments",
            )?;
            let downstreams = overdue_activities::register(&mut code.activities, &downstreams, environment)?;
            code.breakers = Some(downstreams.breakers.clone());
            code.start_checks.push(Arc::new(downstreams));
            let webhooks: WebhooksConfig = config.section("webhooks")?.unwrap_or_default();
            overdue_activities::register_webhooks(&mut code.sinks, &webhooks, environment)?;
            Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
        })
        .command(demo, |matches| Box::pin(async move { Ok(demo::run(demo::Options::from_arg_matches(&matches)?).await?) }))
        .run()
        .await
}
