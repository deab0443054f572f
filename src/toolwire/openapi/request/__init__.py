"""Build requests to an API from arguments, and send them."""
