"""The client capabilities of the legacy revisions as a handful of bits, for where there is no room for the object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# The order is what a bit means, also for bits that are on their way: new ones go to the end.
_PATHS: Final = (
    "roots",
    "roots.listChanged",
    "sampling",
    "sampling.tools",
    "sampling.context",
    "elicitation",
    "elicitation.form",
    "elicitation.url",
    "tasks",
    "tasks.list",
    "tasks.cancel",
    "tasks.requests",
    "tasks.requests.sampling",
    "tasks.requests.sampling.createMessage",
    "tasks.requests.elicitation",
    "tasks.requests.elicitation.create",
)
_FLAGS: Final = frozenset({"roots.listChanged"})
_SPLIT: Final = tuple((path in _FLAGS, tuple(path.split("."))) for path in _PATHS)

_KNOWN: Final = (1 << len(_PATHS)) - 1


def to_bits(capabilities: Mapping[str, Any]) -> int:
    """A bit for each known capability that is declared."""
    bits = 0
    for index, (is_flag, names) in enumerate(_SPLIT):
        value: Any = capabilities
        for name in names:
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is True if is_flag else isinstance(value, Mapping):
            bits |= 1 << index
    return bits


def from_bits(bits: int) -> dict[str, Any]:
    """The plainest object that has these bits. It equals the one that was declared if that said nothing else."""
    capabilities: dict[str, Any] = {}
    bits &= _KNOWN
    while bits:
        lowest = bits & -bits
        bits ^= lowest
        is_flag, names = _SPLIT[lowest.bit_length() - 1]
        parent = capabilities
        for name in names[:-1]:
            parent = parent.setdefault(name, {})
        parent.setdefault(names[-1], True if is_flag else {})
    return capabilities
