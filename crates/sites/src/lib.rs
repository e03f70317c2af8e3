//! Messages between sites: processes on machines with different owners. Each is a rank, and dials out to one hub, which
//! relays; no site accepts connections.
//!
//! From the bottom up: [`frame`] is what passes on a connection; [`tls`] and [`proxy`] make one; [`seal`] hides
//! messages from the hub; [`link`] delivers them whatever happens to the connection; [`rounds`] continue when a site is
//! lost; [`group`] is the transport, whose collectives are messages from each site to each other one. [`hub`] is the
//! other end, with its [`journal`].

pub mod certificates;
pub mod frame;
mod group;
mod hub;
mod journal;
mod link;
mod proxy;
mod rounds;
mod seal;
mod tls;

pub use self::frame::valid_name;
pub use self::group::Sites;
pub use self::hub::{Hub, HubConfig};
pub use self::link::{Config, abort};
pub use self::proxy::Address;
pub use self::tls::Authority;
