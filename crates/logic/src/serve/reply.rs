//! What is sent for a resource.
