"""HTTP as a server speaks it: the ASGI application with exchanges and sessions, and the server that runs it."""
