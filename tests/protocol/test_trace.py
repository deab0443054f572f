"""The formats of the trace keys in `_meta`."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases

from toolwire.protocol.trace import check_trace

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"

WELL_FORMED = [
    ("traceparent", f"00-{TRACE}-{PARENT}-01"),
    ("traceparent", f"cc-{TRACE}-{PARENT}-01"),
    ("traceparent", f"cc-{TRACE}-{PARENT}-01-what the future adds"),
    ("tracestate", ""),
    ("tracestate", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
    ("tracestate", "1a-2@vendor=a b:c;d , ,\tx=!"),
    ("tracestate", ",".join(f"v{number}=1" for number in range(32))),
    ("baggage", "key1=value1;property1;property2, key2 = value2,key3=value3; propertyKey=propertyValue"),
    ("baggage", "empty=,percent=%20%C3%A9"),
]

MALFORMED = [
    ("traceparent", ""),
    ("traceparent", None),
    ("traceparent", 1),
    ("traceparent", "00-1-2-01"),
    ("traceparent", f"00-{TRACE.upper()}-{PARENT}-01"),
    ("traceparent", f"00-{'0' * 32}-{PARENT}-01"),
    ("traceparent", f"00-{TRACE}-{'0' * 16}-01"),
    ("traceparent", f"ff-{TRACE}-{PARENT}-01"),
    ("traceparent", f"00-{TRACE}-{PARENT}-01-more"),
    ("traceparent", f"cc-{TRACE}-{PARENT}-01.more"),
    ("traceparent", f"00-{TRACE}-{PARENT}-01\n"),
    ("traceparent", f" 00-{TRACE}-{PARENT}-01"),
    ("tracestate", "no value"),
    ("tracestate", "Upper=1"),
    ("tracestate", "a=b=c"),
    ("tracestate", "a=1,a=2"),
    ("tracestate", "a=1\n"),
    ("tracestate", f"a={'x' * 257}"),
    ("tracestate", ",".join(f"v{number}=1" for number in range(33))),
    ("tracestate", ["a=1"]),
    ("baggage", ""),
    ("baggage", "alone"),
    ("baggage", "a=b c"),
    ("baggage", "a=é"),
    ("baggage", "a=1;"),
    ("baggage", {"a": "1"}),
]


@pytest.mark.covers("META-7")
@cases(("key", "value"), WELL_FORMED)
def test_what_w3c_allows_is_allowed(key: str, value: str) -> None:
    check_trace({key: value, "com.example/other": "anything"})


@pytest.mark.covers("META-7")
@cases(("key", "value"), MALFORMED)
def test_anything_else_is_refused_by_name(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"the value of {key} in meta="):
        check_trace({key: value})
