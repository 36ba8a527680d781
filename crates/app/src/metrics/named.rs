//! Numbers that belong to something with a name: they stay for good, in the order in which the names came.

use std::collections::HashMap;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Named<T> {
    all: Vec<Arc<T>>,
    places: HashMap<String, usize>,
}

impl<T> Default for Named<T> {
    fn default() -> Named<T> {
        Named { all: Vec::new(), places: HashMap::new() }
    }
}

impl<T> Named<T> {
    pub(super) fn all(&self) -> &[Arc<T>] {
        &self.all
    }

    pub(super) fn get(&self, name: &str) -> Option<&Arc<T>> {
        self.places.get(name).map(|&place| &self.all[place])
    }

    pub(super) fn get_or_add(&mut self, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
        if let Some(known) = self.get(name) {
            return known.clone();
        }
        let new = Arc::new(make());
        self.places.insert(name.to_owned(), self.all.len());
        self.all.push(new.clone());
        new
    }
}
