//! The engine on the model store and a manual clock: races, crashes, recoveries.

mod attempts;
mod blocked;
mod cluster;
mod courier;
mod harness;
mod nodes;
mod parking;
mod places;
mod races;
mod reading;
mod recovery;
mod requested;
mod retention;
mod unknown;
