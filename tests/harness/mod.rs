//! The words in which the chapters speak: an order, a shop that answers as it is told, a node whose time moves only
//! when it is told to, and a server that is a process of its own.

mod api;
pub(crate) mod city;
mod clock;
mod node;
mod order;
pub(crate) mod order_service;
mod server;
mod shop;
mod story;

pub(crate) use api::Api;
pub(crate) use node::{Node, Setup};
pub(crate) use order::Order;
pub(crate) use order_service::{OrderService, Sql, raised};
pub(crate) use server::{Answer, Ran, Server, Site, program, run};
pub(crate) use shop::{Gate, Reply, Sent, outcome};

use overdue_runtime::Timestamp;

/// When every story on a manual clock begins: 2026-11-30T18:00:00Z.
pub(crate) const START: Timestamp = Timestamp::from_micros(1_796_061_600_000_000);
