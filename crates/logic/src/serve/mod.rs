//! Files as an HTTP resource: which file a path names, what is said about it in a reply, and how long what was found stays true.
//!
//! Everything here is a decision; opening, reading and watching files is the storage's (`leat-host`), and the evaluation of
//! conditions and ranges is [`crate::http`]'s. A request's way: [`cache::Cache::lookup`], and past it [`path::LoadRequest::new`], the
//! storage, [`cache::Cache::insert`]; then [`reply::Plan::for_resource`].

pub mod burn;
pub mod cache;
pub mod coding;
pub mod error_page;
pub mod etag;
pub mod hosts;
mod html;
pub mod limits;
pub mod listing;
pub mod mime;
pub mod path;
pub mod path_pattern;
pub mod policy;
pub mod redirect;
pub mod reply;
pub mod resource;
pub mod version;
