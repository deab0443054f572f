"""`toolwire lint` finds methods of the context that an async handler calls without `await`."""

from __future__ import annotations

import ast
import json
import textwrap
from pathlib import Path

from tests.cases import cases
from tests.cli.command import Command

from toolwire.cli.lint_awaits import METHODS, check_module


def found(body: str, head: str = "async def buy(ctx: Context, xs=()):") -> list[str]:
    """Return the calls in the body of a handler that are reported."""
    source = f"{head}\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
    findings = list(check_module(ast.parse(source), "server.py"))
    assert {(finding.rule, finding.level) for finding in findings} <= {("missing-await", "warning")}
    return [finding.message.partition("(")[0] for finding in findings]


def test_all_methods_that_return_a_coroutine_are_known() -> None:
    assert {"elicit", "elicit_url", "sample", "list_roots", "info", "log", "progress", "step", "detach"} <= METHODS
    assert not {"current", "supports", "track"} & METHODS


@cases(
    ("body", "calls"),
    [
        ("return f'hello {ctx.elicit(\"Who?\", str)}'", ["ctx.elicit"]),
        ("return f'hello {ctx.elicit(\"Who?\", str).data}'", ["ctx.elicit"]),
        ("return 'hello {}'.format(ctx.sample('?'))", ["ctx.sample"]),
        ("return 'hello ' + str(ctx.sample('?'))", ["ctx.sample"]),
        ("ctx.info('x')\nctx.progress(1)", ["ctx.info", "ctx.progress"]),
        ("if ctx.elicit('?', bool):\n    pass", ["ctx.elicit"]),
        ("if xs and not ctx.elicit('?'):\n    pass", ["ctx.elicit"]),
        ("if (answer := ctx.elicit('?')).accepted:\n    pass", ["ctx.elicit"]),
        ("for root in ctx.list_roots():\n    pass", ["ctx.list_roots"]),
        ("return [root.uri for root in ctx.list_roots()]", ["ctx.list_roots"]),
        ("return ctx.list_roots()[0]", ["ctx.list_roots"]),
        ("return ctx.step('x', xs)", ["ctx.step"]),
        ("return xs or ctx.sample('?')", ["ctx.sample"]),
        ("answer = ctx.elicit('?')\nif answer.accepted:\n    return answer.data", ["ctx.elicit"]),
        ("answer: Elicited = ctx.elicit('?')\nreturn f'{answer}'", ["ctx.elicit"]),
        ("answer = ctx.elicit('?')", ["ctx.elicit"]),
        ("def later():\n    ctx.info('x')\nawait run(later)", ["ctx.info"]),
    ],
)
def test_a_method_that_is_called_without_await_is_reported(body: str, calls: list[str]) -> None:
    assert found(body) == calls


@cases(
    "body",
    [
        "return f'hello {await ctx.elicit(\"Who?\", str)}'",
        "await ctx.info('x')\nawait (ctx.info('x') if xs else ctx.error('x'))",
        "await asyncio.gather(ctx.info('x'), *[ctx.info(x) for x in xs])",
        "task = asyncio.create_task(ctx.elicit('?'))\nawait task",
        "async with asyncio.TaskGroup() as group:\n    group.create_task(ctx.info('x'))",
        "answer = ctx.elicit('?')\nprint('asking')\nreturn (await answer).data",
        "pending = ctx.info('x')\nawait asyncio.wait_for(pending, 1)",
        "pending = ctx.info('x') if xs else None\nif pending is not None:\n    await pending",
        "answer = ctx.elicit('?')\nanswer = answer\nreturn await answer",
        "unused = ctx.info('x')\nunused.close()",
        "def ask():\n    return ctx.elicit('?')\nreturn await ask()",
        "await run(lambda: ctx.info('x'))",
        "progress = ctx.track(3)\nprogress.advance()\nreturn f'{ctx.principal}'",
        "def inner(ctx: Log):\n    ctx.info('x')\ninner(log)",
    ],
)
def test_a_coroutine_that_may_be_awaited_is_not_reported(body: str) -> None:
    assert found(body) == []


@cases(
    "head",
    ["def buy(ctx: SyncContext):", "def buy(ctx: Context):", "async def buy(ctx: Log):", "async def buy(ctx):"],
)
def test_handlers_without_a_context_to_await_are_not_reported(head: str) -> None:
    assert found("ctx.info('x')", head) == []


SERVER = """
from toolwire import Context, Server
server = Server("s")

@server.tool
async def greet(ctx: Context) -> str:
    '''Greet a person by name. Returns the greeting.'''
    return f"hello {ctx.elicit('Who?', str)}"
"""


def test_the_command_reports_a_missing_await(tmp_path: Path, toolwire: Command) -> None:
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    done = toolwire("lint", str(tmp_path / "server.py"), "--json", "--strict")
    assert done.status == 1, done.out
    (finding,) = [each for each in json.loads(done.out)["findings"] if each["rule"] == "missing-await"]
    assert (finding["level"], finding["tool"]) == ("warning", "greet")
    assert finding["message"] == (
        "ctx.elicit() in server.py, line 8, is called without await, so that it does nothing and its result is a "
        "coroutine: write `await ctx.elicit(...)`"
    )
