//! The program as a user meets it: the real binary, real sockets, both reactors. One module for each area of behaviour.

#![allow(unreachable_pub, reason = "a test program has no outside")]
#![allow(missing_docs, reason = "each test's name says what it shows")]

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "shared with other test programs")]
mod support;

mod access;
mod admin;
mod admin_commands;
mod bodies;
mod burning;
mod cgi;
mod changes;
mod conditional;
mod ctl;
mod elsewhere;
mod fastcgi;
mod files;
mod flood;
mod forwarded;
mod http;
mod iiop;
mod limits;
mod logs;
mod methods;
mod negotiation;
mod port_ends;
mod ports;
mod process;
mod proxy;
mod proxy_header;
mod proxy_health;
mod proxy_upgrade;
mod ranges;
mod redis;
mod refused;
mod reload;
mod service;
mod shares;
mod sites;
mod smuggling;
mod top;
mod upgrade;
mod websocket;
