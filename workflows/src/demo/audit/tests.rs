//! The audit is given sound data, then each kind of broken data, and must say which is which.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::drive::SentSignal;
use super::super::evidence::{Evidence, Execution};
use super::audit;
use crate::sandbox::{Call, Effect, EffectRecord, PaymentTerms, Record, RequestRecord, Service};

const DEADLINE_MS: i64 = 10_000;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap()
}

fn add(evidence: &mut Evidence, service: Service, record: Record) {
    evidence.ledgers.entry(service).or_default().push(record);
}

fn effect(evidence: &mut Evidence, service: Service, subject: &str, effect: Effect) {
    let subject = subject.to_owned();
    let record = EffectRecord { n: 1, service, subject, key: None, at: at(DEADLINE_MS), effect };
    add(evidence, service, Record::Effect(record));
}

fn request(evidence: &mut Evidence, service: Service, call: Call, subject: &str, body: Value, arrival_ms: i64) {
    let record = RequestRecord {
        n: 1,
        service,
        call,
        subject: subject.to_owned(),
        key: Some(format!("{call:?}-{subject}")),
        at: at(arrival_ms),
        body,
        digest: String::new(),
        status: 200,
        answer: Value::Null,
        fault: None,
        repeated: false,
        kept: true,
        duplicate_effect: false,
        key_reused: false,
    };
    add(evidence, service, Record::Request(record));
}

fn captured(transaction: &str) -> Effect {
    Effect::PaymentCaptured {
        transaction_id: transaction.into(),
        amount: "10.00".into(),
        currency: "USD".into(),
        paid_at: at(DEADLINE_MS),
    }
}

fn refund(evidence: &mut Evidence, transaction: &str, amount: &str) {
    let (refund_id, transaction_id) = (format!("f-{transaction}"), transaction.to_owned());
    let accepted =
        Effect::RefundAccepted { refund_id: refund_id.clone(), transaction_id, amount: amount.into(), currency: "USD".into() };
    effect(evidence, Service::Payments, "p-1", accepted);
    effect(evidence, Service::Payments, "p-1", Effect::RefundSettled { refund_id });
}

fn signal(transaction: &str) -> SentSignal {
    SentSignal {
        order_id: "o-1".into(),
        name: "payment-succeeded".into(),
        signal_id: transaction.into(),
        payload: json!({}),
        repeat: false,
        status: 200,
        outcome: Some("applied".into()),
        at: at(DEADLINE_MS),
    }
}

fn execution(events: Vec<Value>) -> Execution {
    let events = (1u64..).zip(events).map(|(number, mut event)| {
        event["number"] = json!(number);
        event
    });
    Execution {
        order_id: "o-1".into(),
        kind: "order-timeout".into(),
        id: "o-1".into(),
        run_id: "r-1".into(),
        status: "completed".into(),
        needs_attention: Vec::new(),
        events: events.collect(),
    }
}

/// An order with a reservation, a coupon and a payment, in the ledgers only.
fn placed() -> Evidence {
    let mut evidence = Evidence { orders: vec!["o-1".into()], ..Evidence::default() };
    let order = Effect::OrderPlaced {
        pay_deadline: at(DEADLINE_MS),
        amount: "10.00".into(),
        currency: "USD".into(),
        refuses_late_payment: false,
        not_ready_asks: 0,
    };
    let order_id = || "o-1".to_owned();
    effect(&mut evidence, Service::Orders, "o-1", order);
    effect(&mut evidence, Service::Stock, "cup", Effect::StockAdded { quantity: 5 });
    let reserved = Effect::StockReserved { order_id: order_id(), sku: "cup".into(), quantity: 1 };
    effect(&mut evidence, Service::Stock, "s-1", reserved);
    effect(&mut evidence, Service::Coupons, "c-1", Effect::CouponLocked { order_id: order_id() });
    let opened = Effect::PaymentOpened { order_id: order_id(), terms: PaymentTerms::default() };
    effect(&mut evidence, Service::Payments, "p-1", opened);
    evidence
}

/// Nobody paid: everything was given back.
fn cancelled() -> Evidence {
    let mut evidence = placed();
    let body = json!({ "reason": "TIMEOUT", "payDeadline": "x" });
    request(&mut evidence, Service::Orders, Call::CancelOrder, "o-1", body, DEADLINE_MS + 3);
    effect(&mut evidence, Service::Orders, "o-1", Effect::OrderCancelled { reason: "TIMEOUT".into() });
    effect(&mut evidence, Service::Stock, "s-1", Effect::StockReleased);
    effect(&mut evidence, Service::Coupons, "c-1", Effect::CouponReturned);
    effect(&mut evidence, Service::Payments, "p-1", Effect::PaymentClosed);
    evidence.executions.push(execution(vec![
        json!({ "kind": "WorkflowStarted", "input": {} }),
        json!({ "kind": "TimerFired" }),
        json!({ "kind": "ActivityScheduled", "name": "cancel-order", "idempotencyKey": "CancelOrder-o-1" }),
        json!({ "kind": "WorkflowCompleted", "result": { "decision": "cancelled", "reason": "TIMEOUT", "refunds": [] } }),
    ]));
    evidence
}

/// Paid in time by `t-1`.
fn paid() -> Evidence {
    let mut evidence = placed();
    effect(&mut evidence, Service::Payments, "p-1", captured("t-1"));
    effect(&mut evidence, Service::Orders, "o-1", Effect::OrderPaid { transaction_id: "t-1".into() });
    evidence.signals.push(signal("t-1"));
    evidence.executions.push(execution(vec![
        json!({ "kind": "WorkflowStarted", "input": {} }),
        json!({ "kind": "SignalReceived", "name": "payment-succeeded", "signalId": "t-1" }),
        json!({ "kind": "WorkflowCompleted", "result": { "decision": "paid", "reason": null, "refunds": [] } }),
    ]));
    evidence
}

/// Cancelled, then paid late by `t-1`, whose money has not gone back.
fn paid_late() -> Evidence {
    let mut evidence = cancelled();
    effect(&mut evidence, Service::Payments, "p-1", captured("t-1"));
    evidence
}

fn set_last_event(evidence: &mut Evidence, field: &str, value: Value) {
    evidence.executions[0].events.last_mut().unwrap()[field] = value;
}

fn reasons(evidence: &Evidence) -> Vec<String> {
    audit(evidence).violations.into_iter().map(|it| format!("{} {}", it.rule, it.reason)).collect()
}

#[track_caller]
fn finds(evidence: &Evidence, expected: &str) {
    let found = reasons(evidence);
    assert!(found.iter().any(|reason| reason.contains(expected)), "{expected:?} is not in {found:?}");
}

#[test]
fn sound_data_has_no_violation() {
    assert_eq!(reasons(&cancelled()), Vec::<String>::new());
    assert_eq!(reasons(&paid()), Vec::<String>::new());
    let mut refunded = paid_late();
    refund(&mut refunded, "t-1", "10");
    assert_eq!(reasons(&refunded), Vec::<String>::new());
    assert_eq!(audit(&refunded).duplicate_effects.len(), 0);
}

#[test]
fn an_order_both_paid_and_cancelled_is_found() {
    let mut evidence = paid();
    effect(&mut evidence, Service::Orders, "o-1", Effect::OrderCancelled { reason: "TIMEOUT".into() });
    finds(&evidence, "D1 the order service decided more than once");
}

#[test]
fn an_order_without_a_decision_is_found() {
    finds(&placed(), "D1 the order is neither paid nor cancelled");
}

#[test]
fn a_workflow_that_disagrees_with_the_order_service_is_found() {
    let mut evidence = paid();
    set_last_event(&mut evidence, "result", json!({ "decision": "cancelled" }));
    finds(&evidence, "D1 the order is paid, the workflow decided cancelled");
}

#[test]
fn a_workflow_that_never_completed_is_found() {
    let mut evidence = paid();
    evidence.executions[0].events.pop();
    evidence.executions[0].status = "running".into();
    finds(&evidence, "D1 the workflow has not completed");
    evidence.executions.clear();
    finds(&evidence, "D1 the order has no execution");
}

#[test]
fn a_captured_payment_that_was_forgotten_is_found() {
    finds(&paid_late(), "D2 t-1 was captured, and neither kept nor refunded");
}

#[test]
fn a_payment_held_for_review_is_no_violation_while_its_order_is_paid() {
    let mut evidence = paid();
    effect(&mut evidence, Service::Payments, "p-1", captured("t-2"));
    finds(&evidence, "D2 t-2 was captured, and neither kept nor refunded");
    evidence.executions[0].needs_attention.push("review-payment".into());
    assert_eq!(reasons(&evidence), Vec::<String>::new());
}

#[test]
fn a_refund_of_a_kept_payment_is_found() {
    let mut evidence = paid();
    refund(&mut evidence, "t-1", "10");
    finds(&evidence, "D2 t-1 pays the order and was refunded as well");
}

#[test]
fn a_second_refund_is_found_and_counted() {
    let mut evidence = paid_late();
    refund(&mut evidence, "t-1", "10");
    refund(&mut evidence, "t-1", "10");
    finds(&evidence, "D2 t-1 was refunded 2 times");
    assert_eq!(audit(&evidence).duplicate_effects.len(), 1);
}

#[test]
fn a_refund_of_another_amount_is_found() {
    let mut evidence = paid_late();
    refund(&mut evidence, "t-1", "9.99");
    finds(&evidence, "D2 t-1 was captured with 10.00 USD and refunded with 9.99 USD");
}

#[test]
fn a_refund_without_a_capture_is_found() {
    let mut evidence = cancelled();
    refund(&mut evidence, "t-9", "10");
    finds(&evidence, "D2 t-9 was refunded without having been captured");
}

#[test]
fn a_refund_that_never_became_final_is_found() {
    let mut evidence = paid_late();
    refund(&mut evidence, "t-1", "10");
    evidence.ledgers.get_mut(&Service::Payments).unwrap().pop();
    finds(&evidence, "D2 the refund of t-1 was accepted and never became final");
}

#[test]
fn an_order_paid_by_money_that_nobody_took_is_found() {
    let mut evidence = paid();
    evidence
        .ledgers
        .get_mut(&Service::Payments)
        .unwrap()
        .retain(|record| !matches!(record, Record::Effect(it) if matches!(it.effect, Effect::PaymentCaptured { .. })));
    finds(&evidence, "D2 paid by t-1, which nobody captured");
}

#[test]
fn what_was_not_given_back_is_found() {
    for (service, expected) in [
        (Service::Stock, "D3 cancelled, but the stock s-1 was not given back"),
        (Service::Coupons, "D3 cancelled, but the coupon c-1 was not given back"),
        (Service::Payments, "D3 cancelled, but the payment p-1 is still open"),
    ] {
        let mut evidence = cancelled();
        evidence.ledgers.get_mut(&service).unwrap().pop();
        finds(&evidence, expected);
    }
}

#[test]
fn what_was_given_back_twice_is_found_and_counted() {
    let mut evidence = cancelled();
    effect(&mut evidence, Service::Coupons, "c-1", Effect::CouponReturned);
    finds(&evidence, "D3 the coupon c-1 was given back 2 times");
    assert_eq!(audit(&evidence).duplicate_effects.len(), 1);
}

#[test]
fn what_was_given_back_although_the_order_is_paid_is_found() {
    let mut evidence = paid();
    effect(&mut evidence, Service::Stock, "s-1", Effect::StockReleased);
    finds(&evidence, "D3 paid, and the stock s-1 was given back all the same");
}

#[test]
fn units_that_do_not_add_up_are_found() {
    let mut evidence = cancelled();
    effect(&mut evidence, Service::Stock, "s-1", Effect::StockReleased);
    finds(&evidence, "D3 the units of cup do not add up");
}

#[test]
fn a_cancel_before_the_deadline_is_found() {
    let mut evidence = cancelled();
    let body = json!({ "reason": "TIMEOUT" });
    request(&mut evidence, Service::Orders, Call::CancelOrder, "o-1", body, DEADLINE_MS - 1);
    finds(&evidence, "D4 cancelled for a timeout 1 ms before its deadline");
}

#[test]
fn a_user_who_never_cancelled_is_found() {
    let mut evidence = cancelled();
    let body = json!({ "reason": "USER" });
    request(&mut evidence, Service::Orders, Call::CancelOrder, "o-1", body, DEADLINE_MS - 1);
    finds(&evidence, "D4 cancelled by a user who never asked for it");
}

#[test]
fn an_acknowledged_signal_that_is_in_no_history_is_found() {
    let mut evidence = paid();
    evidence.signals.push(SentSignal { signal_id: "t-2".into(), ..signal("t-2") });
    finds(&evidence, "D5 the signal payment-succeeded t-2 was acknowledged (applied) and is in no history");
}

#[test]
fn a_late_payment_may_be_the_input_of_its_own_execution_but_not_be_dropped() {
    let mut evidence = paid();
    evidence.signals.push(SentSignal { outcome: Some("late".into()), ..signal("t-2") });
    finds(&evidence, "D5 the signal payment-succeeded t-2");
    let mut late = execution(vec![
        json!({ "kind": "WorkflowStarted", "input": { "payment": { "transactionId": "t-2" } } }),
        json!({ "kind": "WorkflowCompleted", "result": {} }),
    ]);
    late.kind = "late-payment".into();
    evidence.executions.push(late);
    assert_eq!(reasons(&evidence), Vec::<String>::new());
}

#[test]
fn a_late_signal_that_changes_nothing_needs_no_event() {
    let mut evidence = paid();
    let late = SentSignal { name: "cancel-order".into(), outcome: Some("late".into()), ..signal("x-1") };
    evidence.signals.push(late);
    assert_eq!(reasons(&evidence), Vec::<String>::new());
}

#[test]
fn a_signal_that_was_kept_for_its_order_and_read_after_the_end_is_the_input_of_its_own_execution() {
    let mut evidence = paid();
    let kept = SentSignal { name: "cancel-order".into(), outcome: Some("buffered".into()), ..signal("x-1") };
    evidence.signals.push(kept);
    finds(&evidence, "D5 the signal cancel-order x-1 was acknowledged (buffered) and is in no history");
    let mut late = execution(vec![
        json!({ "kind": "WorkflowStarted", "input": { "name": "cancel-order", "signalId": "x-1", "payload": {} } }),
        json!({ "kind": "WorkflowCompleted", "result": null }),
    ]);
    late.kind = "late-signal".into();
    evidence.executions.push(late);
    assert_eq!(reasons(&evidence), Vec::<String>::new());
}

#[test]
fn a_refused_signal_is_found() {
    let mut evidence = paid();
    evidence.signals[0].status = 404;
    finds(&evidence, "D5 the signal payment-succeeded t-1 was answered 404");
}

#[test]
fn a_history_with_a_gap_or_without_its_end_is_found() {
    let mut evidence = paid();
    evidence.executions[0].events.remove(1);
    finds(&evidence, "D6 the history of order-timeout o-1 has 3 where 2 belongs");
    let mut evidence = paid();
    evidence.executions[0].events.pop();
    finds(&evidence, "D6 order-timeout o-1 is completed, its history does not end so");
}

#[test]
fn a_blocked_execution_is_found() {
    let mut evidence = paid();
    evidence.executions[0].status = "blocked".into();
    finds(&evidence, "D6 order-timeout o-1 has not ended well, its status is blocked");
}

#[test]
fn a_call_without_its_intent_in_a_history_is_found() {
    let mut evidence = cancelled();
    request(&mut evidence, Service::Stock, Call::ReleaseStock, "s-1", json!({}), DEADLINE_MS + 5);
    finds(&evidence, "D6 ReleaseStock was called with the key ReleaseStock-s-1, which no history scheduled");
}

#[test]
fn a_refund_that_only_the_result_knows_is_found() {
    let mut evidence = cancelled();
    let refunds = json!([{ "transactionId": "t-9", "status": "refunded" }]);
    set_last_event(&mut evidence, "result", json!({ "decision": "cancelled", "refunds": refunds }));
    finds(&evidence, "D6 the result claims a refund of t-9 that the channel does not know");
}

#[test]
fn refused_starts_stuck_executions_and_reused_keys_are_found() {
    let mut evidence = cancelled();
    evidence.refused_starts.push(("o-1".into(), "the start was answered 409".into()));
    evidence.unsettled.insert(("late-payment".into(), "o-1~abc".into()));
    let Some(Record::Request(request)) = evidence.ledgers.get_mut(&Service::Orders).unwrap().get_mut(1) else {
        panic!("the second line is the cancel");
    };
    request.key_reused = true;
    request.duplicate_effect = true;
    finds(&evidence, "D6 the start was answered 409");
    finds(&evidence, "D6 the execution late-payment o-1~abc was still moving");
    finds(&evidence, "D6 the key CancelOrder-o-1 was used for two different requests");
    assert_eq!(audit(&evidence).duplicate_effects.len(), 1);
}
