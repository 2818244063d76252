//! All integration tests, in one binary.

mod architecture;
mod smoke;
mod up;
