"""HTTP as a client speaks it: Streamable HTTP of both eras, HTTP+SSE, and the HTTP/1.1 below them."""
