"""The options of the decorators, for type checkers and editors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolwire.protocol import types as t
from toolwire.schemas import Profile
from toolwire.schemas.wording import nearest
from toolwire.server.components.cache import Cache
from toolwire.server.components.options import Options, ViewOfTool
from toolwire.server.components.tools import Argument

if TYPE_CHECKING:
    from toolwire.protocol.apps import Audience


class ToolOptions(Options, total=False):
    """The options of `@server.tool`."""

    name: str | None
    """What callers know it by; without it, the name of the function."""
    annotations: t.ToolAnnotations | Mapping[str, Any] | None
    """Hints for clients: `{"readOnlyHint": True}`, `destructiveHint`, `idempotentHint`, `openWorldHint`, `title`."""
    parameters: Sequence[Argument | Mapping[str, Any]] | None
    """Its arguments, described by hand instead of by the signature."""
    input_schema: dict[str, Any] | type | None
    """The JSON Schema of its arguments, or a record class that is the whole input, instead of the signature."""
    output_schema: dict[str, Any] | None
    """The JSON Schema of its structured content."""
    schema_profile: Profile
    """How a generated input schema is published: "portable", or "nullable" with null for what may be left out."""
    structured: bool | None
    """Whether the result is sent as structured content too; by default where its type is declared."""
    decoder: Callable[[dict[str, Any]], Any] | None
    """Turns the checked arguments into the value that the function takes."""
    encoder: Callable[[Any], Any] | None
    """Turns the value that the function returns into the value that is sent."""
    validate_input: bool
    """Whether arguments are checked against `input_schema` before the function runs; by default True."""
    task: t.TaskSupport | None
    """Whether calls may ("optional") or must ("required") run as tasks."""
    long_running: bool
    """The same as `task="optional"`."""
    detaches: bool
    """Whether only `ctx.detach()` makes its calls tasks, and not the time or a question."""
    task_stays: bool
    """Whether its tasks run only in the process that accepted the call: what middleware left for it is there alone."""
    app: ViewOfTool | None
    """The view that shows its results: what `server.app()` returns."""
    visibility: Sequence[Audience] | None
    """Who may call it: models, the view of its server, or both; by default both."""
    pinned: bool
    """Whether it stays in lists of tools that are otherwise found by a search (`_meta["anthropic/alwaysLoad"]`)."""
    keywords: Iterable[str]
    """Words by which a search finds it, besides those of its description (`_meta["anthropic/searchHint"]`)."""
    group: str | None
    """The name of a group of tools, which a search shows and finds."""
    max_result_chars: int | None
    """How long its results may be before Claude Code cuts them (`_meta["anthropic/maxResultSizeChars"]`)."""


class ResourceOptions(Options, total=False):
    """The options of `@server.resource`."""

    name: str | None
    """What people know it by; without it, the name of the function."""
    mime_type: str | None
    """What it is; by default what the result of the function suggests."""
    annotations: t.Annotations | Mapping[str, Any] | None
    """Hints for clients: `audience`, `priority`, `lastModified`."""
    size: int | None
    """How many bytes it has, where that is known; not for templates."""
    cache: Cache | None
    """For how long, and for whom, it may be kept (2026-07-28)."""
    screen: bool
    """For templates: whether values that lead out of their place (`..`, absolute paths) are refused."""
    completions: Mapping[str, Callable[..., Any] | Sequence[str]] | None
    """For templates: suggestions for their variables, by name: a list of texts or a function."""


class PromptOptions(Options, total=False):
    """The options of `@server.prompt`."""

    name: str | None
    """What callers know it by; without it, the name of the function."""
    arguments: Sequence[t.PromptArgument | Mapping[str, Any] | str] | None
    """Its arguments, described by hand instead of by the signature."""
    completions: Mapping[str, Callable[..., Any] | Sequence[str]] | None
    """Suggestions for its arguments, by name: a list of texts or a function."""


def check_options(given: Mapping[str, Any], kind: Any, noun: str) -> None:
    """Raise `TypeError` for an option that does not exist, and name the one that may be meant."""
    known = kind.__optional_keys__
    for name in given:
        if name not in known:
            meant = nearest(name, known)
            told = f"did you mean {meant!r}?" if meant else f"there are {', '.join(sorted(known))}"
            raise TypeError(f"A {noun} has no option {name!r}; {told}")
