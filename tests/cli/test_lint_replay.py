"""`toolwire lint` finds calls that run again when a question is answered on 2026-07-28."""

from __future__ import annotations

import ast
import json
import textwrap
from pathlib import Path

from tests.cases import cases
from tests.cli.command import Command

from toolwire.cli.lint_replay import check_module

ASKS = ["ctx.elicit('Sure?')", "ctx.sample('Sure?')", "ctx.list_roots()", "ctx.elicit_url('Go', url)"]


def found(body: str, head: str = "async def buy(ctx: Context, card, xs=()):", before: str = "") -> dict[str, str]:
    """Return the calls in the body of a handler that run again, each with the level of its finding."""
    source = f"{before}\n{head}\n{textwrap.indent(textwrap.dedent(body), '    ')}\n"
    findings = list(check_module(ast.parse(source), "server.py"))
    assert {finding.rule for finding in findings} <= {"replayed-call"}
    return {finding.message.partition("(")[0]: finding.level for finding in findings}


@cases("ask", ASKS)
def test_a_call_before_a_question_is_reported(ask: str) -> None:
    assert found(f"charge(card)\nawait {ask}") == {"charge": "warning"}
    assert found(f"charge(card)\nreturn {ask}", "def buy(card, ctx: SyncContext):") == {"charge": "warning"}
    assert found(f"await {ask}\ncharge(card)") == {}
    assert found(f"await ctx.step('charge', lambda: charge(card))\nawait {ask}") == {}


@cases(
    ("body", "calls"),
    [
        ("await db.execute('x')\nawait ctx.elicit('?')", {"db.execute": "warning"}),
        ("frobnicate(card)\nawait ctx.elicit('?')", {"frobnicate": "hint"}),
        ("await asyncio.to_thread(send, card)\nawait ctx.elicit('?')", {"send": "warning"}),
        ("await ctx.elicit(f'{charge(card)}?')", {"charge": "warning"}),
        # Between two questions.
        ("await ctx.elicit('?')\ncharge(card)\nawait ctx.elicit('?')", {"charge": "warning"}),
        ("for x in xs:\n    await ctx.elicit('?')\n    charge(x)", {"charge": "warning"}),
        ("while True:\n    if await ctx.elicit('?'):\n        charge(card)\n        continue", {"charge": "warning"}),
        # On some path.
        ("if card:\n    charge(card)\nawait ctx.elicit('?')", {"charge": "warning"}),
        ("try:\n    charge(card)\nexcept Failed:\n    pass\nawait ctx.elicit('?')", {"charge": "warning"}),
        ("async with lock:\n    charge(card)\nawait ctx.elicit('?')", {"charge": "warning"}),
        ("match card:\n    case 1:\n        charge(card)\nawait ctx.elicit('?')", {"charge": "warning"}),
        ("charge(card)\nawait asyncio.gather(ctx.elicit('?'), ctx.elicit('!'))", {"charge": "warning"}),
        ("shared.append(card)\nawait ctx.elicit('?')", {"shared.append": "warning"}),
    ],
)
def test_calls_that_may_run_before_a_question_are_reported(body: str, calls: dict[str, str]) -> None:
    assert found(body) == calls


@cases(
    "body",
    [
        "if card:\n    charge(card)\n    return\nawait ctx.elicit('?')",
        "if card:\n    charge(card)\nelse:\n    await ctx.elicit('?')",
        "if not card:\n    raise ToolError(explain(card))\nawait ctx.elicit('?')",
        "log.info('x')\nlogging.getLogger('a').warning('x')\nprint(len(xs))\nawait ctx.elicit('?')",
        "await ctx.progress(1)\nawait ctx.info('x')\nawait ctx.elicit(f'{ctx.principal}?')",
        "price = await get_price(card)\nrows = db.fetch_all('x')\nawait ctx.elicit(f'{price:.2f}?')",
        "kept = []\nkept.append(card)\nTrip(kept)\nawait ctx.elicit(', '.join(kept))",
        "def later():\n    charge(card)\nawait ctx.elicit('?')",
        "await ctx.step('charge', partial(charge, card))\nawait ctx.elicit('?')",
    ],
)
def test_harmless_calls_are_not_reported(body: str) -> None:
    assert found(body) == {}


def test_questions_of_helper_functions_count() -> None:
    helpers = "async def sure(ctx: Context): await ctx.elicit('?')\nasync def ask(c: Context): await sure(c)"
    assert found("charge(card)\nawait ask(ctx)", before=helpers) == {"charge": "warning"}
    assert found("charge(card)\nawait ask(card)", before=helpers) == {}


@cases(
    ("options", "is_found"),
    [("replay=False", False), ("task='required'", False), ("task='required', detaches=True", True), ("", True)],
)
def test_handlers_that_never_run_twice_are_not_reported(options: str, is_found: bool) -> None:
    calls = found("charge(card)\nawait ctx.elicit('?')", before=f"@server.tool({options})")
    assert calls == ({"charge": "warning"} if is_found else {})


SERVER = """
from toolwire import Server, Context
from shop import order, pay
server = Server("s", tools=[order])
"""
SHOP = """
from toolwire import Context

def pay() -> None: ...

async def order(ctx: Context) -> str:
    '''Order a thing from the shop. Returns what was ordered.'''
    pay()
    return str(await ctx.elicit("Sure?", bool))
"""


def test_the_command_reads_the_modules_of_a_server_file(tmp_path: Path, toolwire: Command) -> None:
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    done = toolwire("lint", str(tmp_path / "server.py"), "--json", "--strict")
    assert done.status == 1, done.out
    (finding,) = [each for each in json.loads(done.out)["findings"] if each["rule"] == "replayed-call"]
    assert (finding["level"], finding["tool"]) == ("warning", "order")
    assert finding["message"].startswith(
        "pay() in shop.py, line 8, runs again with the answer to ctx.elicit() in line 9 on 2026-07-28"
    )


def test_a_file_that_cannot_be_read_as_python_is_left_alone(tmp_path: Path, toolwire: Command) -> None:
    (tmp_path / "shop.py").write_text(SHOP.replace("    pay()\n", ""), encoding="utf-8")
    (tmp_path / "odd.py").write_text("def (", encoding="utf-8")
    (tmp_path / "server.py").write_text(
        "try:\n    import odd\nexcept SyntaxError:\n    pass\n" + SERVER, encoding="utf-8"
    )
    done = toolwire("lint", str(tmp_path / "server.py"), "--json")
    assert "replayed-call" not in done.out
