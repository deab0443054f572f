"""The capability that a client declares before a server may ask it a question.

CAP-2, SMP-1 and MRTR-4 (2026-07-28), the pages of elicitation, sampling and roots (2025-11-25): a server asks only for
what the client declared. Forms and URLs are two capabilities, and so is sampling with and without tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import UNSET, Struct

from toolwire.protocol import types as t
from toolwire.protocol.errors import INVALID_PARAMS, METHOD_NOT_FOUND, ProtocolError
from toolwire.protocol.revisions import supports


class Need(Struct, frozen=True):
    """A capability that a question needs."""

    capability: str
    required: dict[str, Any]
    """The capability as -32021 names it (CAP-1)."""
    name: str

    @property
    def missing(self) -> str:
        """The text for a client that did not declare it."""
        return f"The client does not support {self.name}"


FORMS: Final = Need("elicitation.form", {"elicitation": {"form": {}}}, "forms (elicitation)")
URLS: Final = Need("elicitation.url", {"elicitation": {"url": {}}}, "URL elicitation")
SAMPLING: Final = Need("sampling", {"sampling": {}}, "sampling")
SAMPLING_TOOLS: Final = Need("sampling.tools", {"sampling": {"tools": {}}}, "sampling with tools")
SAMPLING_CONTEXT: Final = Need("sampling.context", {"sampling": {"context": {}}}, "sampling with context")
ROOTS: Final = Need("roots", {"roots": {}}, "roots")


#: The questions that need a capability. Any other method belongs to an extension.
QUESTIONS: Final = frozenset(("elicitation/create", "sampling/createMessage", "roots/list"))


def can_be_asked(capabilities: Mapping[str, Any], revision: str, capability: str) -> bool:
    """Return whether a client declared a capability that its revision has."""
    path = "elicitation.form" if capability == "elicitation" else capability
    if path.startswith("elicitation") and not supports(revision, "elicitation"):
        return False
    if path == "elicitation.url" and not supports(revision, "url_elicitation"):
        return False
    if path in ("sampling.tools", "sampling.context") and not supports(revision, "sampling_tools"):
        return False
    return t.has_capability(capabilities, path)


def find_missing(method: str, params: Any, capabilities: Mapping[str, Any], revision: str) -> Need | None:
    """Return the first capability that a question needs and the client lacks.

    `includeContext` needs none here: a client may ignore it (see `wants_context`).
    """
    lacking = (need for need in _needs(method, params) if not can_be_asked(capabilities, revision, need.capability))
    return next(lacking, None)


def _needs(method: str, params: Any) -> Iterator[Need]:
    if method == "roots/list":
        yield ROOTS
    elif method == "elicitation/create":
        yield _of_mode("form" if params.mode is UNSET else params.mode)
    elif method == "sampling/createMessage":
        yield SAMPLING
        if params.tools is not UNSET or params.tool_choice is not UNSET:
            yield SAMPLING_TOOLS


def _of_mode(mode: str) -> Need:
    """Return the capability for a mode of elicitation. A mode that no revision has needs a client that declares it."""
    if mode in ("form", "url"):
        return FORMS if mode == "form" else URLS
    return Need(f"elicitation.{mode}", {"elicitation": {mode: {}}}, f"elicitation in the mode {mode[:100]!r}")


def wants_context(method: str, params: Any, capabilities: Mapping[str, Any], revision: str) -> bool:
    """Return whether a question has an `includeContext` that the client did not declare.

    2025-11-25 client/sampling: servers SHOULD NOT send it then. Earlier revisions have no such capability.
    """
    return (
        method == "sampling/createMessage"
        and params.include_context not in (UNSET, "none")
        and supports(revision, "sampling_tools")
        and not can_be_asked(capabilities, revision, SAMPLING_CONTEXT.capability)
    )


def refuse_question(need: Need, capabilities: Mapping[str, Any]) -> ProtocolError:
    """Return the error for a legacy server whose client may not be asked.

    The method does not exist where the whole capability is missing (client/roots), and its params are wrong where only
    a mode or an addition is (2025-11-25 client/elicitation).
    """
    family = need.capability.partition(".")[0]
    code = INVALID_PARAMS if t.has_capability(capabilities, family) else METHOD_NOT_FOUND
    return ProtocolError(code, need.missing)
