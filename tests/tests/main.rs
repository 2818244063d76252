//! All integration tests, in one binary.

mod architecture;
mod promotion_deploy;
mod promotion_gate;
mod promotion_line;
mod smoke;
mod up;
