//! What is damaged is found, exactly that, and nothing is found in what is not.

mod damage;
mod histories;
mod stores;
mod walk;
mod world;
