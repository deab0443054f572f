"""The client's answers to a server's questions: forms and URLs for the user, model output, roots.

The same callbacks serve both eras: requests of the server before 2026-07-28, input requests of a round from then on. A
client declares the capabilities that it has callbacks for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import iscoroutinefunction
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Struct

from toolwire.client.errors import Rejected
from toolwire.protocol import types as t
from toolwire.protocol.errors import INVALID_PARAMS, METHOD_NOT_FOUND, ProtocolError, ToolwireError
from toolwire.protocol.revisions import supports
from toolwire.protocol.sampling import check_tool_turns
from toolwire.protocol.shaping import shape
from toolwire.protocol.types.capabilities import is_extension_identifier
from toolwire.util.expiring import Expiring
from toolwire.wire.thread_workers import ThreadWorkers

# How many ids of URL elicitations are remembered until their completion is announced.
MAX_OPEN_URLS: Final = 1_000
# How many questions wait for callbacks that are not `async`. More are refused.
MAX_WAITING: Final = 1_000


class Accept(Struct, frozen=True):
    """The answer of a user who agreed; for a form, with its content."""

    content: dict[str, Any] | None = None


class Decline(Struct, frozen=True):
    """The answer of a user who said no."""


class Cancel(Struct, frozen=True):
    """The answer of a user who closed the question."""


ElicitCallback: TypeAlias = Callable[[str, t.ElicitRequestParams], Any]
SampleCallback: TypeAlias = Callable[[t.CreateMessageRequestParams], Any]
RootLike: TypeAlias = t.Root | str | PathLike[str]
Roots: TypeAlias = Iterable[RootLike] | Callable[[], Any]
Given = TypeVar("Given", bound=Roots)


class Elicitation:
    """The ways to ask the user: `form`, `url` or both. Each is declared to the server.

    Both are called with the message and the full params, and may be `async`. `form` returns the content (a dict,
    dataclass or model), `Decline()` or `Cancel()`. `url` has to show the whole URL, and returns `Accept()` (or True) if
    the user agreed to open it; the user need not be done there. `completed` is called with the elicitation's id when a
    2025-11-25 server says that the user is done.
    """

    def __init__(
        self,
        form: ElicitCallback | None = None,
        url: ElicitCallback | None = None,
        completed: Callable[[str], Any] | None = None,
    ) -> None:
        if form is None and url is None:
            raise ValueError("Elicitation needs form=, url= or both")
        self.form = form
        self.url = url
        self.completed = completed


class Sampling:
    """A model that the server may ask, with its abilities: `tools` for tool use, `context` for `includeContext`."""

    def __init__(self, sample: SampleCallback, *, tools: bool = False, context: bool = False) -> None:
        self.sample = sample
        self.tools = tools
        self.context = context


class Answers:
    """The client's answers to everything that a server may ask."""

    def __init__(
        self,
        elicit: Elicitation | ElicitCallback | None = None,
        sample: Sampling | SampleCallback | None = None,
        roots: Roots | None = None,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self._extensions = _checked_extensions(extensions or {})
        self.elicitation: Elicitation | None = (
            elicit if isinstance(elicit, Elicitation) or elicit is None else Elicitation(form=elicit)
        )
        self.sampling: Sampling | None = sample if isinstance(sample, Sampling) or sample is None else Sampling(sample)
        self.roots: Roots | None = None if roots is None else as_roots(roots)
        self._declared: dict[str, dict[str, Any]] = {}
        self._open_urls: Expiring[str, None] = Expiring(MAX_OPEN_URLS)
        self._thread: ThreadWorkers | None = None

    def close(self) -> None:
        """End the thread of the callbacks. The next question starts another."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.shutdown()

    # --- what is declared ---

    def capabilities(self, revision: str) -> dict[str, Any]:
        """Return the client capabilities in the form of one revision."""
        declared = self._declared.get(revision)
        if declared is None:
            everything = t.InitializeRequestParams(
                protocol_version=revision, capabilities=self._all(), client_info=t.Implementation("", "")
            )
            declared = shape(everything, revision).capabilities
            if supports(revision, "tasks_extension"):
                # TSK-3: the client waits for the result of a call, also when the answer is a task.
                declared = {**declared, "extensions": {t.TASKS_EXTENSION: {}, **self._extensions}}
            self._declared[revision] = declared
        return declared

    def _all(self) -> dict[str, Any]:
        capabilities: dict[str, Any] = {}
        if self.elicitation is not None:
            modes = {"form": self.elicitation.form, "url": self.elicitation.url}
            capabilities["elicitation"] = {mode: {} for mode, callback in modes.items() if callback is not None}
        if self.sampling is not None:
            parts = {"tools": self.sampling.tools, "context": self.sampling.context}
            capabilities["sampling"] = {part: {} for part, present in parts.items() if present}
        if self.roots is not None:
            capabilities["roots"] = {"listChanged": True}
        if self._extensions:
            capabilities["extensions"] = self._extensions
        return capabilities

    # --- the answers ---

    async def answer(self, method: str, params: Any, revision: str) -> t.Wire:
        """Return the answer to one question. Raise -32602 or -32601 for what may not be asked, `Rejected` if the user
        refused.
        """
        if method == "elicitation/create" and self.elicitation is not None:
            return await self._elicit(self.elicitation, params, revision)
        if method == "sampling/createMessage" and self.sampling is not None:
            return await self._sample(self.sampling, params)
        if method == "roots/list" and self.roots is not None:
            return await self._list_roots(self.roots)
        raise ProtocolError(METHOD_NOT_FOUND, f"This client does not support {method[:200]}")

    async def _elicit(self, elicitation: Elicitation, params: t.ElicitRequestParams, revision: str) -> t.ElicitResult:
        # ELI-3: an absent mode means form.
        mode = "form" if params.mode is UNSET else params.mode
        declared = self.capabilities(revision)
        if mode == "form" and elicitation.form is not None and t.has_capability(declared, "elicitation.form"):
            if params.requested_schema is UNSET:
                raise ProtocolError(INVALID_PARAMS, "A form needs requestedSchema")
            return await self._ask_form(elicitation.form, params, params.requested_schema)
        if mode == "url" and elicitation.url is not None and t.has_capability(declared, "elicitation.url"):
            return await self._ask_url(elicitation.url, params)
        # 2025-11-25 client/elicitation: a mode that was not declared is answered with -32602.
        raise ProtocolError(INVALID_PARAMS, f"This client did not declare the elicitation mode {mode[:50]!r}")

    async def _ask_form(
        self, callback: ElicitCallback, params: t.ElicitRequestParams, schema: dict[str, Any]
    ) -> t.ElicitResult:
        answer = _choice(await self._asked(callback, params))
        if isinstance(answer, t.ElicitResult):
            if answer.action != "accept":
                return t.ElicitResult(action=answer.action)
            answer = Accept(answer.content or {})
        if isinstance(answer, Accept):
            answer = answer.content or {}
        content = _plain(answer)
        if not isinstance(content, dict):
            raise TypeError(f"a form callback returns a dict, Decline() or Cancel(), not {type(answer).__name__}")
        merged = {**_defaults(schema), **content}
        _validate(merged, schema)
        return t.ElicitResult(action="accept", content=merged)

    async def _ask_url(self, callback: ElicitCallback, params: t.ElicitRequestParams) -> t.ElicitResult:
        if params.url is UNSET or not _is_absolute(params.url):
            raise ProtocolError(INVALID_PARAMS, "URL mode needs a url")
        answer = _choice(await self._asked(callback, params))
        if answer is True or isinstance(answer, Accept):
            if params.elicitation_id is not UNSET:
                self._remember(params.elicitation_id)
            return t.ElicitResult(action="accept")  # 1.16.3: no content, whatever the callback returned.
        if answer is False:
            return t.ElicitResult(action="decline")
        if isinstance(answer, t.ElicitResult):
            return answer
        raise TypeError(f"a url callback returns Accept(), Decline() or Cancel(), not {type(answer).__name__}")

    def _remember(self, elicitation_id: str) -> None:
        self._open_urls.put(elicitation_id, None)

    def completes(self, elicitation_id: str) -> Callable[[str], Any] | None:
        """Return the callback for the end of a URL elicitation; None if the id is unknown or was announced before."""
        known = elicitation_id in self._open_urls
        self._open_urls.pop(elicitation_id)
        return self.elicitation.completed if known and self.elicitation is not None else None

    async def _sample(self, sampling: Sampling, params: t.CreateMessageRequestParams) -> t.CreateMessageResult:
        if (params.tools is not UNSET or params.tool_choice is not UNSET) and not sampling.tools:
            raise ProtocolError(INVALID_PARAMS, "This client did not declare sampling.tools")
        try:
            check_tool_turns(params.messages)
        except ValueError as error:
            raise ProtocolError(INVALID_PARAMS, str(error)) from None
        answer = await self._called(sampling.sample, params)
        if isinstance(answer, t.CreateMessageResult):
            return answer
        if isinstance(answer, str):
            answer = t.TextContent(answer)
        if isinstance(answer, t.Wire):
            # The protocol requires a model's name, and a callback that returns only text does not give one.
            return t.CreateMessageResult(role="assistant", content=answer, model="unknown")  # type: ignore[arg-type]
        raise TypeError(f"a sample callback returns text or a CreateMessageResult, not {type(answer).__name__}")

    async def _list_roots(self, roots: Roots) -> t.ListRootsResult:
        found = await self._called(roots) if callable(roots) else roots
        return t.ListRootsResult(roots=[_root(root) for root in as_roots(found)])

    # --- the callbacks ---

    async def _asked(self, callback: ElicitCallback, params: t.ElicitRequestParams) -> Any:
        try:
            return await self._called(callback, params.message, params)
        except Rejected:
            return Decline()  # A refusal of an elicitation is a result, never an error (T-50).

    async def _called(self, callback: Callable[..., Any], *arguments: Any) -> Any:
        """Call a callback and return its value. One that is not `async` may block, as `input()` does: it runs in a
        thread.

        All callbacks share one thread, because two that ask the same person at once would disturb each other.
        """
        if iscoroutinefunction(callback):
            return await callback(*arguments)
        if self._thread is None:
            self._thread = ThreadWorkers(threads=1, queue=MAX_WAITING)
        return await settle(await self._thread.run(callback, *arguments))


async def settle(value: Any) -> Any:
    """Return the value of a callback, `async` or not."""
    return await value if hasattr(value, "__await__") else value


def check_extension(identifier: object) -> None:
    """Raise `ValueError` for what is no identifier of an extension."""
    if not is_extension_identifier(identifier):
        raise ValueError(
            f"{identifier!r:.200} is not an extension name: use a domain in reverse, a slash and a name, such as "
            "com.example/notes"
        )


def _checked_extensions(extensions: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the settings of each extension as plain JSON. Raise `ValueError` for what cannot be declared."""
    if not isinstance(extensions, Mapping):
        raise TypeError(f"extensions= is a mapping of names to settings, not {type(extensions).__name__}")
    checked: dict[str, dict[str, Any]] = {}
    for identifier, settings in extensions.items():
        check_extension(identifier)
        if not isinstance(settings, Mapping):
            raise TypeError(f"the settings of {identifier} are a mapping, {{}} if there are none, not {settings!r:.99}")
        try:
            checked[identifier] = msgspec.json.decode(msgspec.json.encode(dict(settings)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"The settings of {identifier} cannot be written as JSON: {error}") from None
    return checked


# --- Elicitation -----------------------------------------------------------------------------------------------------


def _choice(answer: Any) -> Any:
    if answer is Decline or isinstance(answer, Decline):
        return t.ElicitResult(action="decline")
    if answer is Cancel or isinstance(answer, Cancel):
        return t.ElicitResult(action="cancel")
    return Accept() if answer is Accept else answer


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if dump is not None else msgspec.to_builtins(value)


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    """1.16.2.5: fill in the default of each field that the user left empty."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return {}
    return {
        name: field["default"] for name, field in properties.items() if isinstance(field, dict) and "default" in field
    }


def _validate(content: dict[str, Any], schema: dict[str, Any]) -> None:
    # Imported here because only a client that gets questions needs it.
    from toolwire import schemas

    problems = schemas.compile(schema, what="the schema of the form").check(content)
    if problems:
        # ELI-10: content that does not fit the schema is not sent.
        raise ToolwireError("The answer does not fit the form: " + "; ".join(schemas.sentence(one) for one in problems))


def _is_absolute(url: str) -> bool:
    scheme, separator, rest = url.partition(":")
    return bool(separator and scheme.isascii() and scheme[:1].isalpha() and rest)


# --- Roots -----------------------------------------------------------------------------------------------------------


def as_roots(roots: Given) -> Given:
    """Return the roots unchanged. Raise `TypeError` for a single path, whose characters would be taken for several."""
    if isinstance(roots, str | bytes | PathLike):
        raise TypeError(f"roots are a list of paths and file:// URIs: write [{roots!r:.200}]")
    return roots


def _root(root: RootLike) -> t.Root:
    if isinstance(root, t.Root):
        made = root
    elif isinstance(root, str) and "://" in root:
        made = t.Root(root)
    else:
        path = Path(root).absolute()
        made = t.Root(path.as_uri(), name=path.name or UNSET)
    if not made.uri.startswith("file://"):
        # Every revision, client/roots: a root is a file URI.
        raise ValueError(f"a root is a path or a file:// URI, not {made.uri!r}")
    return made
