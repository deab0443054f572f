"""Tasks on the server: kept in the stores, so that any process with the same stores can answer for any task."""
