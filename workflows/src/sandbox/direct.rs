//! Asking the services without HTTP: what a simulation does.

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::book::Book;
use super::desk::{Arrival, Desk};
use super::{Call, Fault, Service, Shop};

/// What a service says, and what its caller will feel instead.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The status.
    pub status: u16,
    /// The body.
    pub answer: Value,
    /// The fault that the request met; its effect, if it has one, is done.
    pub fault: Option<Fault>,
}

impl Shop {
    /// Asks the service and the path in `url` as an HTTP request would; `None` where no service has such a path. It is
    /// decided before this returns.
    pub fn ask(&self, url: &str, key: Option<String>, body: &[u8]) -> Option<Told> {
        let (service, path) = url.strip_prefix("http://")?.split_once('/')?;
        let service = Service::ALL.into_iter().find(|one| one.name() == service)?;
        let decoded: Vec<_> = path.split('/').map(|part| percent_decode_str(part).decode_utf8_lossy()).collect();
        let parts: Vec<&str> = decoded.iter().map(AsRef::as_ref).collect();
        let (call, subject) = match (service, parts.as_slice()) {
            (Service::Orders, ["orders", id, "cancel"]) => (Call::CancelOrder, id),
            (Service::Orders, ["orders", id, "confirm-paid"]) => (Call::ConfirmPaid, id),
            (Service::Stock, ["reservations", id, "release"]) => (Call::ReleaseStock, id),
            (Service::Coupons, ["coupons", id, "return"]) => (Call::ReturnCoupon, id),
            (Service::Payments, ["payments", id, "close"]) => (Call::ClosePayment, id),
            (Service::Payments, ["payments", id, "void"]) => (Call::VoidPayment, id),
            (Service::Payments, ["payments", id, "refunds"]) => (Call::RefundPayment, id),
            (Service::Payments, ["payments", id, "refunds", refund_id]) => {
                let digest = Arrival::digest(Call::RefundStatus, id, refund_id.as_bytes());
                let body = Some(json!({ "refundId": refund_id }));
                let arrival = Arrival { call: Call::RefundStatus, subject: (*id).to_owned(), key, body, digest };
                return Some(told(&self.payments, arrival));
            }
            _ => return None,
        };
        let digest = Arrival::digest(call, subject, body);
        let arrival = Arrival { call, subject: (*subject).to_owned(), key, body: serde_json::from_slice(body).ok(), digest };
        Some(match service {
            Service::Orders => told(&self.orders, arrival),
            Service::Stock => told(&self.stock, arrival),
            Service::Coupons => told(&self.coupons, arrival),
            Service::Payments => told(&self.payments, arrival),
        })
    }
}

/// The receipt is let go: a ledger in memory is as durable as it will ever be.
fn told<B: Book>(desk: &Desk<B>, arrival: Arrival) -> Told {
    let answered = desk.arrive(arrival);
    Told { status: answered.status, answer: answered.answer, fault: answered.fault }
}
