"""The trace context that a request may carry: the formats of W3C Trace Context and W3C Baggage."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

_MAX_VENDORS: Final = 32
# W3C Baggage, limits: 8192 bytes must be let through, and more need not be.
_MAX_LENGTH: Final = 8192

_TRACEPARENT = re.compile(r"(?P<version>[0-9a-f]{2})-(?P<trace>[0-9a-f]{32})-(?P<parent>[0-9a-f]{16})-[0-9a-f]{2}")
_VENDOR = re.compile(r"(?P<key>[a-z0-9][a-z0-9_\-*/@]{0,255})=[ -+\--<>-~]{0,255}[!-+\--<>-~]")
_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_OCTETS: Final = r"[!#-+\--:<-\[\]-~]*"
_PAIR = re.compile(rf"{_TOKEN}[ \t]*=[ \t]*{_OCTETS}")
_PROPERTY = re.compile(rf"{_TOKEN}(?:[ \t]*=[ \t]*{_OCTETS})?")


def check_trace(meta: Mapping[str, Any]) -> None:
    """`ValueError` when a trace key is there and its value has not the W3C format (META-7)."""
    for key, fits in _FORMATS.items():
        if key in meta and not (isinstance(meta[key], str) and fits(meta[key])):
            raise ValueError(f"the value of {key} in meta= has not the format that W3C gives it: {meta[key]!r:.100}")


def trace_in(carrier: Mapping[str, Any]) -> dict[str, str]:
    """The trace context in `_meta` or in HTTP headers; what has not the right format is passed over, and without a
    `traceparent` the `tracestate` means nothing."""
    found = {
        key: value
        for key, fits in _FORMATS.items()
        if isinstance(value := carrier.get(key), str) and len(value) <= _MAX_LENGTH and fits(value)
    }
    if "traceparent" not in found:
        found.pop("tracestate", None)
    return found


def _is_traceparent(value: str) -> bool:
    found = _TRACEPARENT.match(value)
    if found is None or found["version"] == "ff" or not found["trace"].strip("0") or not found["parent"].strip("0"):
        return False
    rest = value[found.end() :]
    # A version after 00 may say more, behind one more dash.
    return not rest or (found["version"] != "00" and rest.startswith("-"))


def _is_tracestate(value: str) -> bool:
    members = [member.strip(" \t") for member in value.split(",")]
    # Empty members are allowed, the same vendor twice is not.
    vendors = [_VENDOR.fullmatch(member) for member in members if member]
    keys = [vendor["key"] for vendor in vendors if vendor is not None]
    return len(members) <= _MAX_VENDORS and len(keys) == len(vendors) == len(set(keys))


def _is_baggage(value: str) -> bool:
    return all(_is_baggage_member(member) for member in value.split(","))


def _is_baggage_member(member: str) -> bool:
    pair, *properties = (part.strip(" \t") for part in member.split(";"))
    return _PAIR.fullmatch(pair) is not None and all(_PROPERTY.fullmatch(each) for each in properties)


_FORMATS: Final[dict[str, Callable[[str], bool]]] = {
    "traceparent": _is_traceparent,
    "tracestate": _is_tracestate,
    "baggage": _is_baggage,
}
