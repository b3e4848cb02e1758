//! The workflows of a shop whose orders are not always paid, and what surrounds them.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by panicking"))]

pub mod demo;
pub mod sandbox;
