"""The rules of OAuth for a client, pure: values and generators, no sockets, no clock."""
