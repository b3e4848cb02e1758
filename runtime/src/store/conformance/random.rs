//! Random operations on a store and on the model: every outcome and every later read must be equal.
