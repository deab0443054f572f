"""The base of all components: their metadata, and the running of their function."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import msgspec
from msgspec import UNSET, UnsetType

from toolwire.protocol import types as t
from toolwire.protocol.decoders import convert_to
from toolwire.protocol.errors import INVALID_PARAMS, ProtocolError, ServerError
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.shaping import shape
from toolwire.server.binding import Binding, BoundFunction
from toolwire.server.binding.signature import plain_function
from toolwire.server.call import Call
from toolwire.server.components.options import Icons
from toolwire.server.components.restriction import Audience, VisibleTo, audience_of, names_of
from toolwire.server.executors import Executor, Invoke, InvokeWhole, invoker, invoker_in_one_thread

if TYPE_CHECKING:
    from toolwire.redaction import Redaction
    from toolwire.server.policy import Policy


class Component(BoundFunction):
    """The base of all four kinds."""

    kind: str
    noun: str
    key: str
    name: str
    title: str | None
    description: str | None
    icons: list[t.Icon] | UnsetType
    meta: dict[str, Any] | UnsetType
    executor: Executor | None
    timeout: float | None
    replay: bool
    policy: Policy | None
    scopes: frozenset[str]
    visible_to: Audience | None
    is_hidden_without_scopes: bool = False
    """Whether a caller who lacks its scopes does not see it either, instead of being refused."""
    is_unlisted_without_scopes: bool = False
    """Whether lists leave it out for a caller who lacks its scopes. A call is refused, and says which it needs."""
    tags: frozenset[str]
    original: Component | None = None
    """The component that this one is a shape of; None for one that is no shape."""
    is_unlisted: bool = False
    """Whether it is in no list. It can still be called: the answer then says what is wrong."""
    shaped_by: object = None
    """The mount whose shape made this component of the original."""
    _invoke: Invoke | None
    _invoke_whole: InvokeWhole | None = None
    _wire: dict[str, Any]
    _has_dependencies = False
    upstream_key: str | None = None
    """The address that a resource or template has at its upstream; None where it has the same one, and for the rest."""

    @property
    def place(self) -> str:
        """Return the file and line of its function, for messages to its author."""
        code = None if self._bound is None else getattr(plain_function(self._bound.function), "__code__", None)
        return "another program" if code is None else f"{code.co_filename}:{code.co_firstlineno}"

    @property
    def secret_arguments(self) -> Redaction | None:
        """Return the arguments that no record shows; None where there are none."""
        return None

    def __init__(
        self,
        binding: Binding | None,
        *,
        title: str | None = None,
        description: str | None = None,
        icons: Icons = None,
        meta: Mapping[str, Any] | None = None,
        executor: Executor | None = None,
        timeout: float | None = None,
        replay: bool = True,
        policy: Policy | None = None,
        scopes: str | Iterable[str] | None = None,
        visible_to: VisibleTo = None,
        tags: str | Iterable[str] | None = None,
    ) -> None:
        """Set what every kind has (`Options`), and compile the function, if there is one."""
        self.title = title
        self.description = description if description is not None else (binding.description if binding else None)
        self.icons = icons_of(icons)
        self.meta = meta_of(meta)
        self.executor, self.timeout, self.replay = executor, timeout, replay
        self.policy = checked_policy(policy)
        self.scopes = names_of(scopes, "scopes=")
        self.visible_to = audience_of(visible_to)
        self.tags = names_of(tags, "tags=")
        self._wire = {}
        self._invoke = None
        self._bound: Binding | None = binding
        if binding is not None:
            self._compile(binding)
        if self.policy is not None:
            self._check_policy(self.policy)

    @property
    @abstractmethod
    def argument_names(self) -> Collection[str]:
        """The names of the arguments that a caller sends. Rules and completions use these names."""

    def _check_policy(self, policy: Policy) -> None:
        """Refuse a rule for an argument that the component does not have, because it would never apply."""
        whose = f"The policy of the {self.noun} {self.key!r}"
        for argument in policy.rules:
            if argument not in self.argument_names:
                raise ServerError(f"{whose} has a rule for {argument!r}, which is no argument of it")
        if policy.implies:
            raise ServerError(f"{whose} has implies=, which is for that of a server")

    def wire(self, revision: str) -> Any:
        """Return the entry of a list answer for a client of `revision`."""
        found = self._wire.get(revision)
        if found is None:
            found = self._wire[revision] = shape(self.definition(revision), revision)
        return found

    @abstractmethod
    def definition(self, revision: str) -> Any:
        """Return the full metadata. `wire` leaves out the members that `revision` does not know."""

    def to_original(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return arguments of this component as the original takes them. Raise `ToolError` for those it refuses."""
        return arguments

    def from_original(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return arguments of the original as a caller of this component gives them."""
        return arguments

    def to_original_name(self, name: str) -> str | None:
        """Return the name that the original has for an argument; None for one that nobody can give."""
        names = () if self.original is None else self.original.argument_names
        return next((each for each in names if self.public_argument(each) == name), None)

    @cached_property
    def renamed_arguments(self) -> tuple[tuple[str, str], ...]:
        """Pairs of names: that of an argument here, and that at an original, where they differ."""
        original = self.original
        if original is None:
            return ()
        inner = ((each, each) for each in original.argument_names)
        named = ((self.public_argument(name), each) for name, each in (*inner, *original.renamed_arguments))
        return tuple((name, each) for name, each in named if name is not None and name != each)

    def public_argument(self, name: str) -> str | None:
        """Return the name that an argument of the original has here; None for one that nobody can give."""
        return name

    def owns_state(self, call: Call) -> bool:
        """Return whether the component itself wrote the `requestState` of a request, and reads it again."""
        return False

    def meant(self, sent: dict[str, Any]) -> dict[str, Any]:
        """Return decoded arguments as the function will read them; raise the error that a call with them would get."""
        return sent

    async def run(self, call: Call, arguments: dict[str, Any], answer: Callable[[Any], Any]) -> Any:
        """Call the function and form the answer; clean up what its dependencies opened after that."""
        if self._invoke is None:
            raise ProtocolError(INVALID_PARAMS, f"{self.key} cannot be read")
        if not self._has_dependencies:
            return answer(await self._invoke(call, arguments))
        if self._invoke_whole is not None:
            return await self._invoke_whole(call, arguments, answer)
        async with AsyncExitStack() as stack:
            call.stack = stack
            return answer(await self._invoke(call, arguments))

    def _compile(self, binding: Binding) -> None:
        self._has_dependencies = binding.call_plan.dependencies is not None
        self._invoke = invoker(binding, self.executor, self.timeout)
        self._invoke_whole = invoker_in_one_thread(binding, self.executor)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.key!r})"


def checked_policy(policy: Policy | None) -> Policy | None:
    if policy is not None:
        # Imported here because most servers have no policy.
        from toolwire.server.policy import Policy

        if not isinstance(policy, Policy):
            raise ServerError(f"policy= takes a Policy, not {type(policy).__name__}")
    return policy


def icons_of(icons: Icons) -> list[t.Icon] | UnsetType:
    if icons is None:
        return UNSET
    items = icons if isinstance(icons, list | tuple) else [icons]
    made = [wire_value(icon, t.Icon, "an icon") for icon in items]
    for icon in made:
        # ICN-2: other schemes are refused by clients, so they are refused here.
        if not icon.src.startswith(("https://", "http://", "data:")):
            raise ServerError(f"An icon is an http, https or data address, not {icon.src[:60]!r}")
    return made or UNSET


def annotations_of(annotations: Any) -> t.Annotations | UnsetType:
    if annotations is None:
        return UNSET
    return cast("t.Annotations | UnsetType", without_empty(wire_value(annotations, t.Annotations, "annotations")))


def without_empty(value: t.Wire) -> Any:
    """Remove the empty members of a wire value; return UNSET if no member is left (J65)."""
    empty = [name for name in value.__struct_fields__ if getattr(value, name) in ("", [], {})]
    kept = msgspec.structs.replace(value, **dict.fromkeys(empty, UNSET)) if empty else value
    return kept if kept.to_dict() else UNSET


def wire_value(value: Any, type_: type[t.Wire], what: str) -> Any:
    """Return a value of a wire type, given as such or as a mapping with the names of the wire."""
    if isinstance(value, type_):
        return value
    try:
        return convert_to(value, type_)
    except msgspec.ValidationError as error:
        raise ServerError(f"{value!r} cannot be read as {what}: {error}") from None


def given(value: Any) -> Any:
    return UNSET if value is None or value == "" else value


def meta_of(meta: Mapping[str, Any] | None) -> dict[str, Any] | UnsetType:
    if not meta:
        return UNSET
    for key in meta:
        if not t.is_valid_meta_key(key, MODERN):
            raise ServerError(
                f"{key!r} is not a valid _meta key: use a name, or a domain in reverse, a slash and a name"
            )
    return dict(meta)


def checked_name(name: str, what: str) -> str:
    if not name or len(name) > 256 or not name.isprintable():
        raise ServerError(f"A {what} needs a printable name of at most 256 characters")
    return name
