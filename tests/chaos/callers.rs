//! The callers: an order service that starts workflows, buyers who pay, and a user who changes his mind. Each of them asks again
//! under the same id until there is an answer.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use overdue_workflows::demo::Acknowledged;
use overdue_workflows::sandbox::{Capture, NewOrder};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use tokio::time::sleep;

use crate::log::Heard;
use crate::plan::{Act, Deed, PlannedOrder, Starts};
use crate::world::World;

/// An operation that has no answer by then has been lost: every fault is over long before.
const GIVE_UP: Duration = Duration::from_secs(120);
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_millis(800);

/// Plays one order of a round that began at this moment.
pub(crate) async fn play(world: &World, order: &PlannedOrder, begun: Instant) {
    sleep(order.placed_after.saturating_sub(begun.elapsed())).await;
    let deadline = Timestamp::now() + order.time_to_pay;
    let due = Instant::now() + order.time_to_pay;
    let placed = NewOrder::new(&order.id, deadline).with_everything();
    world.shop.place_order(&placed).await.unwrap();
    for (number, act) in order.acts.iter().enumerate().filter(|(_, act)| act.at_ms == i64::MIN) {
        perform(world, order, number, act).await;
    }
    let input = json!({
        "orderId": order.id, "payDeadline": format!("{deadline:.3}"), "amount": "10.00", "currency": "USD",
        "paymentId": format!("{}-pay", order.id), "stockToken": format!("{}-stock", order.id),
        "couponId": format!("{}-coupon", order.id),
    });
    let acts = order.acts.iter().enumerate().filter(|(_, act)| act.at_ms != i64::MIN).map(|(number, act)| async move {
        let offset = Duration::from_millis(act.at_ms.unsigned_abs());
        let at = if act.at_ms < 0 { due.checked_sub(offset).unwrap_or(due) } else { due + offset };
        sleep(at.saturating_duration_since(Instant::now())).await;
        perform(world, order, number, act).await;
    });
    // Side by side: a start that waits for an answer must not hold up a payment.
    tokio::join!(start(world, order, &input), futures::future::join_all(acts));
}

async fn start(world: &World, order: &PlannedOrder, input: &Value) {
    let over_http = || async {
        let path = format!("/v1/workflows/order-timeout/{}", order.id);
        if let Some(answer) = ask(world, "start", &order.id, &path, &json!({ "input": input })).await {
            world.log.started(&order.id, answer["runId"].as_str().unwrap_or("none"));
        }
    };
    match order.starts {
        Starts::Once => over_http().await,
        Starts::Twice => drop(tokio::join!(over_http(), over_http())),
        Starts::InSql => {
            let sql = format!("SELECT overdue.start_workflow('order-timeout', '{}', '{input}')", order.id);
            in_sql(world, "start in SQL", &order.id, &sql).await;
        }
    }
}

async fn perform(world: &World, order: &PlannedOrder, number: usize, act: &Act) {
    match act.deed {
        Deed::Cancel => {
            let payload = json!({ "reason": "changed my mind" });
            signal(world, order, "cancel-order", &format!("{}-cancel-{number}", order.id), &payload, false).await;
        }
        Deed::Pay { twice, in_sql } => {
            let payment = format!("{}-pay", order.id);
            let capture = Capture::now(&format!("{}-tx{number}", order.id), "10.00", "USD");
            world.shop.capture(&payment, &capture).await.unwrap();
            let payload = json!({
                "transactionId": capture.transaction_id, "amount": "10.00", "currency": "USD",
                "paidAt": format!("{:.3}", capture.paid_at), "paymentId": payment,
            });
            let tell = || signal(world, order, "payment-succeeded", &capture.transaction_id, &payload, in_sql);
            if twice {
                tokio::join!(tell(), tell());
            } else {
                tell().await;
            }
        }
    }
}

async fn signal(world: &World, order: &PlannedOrder, name: &str, signal_id: &str, payload: &Value, over_sql: bool) {
    let outcome = if over_sql {
        let order = &order.id;
        let sql = format!("SELECT overdue.signal_workflow('order-timeout', '{order}', '{name}', '{payload}', '{signal_id}')");
        in_sql(world, &format!("{name} in SQL"), signal_id, &sql).await.then(|| "buffered".to_owned())
    } else {
        let path = format!("/v1/workflows/order-timeout/{}/signals/{name}", order.id);
        let body = json!({ "signalId": signal_id, "payload": payload });
        let answer = ask(world, name, signal_id, &path, &body).await;
        answer.map(|answer| answer["outcome"].as_str().unwrap_or("none").to_owned())
    };
    if let Some(outcome) = outcome {
        let (order_id, name) = (order.id.clone(), name.to_owned());
        world.log.signalled(Acknowledged { order_id, name, signal_id: signal_id.to_owned(), outcome });
    }
}

/// Asks any node, again and again, until it is acknowledged. A definite refusal is a violation: what is asked is right.
pub(crate) async fn ask(world: &World, operation: &str, id: &str, path: &str, body: &Value) -> Option<Value> {
    world.log.invoked(operation, id);
    until_clear(world, operation, id, async || {
        let sent = world.http.post(format!("{}{path}", world.any_url())).json(body).send().await;
        let answered = match sent {
            Ok(response) => (response.status(), response.text().await),
            Err(error) => return (Heard::Unknown, error.to_string(), None),
        };
        match answered {
            (status, Ok(text)) if status.is_success() => (Heard::Acknowledged, text.clone(), serde_json::from_str(&text).ok()),
            (status, Ok(text)) if status.as_u16() == 429 => (Heard::Refused, text, None),
            (status, Ok(text)) if status.is_client_error() => {
                world.log.violated(format!("{operation} {id} was answered {status}: {text}"));
                (Heard::Acknowledged, text, None)
            }
            (status, text) => (Heard::Unknown, format!("{status}: {}", text.unwrap_or_default()), None),
        }
    })
    .await
}

/// Has a statement committed, again and again, until it surely was; whether it was.
async fn in_sql(world: &World, operation: &str, id: &str, sql: &str) -> bool {
    world.log.invoked(operation, id);
    let done = until_clear(world, operation, id, async || {
        let mut session = match world.session().await {
            Ok(session) => session,
            Err(error) => return (Heard::Refused, error.to_string(), None),
        };
        match sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&mut session).await {
            Ok(_) => (Heard::Acknowledged, String::new(), Some(Value::Null)),
            Err(error) => {
                let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned();
                if ["22", "23", "42", "54", "55"].iter().any(|class| code.starts_with(class)) {
                    world.log.violated(format!("{operation} {id} was refused: {error}"));
                    return (Heard::Acknowledged, error.to_string(), None);
                }
                (Heard::Unknown, error.to_string(), None)
            }
        }
    });
    done.await.is_some()
}

async fn until_clear(
    world: &World,
    operation: &str,
    id: &str,
    attempt: impl AsyncFn() -> (Heard, String, Option<Value>),
) -> Option<Value> {
    let (begun, mut pause, mut was_unknown) = (Instant::now(), PAUSE_MIN, false);
    loop {
        let (heard, text, answer) = attempt().await;
        world.log.heard(operation, id, heard, &text);
        if heard == Heard::Acknowledged {
            if was_unknown {
                world.log.resolved();
            }
            return answer;
        }
        was_unknown |= heard == Heard::Unknown;
        if begun.elapsed() > GIVE_UP {
            world.log.violated(format!("{operation} {id} has had no clear answer for {GIVE_UP:?}: {text}"));
            return None;
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
