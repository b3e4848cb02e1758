//! The shop as a whole: four services on loopback, and the shop's own side of them as plain functions.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;
use jiff::Timestamp;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::coupons::Coupons;
use super::desk::{Desk, ledger_file};
use super::orders::Orders;
use super::payments::Payments;
use super::stock::Stock;
use super::time::{self, Clock};
use super::{
    Capture, CouponStatus, Effect, Error, FaultPlan, NewOrder, NewPayment, NewReservation, OrderStatus, PaymentStatus,
    ReservationStatus, Service, http,
};

/// Where the services listen, without a trailing slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Urls {
    /// The order service.
    pub orders: String,
    /// The stock service.
    pub stock: String,
    /// The coupon service.
    pub coupons: String,
    /// The payment service.
    pub payments: String,
}

impl Urls {
    /// The URL of one service.
    pub fn of(&self, service: Service) -> &str {
        match service {
            Service::Orders => &self.orders,
            Service::Stock => &self.stock,
            Service::Coupons => &self.coupons,
            Service::Payments => &self.payments,
        }
    }
}

/// A running sandbox shop; dropping it stops the services, the ledgers stay.
///
/// ```
/// # use overdue_workflows::sandbox::{Capture, FaultPlan, NewOrder, Shop};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let shop = Shop::start(folder.path(), FaultPlan::none()).await?;
/// shop.place_order(&NewOrder::new("o-1", "2026-03-01T10:00:00Z".parse()?).with_everything()).await?;
/// shop.capture("o-1-pay", &Capture::now("t-1", "10.00", "USD")).await?;
/// // … let the engine call shop.urls().orders and the others, then look:
/// assert!(shop.order("o-1").is_some());
/// assert_eq!(shop.counts().duplicate_effects, 0);
/// # Ok(()) }
/// ```
pub struct Shop {
    pub(super) folder: PathBuf,
    urls: Urls,
    faults: Arc<RwLock<Arc<FaultPlan>>>,
    pub(super) orders: Arc<Desk<Orders>>,
    pub(super) stock: Arc<Desk<Stock>>,
    pub(super) coupons: Arc<Desk<Coupons>>,
    pub(super) payments: Arc<Desk<Payments>>,
    /// Dropping it tells the servers to end.
    _open: watch::Sender<()>,
}

impl Shop {
    /// Opens the ledgers in the folder (replaying what they hold) and serves each service on a free loopback port.
    ///
    /// # Errors
    /// When a ledger cannot be used or a port cannot be opened.
    pub async fn start(folder: &Path, faults: FaultPlan) -> Result<Shop, Error> {
        let faults = Arc::new(RwLock::new(Arc::new(faults)));
        let clock: Clock = Arc::new(time::now);
        let file = |service| ledger_file(folder, service);
        let orders = Arc::new(Desk::open(&file(Service::Orders), faults.clone(), clock.clone())?);
        let stock = Arc::new(Desk::open(&file(Service::Stock), faults.clone(), clock.clone())?);
        let coupons = Arc::new(Desk::open(&file(Service::Coupons), faults.clone(), clock.clone())?);
        let payments = Arc::new(Desk::open(&file(Service::Payments), faults.clone(), clock.clone())?);

        let (open, closing) = watch::channel(());
        let urls = Urls {
            orders: serve(Service::Orders, http::orders(orders.clone()), &closing).await?,
            stock: serve(Service::Stock, http::stock(stock.clone()), &closing).await?,
            coupons: serve(Service::Coupons, http::coupons(coupons.clone()), &closing).await?,
            payments: serve(Service::Payments, http::payments(payments.clone()), &closing).await?,
        };
        Ok(Shop { folder: folder.to_owned(), urls, faults, orders, stock, coupons, payments, _open: open })
    }

    /// A shop without sockets, files and a clock of its own: it is asked by [`Shop::ask`], and goes by `clock`.
    pub fn in_memory(faults: FaultPlan, clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Shop {
        let faults = Arc::new(RwLock::new(Arc::new(faults)));
        let clock: Clock = Arc::new(clock);
        let url = |service: Service| format!("http://{}", service.name());
        Shop {
            folder: PathBuf::new(),
            urls: Urls {
                orders: url(Service::Orders),
                stock: url(Service::Stock),
                coupons: url(Service::Coupons),
                payments: url(Service::Payments),
            },
            orders: Arc::new(Desk::in_memory(faults.clone(), clock.clone())),
            stock: Arc::new(Desk::in_memory(faults.clone(), clock.clone())),
            coupons: Arc::new(Desk::in_memory(faults.clone(), clock.clone())),
            payments: Arc::new(Desk::in_memory(faults.clone(), clock)),
            faults,
            _open: watch::channel(()).0,
        }
    }

    /// Where the services listen.
    pub fn urls(&self) -> &Urls {
        &self.urls
    }

    /// The folder of the ledgers, a file `{service}.ndjson` each.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// From now on the shop misbehaves like this.
    pub fn set_faults(&self, faults: FaultPlan) {
        *self.faults.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(faults);
    }

    /// Places the order and everything held for it, durably.
    ///
    /// # Errors
    /// [`Error::Refused`] when an id was used before or a tombstone forbids it.
    pub async fn place_order(&self, order: &NewOrder) -> Result<(), Error> {
        let placed = Effect::OrderPlaced {
            pay_deadline: order.pay_deadline,
            amount: order.amount.clone(),
            currency: order.currency.clone(),
            refuses_late_payment: order.refuses_late_payment,
            not_ready_asks: order.not_ready_asks,
        };
        self.orders
            .change(&order.order_id, |orders| match orders.refused(&order.order_id) {
                true => Err("the order was placed or cancelled before"),
                false => Ok(vec![placed]),
            })
            .await?;
        if let Some(reservation) = &order.reservation {
            self.reserve(&order.order_id, reservation).await?;
        }
        if let Some(coupon_id) = &order.coupon_id {
            self.lock_coupon(&order.order_id, coupon_id).await?;
        }
        if let Some(payment) = &order.payment {
            self.open_payment(&order.order_id, payment).await?;
        }
        Ok(())
    }

    /// Puts units of a SKU on the shelf.
    ///
    /// # Errors
    /// When the ledger cannot be written.
    pub async fn add_stock(&self, sku: &str, quantity: u64) -> Result<(), Error> {
        self.stock.change(sku, |_| Ok(vec![Effect::StockAdded { quantity }])).await
    }

    /// Reserves units, which are put on the shelf first if the SKU lacks them.
    ///
    /// # Errors
    /// [`Error::Refused`] when the token was used or released before.
    pub async fn reserve(&self, order_id: &str, reservation: &NewReservation) -> Result<(), Error> {
        let NewReservation { token, sku, quantity } = reservation.clone();
        let reserved = Effect::StockReserved { order_id: order_id.to_owned(), sku: sku.clone(), quantity };
        self.stock
            .change_several(&token.clone(), |stock| {
                if stock.refused(&token) {
                    return Err("the reservation was made or released before");
                }
                let missing = quantity.saturating_sub(stock.level(&sku).available);
                let added = (missing > 0).then_some((sku, Effect::StockAdded { quantity: missing }));
                Ok(added.into_iter().chain([(token, reserved)]).collect())
            })
            .await
    }

    /// Locks a coupon for an order.
    ///
    /// # Errors
    /// [`Error::Refused`] when the coupon is locked, used, or was returned before it was ever locked.
    pub async fn lock_coupon(&self, order_id: &str, coupon_id: &str) -> Result<(), Error> {
        let locked = Effect::CouponLocked { order_id: order_id.to_owned() };
        self.coupons
            .change(coupon_id, |coupons| match coupons.refused(coupon_id) {
                true => Err("the coupon is not free"),
                false => Ok(vec![locked]),
            })
            .await
    }

    /// Opens a payment at the channel.
    ///
    /// # Errors
    /// [`Error::Refused`] when the payment exists.
    pub async fn open_payment(&self, order_id: &str, payment: &NewPayment) -> Result<(), Error> {
        let opened = Effect::PaymentOpened { order_id: order_id.to_owned(), terms: payment.terms.clone() };
        self.payments
            .change(&payment.payment_id, |payments| match payments.payment(&payment.payment_id) {
                Some(_) => Err("the payment exists"),
                None => Ok(vec![opened]),
            })
            .await
    }

    /// The channel takes the buyer's money, whatever the payment's status: a slow bank settles after a close too.
    ///
    /// # Errors
    /// [`Error::Refused`] when the payment is unknown or the transaction id was used on it before.
    pub async fn capture(&self, payment_id: &str, capture: &Capture) -> Result<(), Error> {
        let captured = Effect::PaymentCaptured {
            transaction_id: capture.transaction_id.clone(),
            amount: capture.amount.clone(),
            currency: capture.currency.clone(),
            paid_at: capture.paid_at,
        };
        self.payments
            .change(payment_id, |payments| {
                let payment = payments.payment(payment_id).ok_or("the payment does not exist")?;
                let used = payment.captures.iter().any(|known| known.transaction_id == capture.transaction_id);
                if used { Err("the transaction id was used before") } else { Ok(vec![captured]) }
            })
            .await
    }

    /// The channel holds the buyer's money without taking it.
    ///
    /// # Errors
    /// [`Error::Refused`] when the payment is not open.
    pub async fn hold(&self, payment_id: &str) -> Result<(), Error> {
        self.payments
            .change(payment_id, |payments| match payments.payment(payment_id).map(|payment| payment.status) {
                Some(PaymentStatus::Open) => Ok(vec![Effect::PaymentHeld]),
                _ => Err("the payment is not open"),
            })
            .await
    }

    /// The order service itself cancels a waiting order, without the engine.
    ///
    /// # Errors
    /// [`Error::Refused`] when the order is not waiting for its payment.
    pub async fn cancel_order(&self, order_id: &str, reason: &str) -> Result<(), Error> {
        self.change_waiting(order_id, Effect::OrderCancelled { reason: reason.to_owned() }).await
    }

    /// The order service itself keeps a waiting order as paid, without the engine.
    ///
    /// # Errors
    /// [`Error::Refused`] when the order is not waiting for its payment.
    pub async fn pay_order(&self, order_id: &str, transaction_id: &str) -> Result<(), Error> {
        self.change_waiting(order_id, Effect::OrderPaid { transaction_id: transaction_id.to_owned() }).await
    }

    /// The order service moves the deadline without telling the engine, which will meet `NOT_DUE`.
    ///
    /// # Errors
    /// [`Error::Refused`] when the order is not waiting for its payment.
    pub async fn move_deadline(&self, order_id: &str, pay_deadline: Timestamp) -> Result<(), Error> {
        self.change_waiting(order_id, Effect::DeadlineMoved { pay_deadline }).await
    }

    async fn change_waiting(&self, order_id: &str, effect: Effect) -> Result<(), Error> {
        self.orders
            .change(order_id, |orders| match orders.order(order_id).map(|order| &order.status) {
                Some(OrderStatus::WaitPay) => Ok(vec![effect]),
                _ => Err("the order is not waiting for its payment"),
            })
            .await
    }

    /// Delivers a paid order: its reservation is sold, its coupon used up. What was not held is skipped.
    ///
    /// # Errors
    /// When a ledger cannot be written.
    pub async fn fulfil(&self, token: Option<&str>, coupon_id: Option<&str>) -> Result<(), Error> {
        if let Some(token) = token {
            let sold = |stock: &Stock| match stock.reservation(token) {
                Some(ReservationStatus::Reserved) => Ok(vec![Effect::StockSold]),
                _ => Ok(Vec::new()),
            };
            self.stock.change(token, sold).await?;
        }
        if let Some(coupon_id) = coupon_id {
            let used = |coupons: &Coupons| match coupons.coupon(coupon_id) {
                Some(CouponStatus::Locked) => Ok(vec![Effect::CouponUsed]),
                _ => Ok(Vec::new()),
            };
            self.coupons.change(coupon_id, used).await?;
        }
        Ok(())
    }
}

async fn serve(service: Service, router: Router, closing: &watch::Receiver<()>) -> Result<String, Error> {
    let failed = |source| Error::Listen { service, source };
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let url = format!("http://{}", listener.local_addr().map_err(failed)?);
    let mut closing = closing.clone();
    let server = axum::serve(listener, router).with_graceful_shutdown(async move {
        // The channel carries nothing: its end is the message.
        let _ = closing.changed().await;
    });
    tokio::spawn(async move {
        // Accepting does not fail, and there is nobody to tell if it did.
        let _ = server.await;
    });
    Ok(url)
}
