"""The tables of a server's shape: which of its components come through, and in which form."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import UNSET

from toolwire.gateway.config.policies import PolicyTable, policy_of
from toolwire.gateway.file_types import StoreAddress, Table, given
from toolwire.server.shaping import ArgumentShape, PromptShape, ResourceShape, Shape, ToolPins, ToolShape


class ArgumentTable(Table, kw_only=True, frozen=True):
    """An argument of a tool or a prompt in another form."""

    rename: str | None = None
    """The name by which callers know it."""
    description: str | None = None
    """What is said of it."""
    fixed: Any = UNSET
    """The value that every call gets. Nobody can give another one."""
    default: Any = UNSET
    """The value of a call that leaves the argument out."""
    hidden: bool = False
    """Whether nobody sees it, or can give it."""


class ToolTable(Table, kw_only=True, frozen=True):
    """A tool in another form."""

    rename: str | None = None
    """Its name, without the prefix of the server."""
    title: str | None = None
    """Its title; "" for none."""
    description: str | None = None
    """Its description; "" for none."""
    annotations: dict[str, Any] = {}
    """Annotations that replace those of the same name."""
    arguments: dict[str, ArgumentTable] = {}
    """Its arguments, by the names that the server gives them. It takes no others than its schema has."""
    output_schema: Literal["keep", "drop"] | None = None
    """Whether clients see its output schema; a result budget drops it by default."""
    result_budget: int | None = None
    """How many bytes a result may have. All of a larger one is a resource that its caller can read for a while."""
    scopes: str | list[str] = []
    """The scopes that a call needs, beside those of the server."""
    visible_to: str | list[str] | None = None
    """The scopes of which a caller has to hold one to see it."""
    policy: PolicyTable | None = None
    """The policy for its calls. It sees the arguments by their new names."""


class PromptTable(Table, kw_only=True, frozen=True):
    """A prompt in another form."""

    rename: str | None = None
    """Its name, without the prefix of the server."""
    title: str | None = None
    """Its title; "" for none."""
    description: str | None = None
    """Its description; "" for none."""
    arguments: dict[str, ArgumentTable] = {}
    """Its arguments, by the names that the server gives them."""
    scopes: str | list[str] = []
    """The scopes that a use needs."""
    visible_to: str | list[str] | None = None
    """The scopes of which a caller has to hold one to see it."""
    policy: PolicyTable | None = None
    """The policy for its use."""


class ResourceTable(Table, kw_only=True, frozen=True):
    """A resource or a resource template in another form. Its address stays."""

    title: str | None = None
    """Its title; "" for none."""
    description: str | None = None
    """Its description; "" for none."""
    scopes: str | list[str] = []
    """The scopes that reading needs."""
    visible_to: str | list[str] | None = None
    """The scopes of which a caller has to hold one to see it."""
    policy: PolicyTable | None = None
    """The policy for reading."""


class PinsTable(Table, kw_only=True, frozen=True):
    """The approved definitions of tools."""

    stores: StoreAddress | None = None
    """The SQLite file, or the address of the store, that has them; the stores of the gateway by default."""
    approve_first: bool = True
    """Whether the first list of the server is approved as it is."""


#: The members of a server's entry that make its shape.
SHAPE_KEYS: Final = frozenset(Shape.__struct_fields__) - {"policy"}


def shape_of(members: dict[str, Any]) -> Shape:
    """Make the shape that members of an entry describe."""
    makers: dict[str, Any] = {"tools": _tool, "prompts": _prompt, "resources": _resource}
    made: dict[str, Any] = {
        name: {each: makers[name](table) for each, table in value.items()} if name in makers else value
        for name, value in members.items()
    }
    if "pins" in made:
        made["pins"] = _pins(made["pins"])
    return Shape(**made)


def _pins(pins: bool | PinsTable) -> ToolPins | None:
    if isinstance(pins, bool):
        return ToolPins() if pins else None
    return ToolPins(pins.stores, approve_first=pins.approve_first)


def _tool(table: ToolTable) -> ToolShape:
    return ToolShape(**_described(table))


def _prompt(table: PromptTable) -> PromptShape:
    return PromptShape(**_described(table))


def _resource(table: ResourceTable) -> ResourceShape:
    return ResourceShape(**_described(table))


def _described(table: Table) -> dict[str, Any]:
    members = given(table)
    if "arguments" in members:
        members["arguments"] = {name: ArgumentShape(**given(each)) for name, each in members["arguments"].items()}
    if "policy" in members:
        members["policy"] = policy_of(members["policy"])
    return members
