"""Shapes: what a server lets through of a server that it mounts, and in which form.

The same objects are written in Python and decoded from the file of a gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from msgspec import UNSET, Struct

from toolwire.protocol.errors import ServerError
from toolwire.server.components import Component, ToolBase
from toolwire.server.components.base import checked_name, checked_policy
from toolwire.server.components.restriction import audience_of, names_of
from toolwire.server.shaping.pins import ToolPins

#: Result budgets below this many bytes have no room for the address of the whole result.
LEAST_BUDGET: Final = 1024

# 2025-03-26 server/tools onwards: the value of a hint that a tool does not declare.
_HINTS: Final = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
_KINDS: Final = ("tag", "annotation")


class ArgumentShape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One argument of a tool or a prompt in another form.

    `fixed` is a value that every call gets. `default` is the value of a call that leaves the argument out. `hidden`
    takes the argument away: calls get the default, if there is one. Nobody can give a fixed or hidden argument.
    """

    rename: str | None = None
    description: str | None = None
    fixed: Any = UNSET
    default: Any = UNSET
    hidden: bool = False

    def __post_init__(self) -> None:
        if self.fixed is not UNSET and self.default is not UNSET:
            raise ServerError("An argument has a fixed value or a default, not both")
        if self.is_withheld and (self.rename is not None or self.description is not None):
            raise ServerError("Nobody sees an argument that is fixed or hidden: it needs no name and no description")

    @property
    def is_withheld(self) -> bool:
        """Return whether callers cannot give the argument."""
        return self.hidden or self.fixed is not UNSET


class ToolShape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One tool in another form. What is not given stays as the mounted server has it.

    `annotations` replace those of the same name. `result_budget` is how many bytes a result may have: the whole of a
    larger one is a resource that its caller can read for a while. With a budget the output schema is dropped, unless
    `output_schema` is `"keep"`. `scopes`, `visible_to` and `policy` come on top of those that the tool has.
    """

    rename: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: dict[str, Any] = {}
    arguments: dict[str, ArgumentShape] = {}
    output_schema: Literal["keep", "drop"] | None = None
    result_budget: int | None = None
    scopes: str | list[str] = []
    visible_to: Any = None
    policy: Any = None

    def __post_init__(self) -> None:
        _check_entry(self, "tool")
        _check_budget(self.result_budget)


class PromptShape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One prompt in another form. What is not given stays as the mounted server has it."""

    rename: str | None = None
    title: str | None = None
    description: str | None = None
    arguments: dict[str, ArgumentShape] = {}
    scopes: str | list[str] = []
    visible_to: Any = None
    policy: Any = None

    def __post_init__(self) -> None:
        _check_entry(self, "prompt")


class ResourceShape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One resource or resource template in another form. Its address stays, because results refer to it."""

    title: str | None = None
    description: str | None = None
    scopes: str | list[str] = []
    visible_to: Any = None
    policy: Any = None

    def __post_init__(self) -> None:
        _check_entry(self, "resource")


class Shape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule for a mount: which components come through, and in which form.

    `allow` and `deny` select tools: by name, with `*`, `?` and `[...]`; by tag (`tag:NAME`); by annotation
    (`annotation:readOnlyHint`, `annotation:destructiveHint=false`). With `allow`, only tools that it selects come
    through, and `deny` wins. `allow_prompts` and `deny_prompts` select by name; `allow_resources` and `deny_resources`
    by address, template or name; `allow_extensions` and `deny_extensions` by identifier. An empty `allow` selects
    nothing, and None everything. `tools`, `prompts` and `resources` change one each, by its name at the mounted server.
    `scopes`, `visible_to`, `policy` and `result_budget` hold for everything that comes through. `pins` withholds tools
    whose definition nobody approved.
    """

    allow: list[str] | None = None
    deny: list[str] = []
    allow_prompts: list[str] | None = None
    deny_prompts: list[str] = []
    allow_resources: list[str] | None = None
    deny_resources: list[str] = []
    allow_extensions: list[str] | None = None
    deny_extensions: list[str] = []
    tools: dict[str, ToolShape] = {}
    prompts: dict[str, PromptShape] = {}
    resources: dict[str, ResourceShape] = {}
    scopes: str | list[str] = []
    visible_to: Any = None
    policy: Any = None
    result_budget: int | None = None
    pins: ToolPins | None = None

    def __post_init__(self) -> None:
        _check_entry(self, "server")
        _check_budget(self.result_budget)
        for selectors in (self.allow or (), self.deny):
            for each in selectors:
                _check_selector(each)


class ShapeFault(NamedTuple):
    """A mistake in a shape, found when the lists of the mounted server are known."""

    text: str
    key: tuple[str | int, ...]
    """The way to the member of the shape that has the mistake."""
    is_warning: bool = False
    """Whether everything works all the same, and the mistake may be a wish for later."""


Changed: TypeAlias = ToolShape | PromptShape | ResourceShape


def _check_entry(entry: Any, noun: str) -> None:
    names_of(entry.scopes, "scopes=")
    audience_of(entry.visible_to)
    checked_policy(entry.policy)
    if getattr(entry, "rename", None) is not None:
        checked_name(entry.rename, noun)


def _check_budget(budget: int | None) -> None:
    if budget is not None and (type(budget) is not int or budget < LEAST_BUDGET):
        raise ServerError(f"A result budget is a number of bytes, at least {LEAST_BUDGET}, not {budget!r}")


def _check_selector(selector: str) -> None:
    kind, separator, rest = selector.partition(":")
    if not separator:
        return
    if kind not in _KINDS or not rest:
        known = " and ".join(f"{each}:NAME" for each in _KINDS)
        raise ServerError(f"{selector!r} selects no tools: use a name, {known}")
    if kind == "annotation" and rest.partition("=")[2] not in ("", "true", "false"):
        raise ServerError(f"{selector!r}: the value of an annotation is true or false")


class Selection:
    """The components of one kind that come through."""

    def __init__(self, allow: Iterable[str] | None, deny: Iterable[str], names: Callable[[Any], Iterable[str]]) -> None:
        """`names` returns the texts of a component that patterns are compared with."""
        self._allow = None if allow is None else tuple(allow)
        self._deny = tuple(deny)
        self._names = names
        self.is_open: bool = allow is None and not self._deny
        """Whether everything comes through."""
        self.names_all: bool = allow is not None
        """Whether only what is named comes through."""

    def admits(self, name: str, component: Any) -> bool:
        """Return whether a component comes through, which the mounted server has under a name."""
        if self.is_open:
            return True
        if self.denies(name, component):
            return False
        return self._allow is None or any(self.matches(each, name, component) for each in self._allow)

    def denies(self, name: str, component: Any) -> bool:
        """Return whether a component is denied, which the mounted server has under a name."""
        return any(self.matches(each, name, component) for each in self._deny)

    def matches(self, selector: str, name: str, component: Any) -> bool:
        """Return whether one selector of a shape selects a component."""
        return _selects(selector, (name, *self._names(component)), component)

    def denies_text(self, text: str) -> bool:
        """Return whether a text alone is denied."""
        return any(fnmatchcase(text, each) for each in self._deny)

    def allows_text(self, text: str) -> bool:
        """Return whether a text alone is allowed."""
        return self._allow is None or any(fnmatchcase(text, each) for each in self._allow)


def selectors_of(component: Component) -> list[str]:
    """Return the selectors by tag and by annotation that select a tool; none for other components."""
    if not isinstance(component, ToolBase):
        return []
    hints = (f"annotation:{hint}" for hint in _HINTS if _hint(component, hint))
    return [*hints, *(f"tag:{tag}" for tag in sorted(tags_of(component)))]


def _selects(selector: str, texts: Iterable[str], component: Any) -> bool:
    if isinstance(component, ToolBase):
        kind, separator, rest = selector.partition(":")
        if separator and kind == "tag":
            return any(fnmatchcase(tag, rest) for tag in tags_of(component))
        if separator and kind == "annotation":
            hint, _, value = rest.partition("=")
            return _hint(component, hint) is (value != "false")
    return any(fnmatchcase(text, selector) for text in texts)


def _hint(tool: ToolBase, name: str) -> bool:
    declared = {} if tool.annotations is UNSET else tool.annotations.to_dict()
    value = declared.get(name, _HINTS.get(name, False))
    if name == "destructiveHint" and name not in declared and declared.get("readOnlyHint") is True:
        return False  # A tool that changes nothing destroys nothing.
    return value is True


def tags_of(component: Component) -> frozenset[str]:
    """Return the tags of a component; those of a server elsewhere are in `_meta`, where FastMCP writes them."""
    definition = getattr(component, "remote", None)
    meta = getattr(definition, "meta", UNSET)
    found: set[str] = set(component.tags)
    for key in ("io.toolwire/tags", "fastmcp", "_fastmcp"):
        held = meta.get(key) if isinstance(meta, Mapping) else None
        listed = held.get("tags") if isinstance(held, Mapping) else held
        found.update(each for each in (listed if isinstance(listed, list) else ()) if isinstance(each, str))
    return frozenset(found)
