"""Export a session as a file: calls, results, messages and sign-in steps.

The file is made to be sent to other people, so secrets are replaced: by the names of their members and headers, and
wherever a value that the user gave as a token or header stands in a text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from toolwire.inspector.calls import PageCall
from toolwire.inspector.redaction import hide, mask_members
from toolwire.inspector.wire_log import WireEntry

VERSION: Final = 1
MAX_PART: Final = 1024 * 1024
MAX_TOTAL: Final = 32 * 1024 * 1024

_encode = msgspec.json.Encoder(enc_hook=str).encode


def export_session(
    state: Mapping[str, Any], calls: Sequence[PageCall], messages: Sequence[WireEntry], secrets: Iterable[str]
) -> bytes:
    """Write a session as JSON. `state` goes in as it is, without its secrets.

    Of more than fits, the newest calls and messages are kept, and `leftOut` says how many are missing.
    """
    hidden = hide([*secrets])
    budget = _Budget(MAX_TOTAL)
    kept_calls = [*budget.fill(_call(call, hidden) for call in reversed(calls))][::-1]
    kept_messages = [*budget.fill(_message(entry, hidden) for entry in reversed(messages))][::-1]
    head = {
        "format": "toolwire-session",
        "version": VERSION,
        "exported": datetime.now(UTC).isoformat(timespec="seconds"),
        **mask_members(dict(state), texts=hidden),
        "leftOut": {"calls": len(calls) - len(kept_calls), "messages": len(messages) - len(kept_messages)},
        "calls": [msgspec.Raw(call) for call in kept_calls],
        "messages": [msgspec.Raw(message) for message in kept_messages],
    }
    return _encode(head)


class _Budget:
    def __init__(self, size: int) -> None:
        self._left = size

    def fill(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """Give parts for as long as they fit."""
        for part in parts:
            self._left -= len(part)
            if self._left < 0:
                return
            yield part


def _call(call: PageCall, hidden: Callable[[str], str]) -> bytes:
    shown = {name: value for name, value in call.describe().items() if value not in (None, [])}
    shown["started"] = _time(call.started)
    params, result = _value(call.params, hidden), None if call.result is None else _value(call.result, hidden)
    return _encode({**mask_members(shown, texts=hidden), "params": params, "result": result})


def _message(entry: WireEntry, hidden: Callable[[str], str]) -> bytes:
    members = {"number": entry.number, "at": _time(entry.at), "direction": entry.direction, "kind": entry.kind}
    about = {"answers": entry.answers, "took": entry.took, "http": entry.http}
    known = {name: value for name, value in about.items() if value is not None}
    return _encode({**members, **mask_members(known, texts=hidden), "message": _value(entry.text, hidden)})


def _value(text: bytes, hidden: Callable[[str], str]) -> Any:
    """Read JSON without its secrets.

    Returns a text if it is not JSON, and a note if it is too large.
    """
    if len(text) > MAX_PART:
        return f"({len(text)} bytes, too large for the export)"
    try:
        return mask_members(msgspec.json.decode(text), texts=hidden)
    except RecursionError:
        return "(nested too deeply for the export)"
    except (msgspec.DecodeError, UnicodeDecodeError):
        return hidden(text.decode("utf-8", "replace"))


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
