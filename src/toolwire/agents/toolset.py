"""`Toolset`: tools of servers in the loop of a model of any vendor."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar

from msgspec import UNSET

from toolwire import schemas
from toolwire.agents.answers import Answer, write_answers
from toolwire.agents.call_errors import NOT_BEGUN, explain
from toolwire.agents.call_order import PlannedCall, ResponseCalls
from toolwire.agents.catalogue import (
    OWN_TOOLS,
    READ_TOOL,
    SEARCH_TOOL,
    Catalogue,
    Defer,
    Entry,
    Listed,
    SearchMode,
)
from toolwire.agents.conversion import Loss
from toolwire.agents.records import CallOutcome, Run, Usage
from toolwire.agents.responses import ModelCall, ModelTurn, read_response
from toolwire.agents.result_parts import (
    RESULT_MODES,
    Count,
    Part,
    ResultMode,
    ResultParts,
    cut_text,
    error_parts,
    json_text,
    part_tokens,
    read_result,
)
from toolwire.agents.sources import Source, make_client, read_servers
from toolwire.agents.tool_names import ToolNames
from toolwire.agents.vendors import TARGETS, Target, TargetName, find_target
from toolwire.client.approval import Approve
from toolwire.client.budget import Budget
from toolwire.client.connection import OnProgress
from toolwire.client.pins import Pins
from toolwire.content import ToolResult
from toolwire.loops import plain_callback
from toolwire.protocol import types as t
from toolwire.protocol.errors import InvalidResponse
from toolwire.protocol.steps import TooManySteps
from toolwire.redaction import Redaction
from toolwire.schemas.wording import nearest
from toolwire.search import ToolHit
from toolwire.tokens import count_tokens
from toolwire.util.expiring import Expiring

if TYPE_CHECKING:
    from toolwire.audit import AuditLog
    from toolwire.client.sync import _SharedHome

R = TypeVar("R")

log: logging.Logger = logging.getLogger("toolwire.agents")

#: How long the servers may take to list their tools, each.
LIST_SECONDS: Final = 30.0
#: The same for a server that could not be reached before: the model waits for the list.
RETRY_SECONDS: Final = 5.0
#: How much text of long results is kept for `read_result`, and for how many results.
KEPT_CHARACTERS: Final = 64 * 1024 * 1024
KEPT_RESULTS: Final = 64
RESULT_SCHEME: Final = "toolwire://results/"
# The results of a toolset that are compiled validators, the ones used last.
_KEPT_VALIDATORS: Final = 256


class Toolset:
    """The tools of servers for a model: `async with Toolset("https://…/mcp", ["uvx", "notes"], server) as tools`.

    A server is a URL, a command as a list, a `Server` or `Gateway` object, a `Path`, a `Client`, a configuration with
    `mcpServers`, or a mapping of names to any of these. A text other than a URL is refused: it could name a file. A
    `Client` that is connected stays so afterwards.

    * `approve`, `budget`, `pins`, `audit`: as in `Client`, for the calls of all servers. They see the name of the
      server and of the tool that is called, never a name that was changed for a vendor. A tool that differs from its
      pin is withheld. A server that the pins know is a process that starts when one of its tools is called.
    * `allow`: the tools that a model may see and call: names, or a function of the server's name and the definition.
    * `strict`: whether vendors check the arguments: True, or the names of tools. A schema that strict mode cannot say
      stays as it is, with a reason in `losses`.
    * `defer`: whether tools are left out of the context until the model searches for them. "auto" defers above ten
      tools that take more than a tenth of `context` tokens. `pinned` names tools that are always there.
    * `search`: "hosted" leaves the search to OpenAI and Anthropic, "own" does it here. `rank` replaces the ranking.
    * `result`: "auto" sends text or structured content where they say the same, and both where they differ; or
      "content", "structured", "both".
    * `max_result_tokens`: longer results are cut, and the model may read on with the tool `read_result`.
    * `code`: whether programs of the model may call tools that only read, in a closed world.
    * `cache_control`: whether the last tool that is not deferred is a breakpoint of Anthropic's prompt cache.
    * `background`: names of tools whose calls, as tasks, end with the task's id. All other tasks are waited for.
    * `timeout`: seconds that a call may take. `on_progress` gets its progress, and `on_result` how each call ended.
    * `count`: counts the tokens of a text; by default an estimate. `redaction` masks secrets in the texts of errors.
    * `state`: what `state()` returned, for a conversation that continues in another process.
    * Other options are those of `Client`, for the servers that the toolset connects to: `elicit`, `sample`, `roots`.
    """

    def __init__(
        self,
        *servers: Any,
        approve: Approve | None = None,
        budget: Budget | None = None,
        pins: Pins | None = None,
        audit: AuditLog | None = None,
        allow: Collection[str] | Callable[[str, t.Tool], bool] | None = None,
        strict: bool | Collection[str] = False,
        defer: Defer = "auto",
        pinned: Collection[str] = (),
        search: SearchMode = "hosted",
        rank: Callable[[str, Sequence[Entry]], Iterable[Entry]] | None = None,
        context: int = 200_000,
        result: ResultMode = "auto",
        max_result_tokens: int | None = None,
        code: bool = False,
        cache_control: bool = False,
        background: Collection[str] = (),
        timeout: float | None = None,
        on_progress: OnProgress | None = None,
        on_result: Callable[[CallOutcome], Any] | None = None,
        count: Count = count_tokens,
        redaction: Redaction | None = None,
        state: Mapping[str, Any] | None = None,
        **client: Any,
    ) -> None:
        if result not in RESULT_MODES:
            raise ValueError(f"result= is one of {', '.join(RESULT_MODES)}, not {result!r}")
        if defer not in ("auto", True, False):
            raise ValueError(f"defer= is 'auto', True or False, not {defer!r}")
        if search not in ("hosted", "own"):
            raise ValueError(f"search= is 'hosted' or 'own', not {search!r}")
        for name, names in (("pinned", pinned), ("background", background), ("allow", allow), ("strict", strict)):
            if isinstance(names, str):
                raise TypeError(f"{name}= is a list of names")
        if iscoroutinefunction(rank):
            raise TypeError("rank= is a plain function: it is called while the model waits for a search")
        if max_result_tokens is not None and max_result_tokens < 100:
            raise ValueError("max_result_tokens= is at least 100")
        read = read_servers(servers)
        if not read:
            raise ValueError("a toolset needs a server: a URL, a command, a Server, a Client or a configuration")
        self._sources: list[Source] = []
        for name, target in read:
            made, is_owned = make_client(target, client)
            self._sources.append(
                Source(name, made, is_owned=is_owned, approve=approve, budget=budget, pins=pins, audit=audit)
            )
        self._budget = budget
        self._result: ResultMode = result
        self._max_result_tokens = max_result_tokens
        self._background = ToolNames(background, self._servers)
        self._timeout = timeout
        self._on_progress = on_progress
        self._on_result = on_result
        self._count = count
        self._redaction = redaction or Redaction()
        self._catalogue = Catalogue(
            has_prefixes=len(self._sources) > 1 or self._sources[0].is_several,
            strict=strict if isinstance(strict, bool) else ToolNames(strict, self._servers),
            defer=defer,
            pinned=pinned,
            servers=self._servers,
            context=context,
            search=search,
            allow=_read_allow(allow, self._servers),
            code=code,
            cache=cache_control,
            reads_results=max_result_tokens is not None,
            rank=rank,
            state=state,
        )
        self._last: dict[str, Target] = {}
        self._validators: Expiring[tuple[str, str], tuple[t.Tool, Any]] = Expiring(_KEPT_VALIDATORS)
        self._kept: Expiring[str, str] = Expiring(KEPT_RESULTS, max_weight=KEPT_CHARACTERS, weigh=len)
        self._order = ResponseCalls()
        self._reports: set[asyncio.Future[None]] = set()
        self._listing = asyncio.Lock()
        self._is_open = False
        self._usage: dict[str, Usage] = {}
        self.tasks: dict[str, Any] = {}
        """Handles of the tasks that calls of `background` tools became, by the task's id."""

    @staticmethod
    def sync(*servers: Any, **options: Any) -> BlockingToolset:
        """Return a toolset whose methods wait: `with Toolset.sync(...) as tools`."""
        return BlockingToolset(Toolset(*servers, **options))

    # --- servers ---

    def _servers(self) -> list[str]:
        return [server for source in self._sources for server in source.servers]

    async def connect(self) -> Self:
        """Connect to the servers and list their tools; see `missing` for unreachable ones."""
        self._is_open = True
        await self._refresh()
        return self

    async def close(self) -> None:
        """Cancel the calls that run, and close the connections that the toolset has opened."""
        self._is_open = False
        self._order.cancel_all()
        await asyncio.gather(*(source.close() for source in self._sources))

    async def __aenter__(self) -> Self:
        try:
            return await self.connect()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __enter__(self) -> NoReturn:
        raise TypeError("Toolset is asynchronous: write `async with Toolset(...)`, or use Toolset.sync(...)")

    def __exit__(self, *_: object) -> None:
        """Exist for `with`, which looks for this method before it calls `__enter__`."""

    @property
    def missing(self) -> dict[str, str]:
        """The unreachable servers, each with the reason. Their tools stay listed."""
        return {source.name: source.failure for source in self._sources if source.failure}

    @property
    def unavailable(self) -> dict[tuple[str, str], str]:
        """The tools that differ from their pins, each with what has changed."""
        return {(source.name, name): reason for source in self._sources for name, reason in source.withheld.items()}

    async def _refresh(self) -> None:
        """List the tools of servers whose lists are not known or have changed."""
        if not self._is_open:
            raise RuntimeError("the toolset is not open: use `async with Toolset(...)`")
        if not any(source.needs_listing for source in self._sources):
            return
        async with self._listing:
            due = [source for source in self._sources if source.needs_listing]
            if not due:
                return
            cold = [source for source in due if source.is_cold]
            if len(due) > len(cold):
                lists = await asyncio.gather(*(self._list(source) for source in due if source not in cold))
            else:
                lists = []
            self._catalogue.begin_generation()
            for source in cold:
                self._catalogue.update(source, source.list_cold())
            for source, listed in zip((each for each in due if each not in cold), lists, strict=True):
                if listed is not None:
                    self._catalogue.update(source, listed)
            self._catalogue.defer_new_tools()

    async def _list(self, source: Source) -> list[Listed] | None:
        return await source.list_tools(RETRY_SECONDS if source.failure else LIST_SECONDS)

    # --- definitions ---

    async def definitions(self, target: TargetName) -> list[dict[str, Any]]:
        """Return `tools=` for an interface of a vendor, as plain dicts.

        They are the same bytes on every turn. Tools that a server adds later stand at the end. `target` is "openai"
        (Responses), "openai-chat", "anthropic", "gemini" or "gemini-legacy" (the field `parameters`).
        """
        found = find_target(target)
        await self._refresh()
        self._last[_family(found)] = found
        return self._catalogue.definitions(found)

    @property
    def losses(self) -> list[Loss]:
        """The rules that the definitions written so far do not say."""
        return self._catalogue.losses()

    @property
    def usage(self) -> dict[str, Usage]:
        """Calls and estimated tokens of each server."""
        found: dict[str, Usage] = {}
        for entry in self._catalogue.entries:
            usage = found.setdefault(entry.server, Usage())
            usage.definition_tokens += entry.tokens
        for server, spent in self._usage.items():
            usage = found.setdefault(server, Usage())
            usage.calls, usage.errors, usage.result_tokens = spent.calls, spent.errors, spent.result_tokens
        return found

    def search(self, query: str, limit: int = 5) -> list[ToolHit]:
        """Return the tools that fit a query, best first, by their shown names.

        The exact name of a tool and its beginning come first. `select:a,b` returns tools by their names.
        """
        return [hit for _, hit in self._catalogue.search(query, max(1, limit))]

    def state(self) -> dict[str, Any]:
        """Return the order of tools and what is loaded, for `state=` later."""
        return self._catalogue.state()

    def note_loaded(self, *names: str) -> None:
        """Note tools as loaded, such as those that a hosted search returned."""
        for target in (TARGETS["anthropic"], TARGETS["gemini"]):
            self._catalogue.load(entry for name in names if (entry := self._catalogue.find(name, target)) is not None)

    # --- answers ---

    async def answer(self, response: Any) -> list[dict[str, Any]]:
        """Make the calls of a response, and return the messages that continue the conversation.

        These are the model's own message and one answer to each call, in the form of the vendor; an empty list when
        the model makes no call. `response` is an object of a vendor's library, or its JSON. Whatever happens to a call
        becomes its answer: only cancellation raises, and a value that cannot be a response.
        """
        turn = read_response(response)
        self.note_loaded(*turn.found)
        if not turn.calls:
            return write_answers(turn, [])
        await self._refresh()
        target = self._last.get(turn.family) or TARGETS[turn.family]
        answers = await self._answer_all(turn, target)
        return write_answers(turn, answers, is_legacy=target.name == "gemini-legacy")

    def cancel(self, id: str) -> bool:
        """Cancel a call that runs or waits; return whether there was one."""
        return self._order.cancel(id)

    async def _answer_all(self, turn: ModelTurn, target: Target, *, is_ordered: bool = False) -> list[Answer]:
        """Make the calls of a turn; `is_ordered` if the caller orders the turns."""
        answers = [Answer(call, ResultParts([])) for call in turn.calls]
        jobs: list[PlannedCall] = []
        for number, answer in enumerate(answers):
            call = answer.call
            entry = None if call.is_search else self._catalogue.find(call.name, target)
            id = call.id or f"{call.name}#{number}"
            if entry is None:
                jobs.append(PlannedCall(id, call.name, True, partial(self._call_own, answer, target)))
            else:
                jobs.append(PlannedCall(id, entry.key, entry.is_parallel, partial(self._call, call, entry, target)))
        await self._order.run(jobs, is_ordered=is_ordered)
        for job, answer in zip(jobs, answers, strict=True):
            answer.result = job.result or error_parts(NOT_BEGUN)
            entry = self._catalogue.find(answer.call.name, target)
            if not job.has_begun and entry is not None:
                cancelled = asyncio.CancelledError()
                self._report(CallOutcome(answer.call.id, entry.server, entry.name, {}, None, cancelled))
        return answers

    async def _call_own(self, answer: Answer, target: Target, job: PlannedCall) -> ResultParts:
        return self._answer_own(answer, target)

    async def _call(self, call: ModelCall, entry: Entry, target: Target, job: PlannedCall) -> ResultParts:
        usage = self._usage.setdefault(entry.server, Usage())
        usage.calls += 1
        arguments: dict[str, Any] = {}
        result: ToolResult | None = None
        failure: BaseException | None = None
        try:
            problem = call.problem
            if call.arguments is not None:
                converted = self._catalogue.convert(entry, target)
                try:
                    arguments = converted.restore_arguments(call.arguments)
                except TooManySteps:
                    problem = "the arguments are too large or too deeply nested"
                else:
                    arguments, problem = self._check(entry, arguments)
            if problem:
                usage.errors += 1
                return error_parts(self._say_problem(entry, problem, target))
            if entry.is_deferred:
                self._catalogue.load([entry])
            result = await self._make_call(entry, arguments)
        except asyncio.CancelledError as error:
            failure = error
            if not job.is_cancelled:
                raise
        except InvalidResponse as error:
            failure = error
            # The tool has acted: its text is worth more than the mistake in its structured content.
            kept = getattr(error, "result", None)
            result = ToolResult(kept.content) if isinstance(kept, ToolResult) and kept.content else None
        except Exception as error:
            failure = error
        finally:
            self._report(CallOutcome(call.id, entry.server, entry.name, arguments, result, failure))
        if result is None:
            assert failure is not None
            usage.errors += 1
            return error_parts(explain(failure, entry, self._redaction))
        usage.errors += result.is_error
        parts = read_result(
            result,
            self._result,
            is_from_program=call.is_from_program,
            count=self._count,
            max_tokens=self._max_result_tokens,
        )
        self._limit(parts)
        usage.result_tokens += sum(part_tokens(part, self._count) for part in parts.parts)
        if parts.structured is not UNSET:
            usage.result_tokens += self._count(json_text(parts.structured))
        return parts

    async def _make_call(self, entry: Entry, arguments: Mapping[str, Any]) -> ToolResult:
        source: Source = entry.source
        if self._background.has(*entry.key):
            return await self._begin_task(source, entry, arguments)
        return await source.call(entry, arguments, self._timeout, self._on_progress)

    async def _begin_task(self, source: Source, entry: Entry, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool as a task, and return its id as the result."""
        handle = await source.call_as_task(entry, arguments, self._timeout, self._on_progress)
        self.tasks[handle.id] = handle
        return ToolResult(f"The task {handle.id} was started. It runs in the background.")

    def _report(self, outcome: CallOutcome) -> None:
        if self._on_result is None:
            return
        try:
            answer = self._on_result(outcome)
            if isawaitable(answer):
                report = asyncio.ensure_future(_awaited(answer))
                self._reports.add(report)
                report.add_done_callback(self._reports.discard)
        except Exception:
            log.exception("on_result= failed")

    def _check(self, entry: Entry, arguments: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """Judge arguments by the tool's own schema. Return them, and words about what is wrong."""
        known = self._validators.use(entry.key)
        if known is None or known[0] is not entry.tool:
            try:
                validator = schemas.compile(entry.tool.input_schema, what=f"the input schema of {entry.name!r}")
            except schemas.SchemaError:
                validator = None  # The server judges alone.
            known = (entry.tool, validator)
            self._validators.put(entry.key, known)
        validator = known[1]
        if validator is None:
            return arguments, ""
        try:
            if validator.quick()(arguments):
                return arguments, ""
        except (TypeError, ValueError, RecursionError):
            pass  # What is wrong is said below.
        try:
            read, problems = schemas.reread(arguments, validator)
        except RecursionError:
            return arguments, "the arguments are too deeply nested"
        if not problems and isinstance(read, dict):
            return read, ""
        return arguments, "; ".join(schemas.sentence(problem, "arguments") for problem in problems)

    def _say_problem(self, entry: Entry, problem: str, target: Target) -> str:
        """Say what is wrong with the arguments, with the schema if the model lacks it."""
        text = f"The call was not made: {problem}"
        if self._catalogue.is_loaded(entry):
            return text
        self._catalogue.load([entry])
        return f"{text}. The input schema of {entry.name!r} is {json_text(entry.tool.input_schema)}"

    def _limit(self, parts: ResultParts) -> None:
        """Cut the texts of a result that is longer than it may be."""
        most = self._max_result_tokens
        if most is None:
            return
        texts = [part for part in parts.parts if part.text]
        whole = parts.structured
        if whole is not UNSET:
            text = json_text(whole)
            if self._count(text) > most:
                parts.structured = UNSET
                parts.parts.append(Part("text", text))
                texts = [part for part in parts.parts if part.text]
        total = sum(self._count(part.text) for part in texts)
        for part in sorted(texts, key=lambda part: -len(part.text)):
            if total <= most:
                return
            own = self._count(part.text)
            part.text = cut_text(part.text, max(50, most - (total - own)), self._count, self._keep)
            total += self._count(part.text) - own

    def _keep(self, text: str) -> str:
        """Keep a long text, and say how to read on."""
        key = secrets.token_urlsafe(9)
        self._kept.put(key, text)
        return f"read on with {READ_TOOL}(uri={RESULT_SCHEME + key!r}, offset=…), of {len(text):,} characters"

    # --- the toolset's own tools ---

    def _answer_own(self, answer: Answer, target: Target) -> ResultParts:
        """Answer a call of the toolset's own tools, or of an unknown name."""
        call = answer.call
        if call.arguments is None:
            return error_parts(f"The call was not made: {call.problem}")
        if call.is_search or call.name == SEARCH_TOOL:
            return self._answer_search(answer, call.arguments, target)
        if call.name == READ_TOOL and self._max_result_tokens is not None:
            return self._read_kept(call.arguments)
        return error_parts(self._say_unknown(call.name, target))

    def _answer_search(self, answer: Answer, arguments: Mapping[str, Any], target: Target) -> ResultParts:
        query, limit = arguments.get("query"), arguments.get("limit", 5)
        if not isinstance(query, str) or not query.strip():
            return error_parts("The call was not made: `query` has to be a text")
        most = limit if isinstance(limit, int) and 1 <= limit <= 20 else 5
        hits = self._catalogue.search(query, most)
        entries = [entry for entry, _ in hits]
        if answer.call.is_search:
            answer.loaded = [self._catalogue.convert(entry, target).definition(defer_loading=True) for entry in entries]
        elif target.name == "anthropic":
            answer.references = [self._catalogue.name_of(entry, target.names) for entry in entries]
        self._catalogue.load(entries)
        if not entries:
            return ResultParts([Part("text", f"No tool matches {query[:200]!r}. Try other words.")])
        lines = [
            f"- {self._catalogue.name_of(entry, target.names)} (server {entry.server or '-'}): "
            f"{_first_line(entry.tool)} [matched: {', '.join(hit.words) or 'name'}]"
            for entry, hit in hits
        ]
        return ResultParts([Part("text", "These tools can be called from now on:\n" + "\n".join(lines))])

    def _read_kept(self, arguments: Mapping[str, Any]) -> ResultParts:
        uri, offset = arguments.get("uri"), arguments.get("offset", 0)
        text = self._kept.use(uri.removeprefix(RESULT_SCHEME)) if isinstance(uri, str) else None
        if text is None:
            return error_parts("There is no result at this address, or it was kept too long ago: make the call again.")
        if not isinstance(offset, int) or isinstance(offset, bool) or not 0 <= offset < len(text):
            return error_parts(f"`offset` is a number from 0 to {len(text) - 1}")
        assert self._max_result_tokens is not None
        total = max(1, self._count(text[offset:]))
        size = max(200, len(text[offset:]) * self._max_result_tokens // total)
        end = min(len(text), offset + size)
        more = f"\n[{len(text) - end:,} characters follow: offset={end}]" if end < len(text) else ""
        return ResultParts([Part("text", text[offset:end] + more)])

    def _say_unknown(self, name: str, target: Target) -> str:
        for source in self._sources:
            if name in source.withheld or name.removeprefix(f"{source.name}_") in source.withheld:
                return f"The tool {name[:100]!r} is unavailable: it is not what was approved. Do without it."
        names = [*self._catalogue.names(target), *OWN_TOOLS]
        meant = nearest(name, names)
        return f"There is no tool {name[:100]!r}" + (f"; did you mean {meant!r}?" if meant else ".")

    # --- a loop ---

    async def run(
        self,
        model: Callable[[dict[str, Any]], Any],
        prompt: str | Sequence[Any],
        *,
        target: TargetName,
        max_turns: int = 20,
        request: Mapping[str, Any] | None = None,
    ) -> Run:
        """Let a model work on a prompt until it makes no more calls, for tests.

        `model` takes a request (`tools` and `messages`, `input` or `contents`, beside the members of `request`) and
        returns the response of its vendor; it may be `async`.
        """
        member = {"openai": "input", "gemini": "contents", "gemini-legacy": "contents"}.get(target, "messages")
        messages = [_user_message(prompt, target)] if isinstance(prompt, str) else list(prompt)
        response: Any = None
        for turn in range(1, max_turns + 1):
            tools = await self.definitions(target)
            response = model({**(request or {}), "tools": tools, member: list(messages)})
            if isawaitable(response):
                response = await response
            answers = await self.answer(response)
            if not answers:
                return Run(response, messages, turn, is_finished=True)
            messages += answers
        return Run(response, messages, max_turns, is_finished=False)


class BlockingToolset:
    """A `Toolset` whose methods wait, on the event loop of the blocking clients."""

    def __init__(self, toolset: Toolset) -> None:
        """`toolset` is the `Toolset` whose methods wait here; `Toolset.sync(...)` makes both."""
        self._toolset = toolset
        self._home: _SharedHome | None = None

    def __enter__(self) -> Self:
        # Imported here because most programs that run a loop are asynchronous.
        from toolwire.client.sync import _SharedHome

        self._home = _SharedHome.move_in()
        try:
            self._home.wait(self._toolset.connect())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that the toolset has opened."""
        home, self._home = self._home, None
        if home is not None:
            try:
                home.wait(self._toolset.close())
            finally:
                home.leave()

    def _wait(self, work: Coroutine[Any, Any, R]) -> R:
        if self._home is None:
            work.close()
            raise RuntimeError("the toolset is not open: use `with Toolset.sync(...)`")
        return self._home.wait(work)

    def definitions(self, target: TargetName) -> list[dict[str, Any]]:
        """Return `tools=` for an interface, as `Toolset.definitions`."""
        return self._wait(self._toolset.definitions(target))

    def answer(self, response: Any) -> list[dict[str, Any]]:
        """Make the calls of a response, as `Toolset.answer`."""
        return self._wait(self._toolset.answer(response))

    def run(
        self,
        model: Callable[[dict[str, Any]], Any],
        prompt: str | Sequence[Any],
        *,
        target: TargetName,
        max_turns: int = 20,
        request: Mapping[str, Any] | None = None,
    ) -> Run:
        """Let a model work on a prompt, as `Toolset.run`, but call it in a thread."""

        async def ask(asked: dict[str, Any]) -> Any:
            response = await asyncio.to_thread(model, asked)
            return await response if isawaitable(response) else response

        return self._wait(self._toolset.run(ask, prompt, target=target, max_turns=max_turns, request=request))

    def search(self, query: str, limit: int = 5) -> list[ToolHit]:
        """Return the tools that fit a query, as `Toolset.search`."""
        return self._toolset.search(query, limit)

    def cancel(self, id: str) -> bool:
        """Cancel a call that runs in another thread, as `Toolset.cancel`."""

        async def cancel() -> bool:
            return self._toolset.cancel(id)

        return self._wait(cancel())

    def state(self) -> dict[str, Any]:
        """Return what is loaded, as `Toolset.state`."""
        return self._toolset.state()

    @property
    def losses(self) -> list[Loss]:
        """The rules that could not be said to an interface."""
        return self._toolset.losses

    @property
    def usage(self) -> dict[str, Usage]:
        """Calls and estimated tokens of each server."""
        return self._toolset.usage

    @property
    def missing(self) -> dict[str, str]:
        """The servers that cannot be reached, each with the reason."""
        return self._toolset.missing

    @property
    def unavailable(self) -> dict[tuple[str, str], str]:
        """The tools that are withheld, each with what has changed."""
        return self._toolset.unavailable


def _user_message(prompt: str, target: str) -> dict[str, Any]:
    if target.startswith("gemini"):
        return {"role": "user", "parts": [{"text": prompt}]}
    return {"role": "user", "content": prompt}


def _family(target: Target) -> str:
    return "gemini" if target.name == "gemini-legacy" else target.name


def _read_allow(
    allow: Collection[str] | Callable[[str, t.Tool], bool] | None, servers: Callable[[], Collection[str]]
) -> Callable[[str, t.Tool], bool]:
    if allow is None:
        return lambda server, tool: True
    if callable(allow):
        return plain_callback(allow, "allow=")
    names = ToolNames(allow, servers)
    return lambda server, tool: names.has(server, tool.name)


def _first_line(tool: t.Tool) -> str:
    text = tool.description if isinstance(tool.description, str) else ""
    return text.strip().partition("\n")[0][:200]


async def _awaited(work: Awaitable[Any]) -> None:
    try:
        await work
    except Exception:
        log.exception("on_result= failed")
