//! By which way a request is served: handing its connection over, proxying, fetching from the node that has the content, or staying. Whether a
//! way is possible at all, and carrying it out, is for others; so is measuring what it cost.

mod curve;
mod expected;
mod model;

#[cfg(test)]
mod grid;

pub use curve::{Prior, Side};
pub use expected::Expected;
pub use model::{Because, CostModel, Decision, Estimate, Place, Situation, Way, Ways, Work};
