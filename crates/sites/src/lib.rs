//! Messages between sites: processes on machines with different owners. Each site is a rank and connects to one hub, which
//! relays; no site accepts connections.
//!
//! From the bottom up: [`frame`] is the wire format; [`verifier`], [`revocation`] and [`validity`] judge certificates; [`tls`] and
//! [`proxy`] establish a connection; [`seal`] hides messages from the hub; [`link`] delivers them even if connections break;
//! [`rounds`] continue when a site is lost;
//! [`group`] is the transport, whose collectives are messages from each site to each other one. [`hub`] is the
//! other end, with its [`journal`]. Beside it, [`signed`] documents are what a site agreed to, and [`site_log`] is its record of
//! all runs.

pub mod certificates;
pub mod frame;
mod group;
mod hub;
mod journal;
mod limits;
mod link;
mod proxy;
mod revocation;
mod rounds;
mod seal;
mod signed;
mod site_log;
mod tls;
mod validity;
mod verifier;

pub use self::frame::valid_name;
pub use self::group::Sites;
pub use self::hub::{Hub, HubConfig};
pub use self::link::{Config, abort, refuse};
pub use self::proxy::Address;
pub use self::signed::Signed;
pub use self::site_log::{
    Binary, BudgetState, Event, LogEntry, SiteLog, VerifiedLog, digest_of, file_digest, never_falls, read as read_log,
};
pub use self::tls::{Authority, Identity, Unsigned};
