"""`attack`: calls of a server with the texts of attackers.

Every place for a text in a tool, a prompt or a template is tried. A component may answer or raise an error for its
caller. It must not raise anything else, hang, reveal the inside of the server, do what the text asks for, or accept
arguments that its own schema refuses. The server must refuse messages beyond its limits, and go on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any, Final, NamedTuple, TypeVar

from toolwire import schemas
from toolwire.client import Client, Elicitation, Sampling
from toolwire.client.handlers import ElicitCallback, SampleCallback
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.errors import (
    INVALID_REQUEST,
    NotSupported,
    ProtocolError,
    Timeout,
    ToolwireError,
    TransportError,
)
from toolwire.protocol.uri_template import UriTemplate
from toolwire.server.limits import Limits
from toolwire.testing.connecting import Wire, connect
from toolwire.testing.failures import Failure, hidden_causes
from toolwire.testing.fuzzing import chosen
from toolwire.testing.generated import MadeUp, fitting
from toolwire.testing.hostile_texts import Bait, bait, hostile_texts
from toolwire.testing.outcomes import revealed, texts_in
from toolwire.testing.overrides import uncounted

T = TypeVar("T")
Path = tuple[str | int, ...]

# How many arguments to make in order to find the places of texts, optional arguments included.
_EXAMPLES: Final = 20
# The limit for one tool. A schema that contains itself has endless places.
_MOST_PLACES: Final = 20
# A larger limit of the server is not tried: the message would fill the memory of a small machine.
_LONGEST_MESSAGE: Final = 32 * 1024 * 1024


class _Place(NamedTuple):
    """A place for a text in the arguments of a component."""

    name: str
    filled: Callable[[str], Any]
    send: Callable[..., Awaitable[Any]]
    fits: Callable[[Any], bool]


async def attack(
    server: Any,
    *,
    tools: Sequence[str] | None = None,
    secrets: Sequence[str] = (),
    principal: Any = None,
    timeout: float = 10.0,
    elicit: Elicitation | ElicitCallback | None = None,
    sample: Sampling | SampleCallback | None = None,
) -> list[Failure]:
    """Return the first failure at each place for a text.

    `secrets` are texts that no answer may contain: keys, addresses, names of tables. Tools with `destructiveHint` are
    left out unless `tools` names them; with `tools`, nothing else is tried. Rates and quotas are switched off. The
    questions of tools are answered as in `fuzz`.
    """
    failures = []
    asked = MadeUp(Random(0))
    with uncounted(server), hidden_causes() as causes, bait() as file:
        texts = hostile_texts(file.path)
        async with connect(
            server,
            principal=principal,
            elicit=elicit or asked.elicitation,
            sample=sample or asked.sampling,
            roots=(),
        ) as (client, wire):
            for place in await _places(client, tools):
                found = await _Attack(wire, causes, asked, file, secrets, timeout).on(place, texts)
                if found is not None:
                    failures.append(found)
        failures += await _beyond_the_limits(server, principal)
    return failures


async def _places(client: Client, tools: Sequence[str] | None) -> list[_Place]:
    known = {tool.name: tool for tool in await _listed(partial(client.list_tools, audience=None))}
    places = [place for tool in chosen(known, tools) for place in _tool_places(client, tool)]
    if tools is not None:
        return places
    places += [place for prompt in await _listed(client.list_prompts) for place in _prompt_places(client, prompt)]
    templates = await _listed(client.list_resource_templates)
    return places + [place for template in templates for place in _template_places(client, template)]


async def _listed(listing: Callable[[], Awaitable[list[T]]]) -> list[T]:
    try:
        return await listing()
    except NotSupported:
        return []


def _tool_places(client: Client, tool: t.Tool) -> Iterator[_Place]:
    validator = schemas.compile(tool.input_schema, what=f"the input schema of {tool.name!r}")
    found: dict[Path, tuple[Path, dict[str, Any]]] = {}
    for arguments in fitting(tool, validator, Random(tool.name), _EXAMPLES):
        for path in _texts_at(arguments):
            # One element of a list stands for all.
            found.setdefault(tuple(0 if isinstance(step, int) else step for step in path), (path, arguments))
    for _, (path, arguments) in sorted(found.items(), key=lambda item: len(item[0]))[:_MOST_PLACES]:
        yield _Place(
            f"the tool {tool.name}",
            partial(_with, arguments, path),
            partial(client.call_tool, tool.name),
            lambda filled: not validator.check(filled),
        )


def _texts_at(value: Any, path: Path = ()) -> Iterator[Path]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if isinstance(value, str):
        yield path
    for step, member in members:
        yield from _texts_at(member, (*path, step))


def _with(value: Any, path: Path, text: str) -> Any:
    if not path:
        return text
    copy = list(value) if isinstance(value, list) else dict(value)
    copy[path[0]] = _with(copy[path[0]], path[1:], text)  # type: ignore[index]
    return copy


def _prompt_places(client: Client, prompt: t.Prompt) -> Iterator[_Place]:
    arguments = prompt.arguments if isinstance(prompt.arguments, list) else []
    others = {each.name: "a" for each in arguments if each.required is True}
    for argument in arguments:
        yield _Place(
            f"the prompt {prompt.name}",
            partial(_with, {**others, argument.name: ""}, (argument.name,)),
            partial(client.get_prompt, prompt.name),
            lambda filled: True,
        )


def _template_places(client: Client, template: t.ResourceTemplate) -> Iterator[_Place]:
    uri = UriTemplate(template.uri_template, screen=False)
    for variable in uri.variables:
        yield _Place(
            f"the template {template.uri_template}",
            partial(_expanded, uri, variable),
            client.read_resource,
            lambda filled: True,
        )


def _expanded(uri: UriTemplate, variable: str, text: str) -> str:
    return uri.expand({**dict.fromkeys(uri.variables, "a"), variable: text})


class _Attack:
    """The attack on one place: every text in turn, until one causes a failure."""

    def __init__(
        self,
        wire: Wire,
        causes: list[BaseException],
        asked: MadeUp,
        file: Bait,
        secrets: Sequence[str],
        timeout: float,
    ) -> None:
        self._timeout = timeout
        self._wire = wire
        self._causes = causes
        self._asked = asked
        self._file = file
        self._secrets = secrets

    async def on(self, place: _Place, texts: dict[str, str]) -> Failure | None:
        for what, text in texts.items():
            filled = place.filled(text)
            problem = await self._problem(place, filled, text)
            if problem is not None:
                cause = self._causes[0] if self._causes else None
                return Failure(place.name, f"{problem}, sent {what}", filled, cause, tuple(self._asked.given))
        return None

    async def _problem(self, place: _Place, filled: Any, text: str) -> str | None:
        self._causes.clear()
        self._asked.given.clear()
        self._wire.messages.clear()
        refused = True
        try:
            result = await place.send(filled, timeout=self._timeout)
            refused = isinstance(result, ToolResult) and result.is_error
        except Timeout:
            return "did not answer in time"
        except ProtocolError:
            pass
        except TransportError as error:
            return f"ended the connection ({error})"
        except ToolwireError as error:
            return f"broke its promise ({error})"
        answer = list(texts_in([message for message in self._wire.received if "method" not in message]))
        shown = revealed(answer, is_error=refused, secrets=self._secrets, sent=text)
        if shown is not None:
            return f"revealed {shown.what}"
        if self._causes:
            return f"raised {type(self._causes[0]).__name__}"
        if not refused and not place.fits(filled):
            return "took what its schema refuses"
        return self._file.find_proof(answer)


async def _beyond_the_limits(server: Any, principal: Any) -> list[Failure]:
    """Send a message nested too deeply and one too long, each before a good one."""
    limits: Limits = server.limits
    beyond = {"nested too deeply": _nested(limits.depth + 1)}
    if limits.line <= _LONGEST_MESSAGE:
        beyond["too long"] = "x" * limits.line
    failures: list[Failure] = []
    async with connect(server, over="stdio", principal=principal) as (client, _):
        for what, value in beyond.items() if "tools" in client.capabilities else ():
            problem: str | None = "a result"
            try:
                await client.call_tool("any", {"value": value})
            except ProtocolError as error:
                problem = None if error.code == INVALID_REQUEST else str(error)
            except ToolwireError as error:
                problem = str(error)
            if problem is not None:
                failures.append(Failure("the server", f"answered a message {what} with: {problem}", {"value": value}))
                break  # After a failure the next message proves nothing.
            await client.list_tools_page()
    return failures


def _nested(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value
