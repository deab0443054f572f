"""Names of keys, streams and topics as bytes. Any text is allowed, even text that is not valid Unicode."""

from __future__ import annotations


def encode_name(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


def decode_name(name: bytes) -> str:
    return name.decode("utf-8", "surrogatepass")
