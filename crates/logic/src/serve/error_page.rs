//! The page that comes with a status which has nothing else to show.
