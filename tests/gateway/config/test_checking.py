"""What the check of a file finds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.gateway.backs import everything
from tests.gateway.test_isolation import CHILD

from toolwire import Server, testing
from toolwire.gateway.config.checking import Checked, check_file
from toolwire.gateway.config.reading import Problem
from toolwire.redaction import MASK

AWAY = {"url": "http://127.0.0.1:1/mcp"}
KEYS = {"api_keys": {"keys": {"ann": {"key": {"env": "KEY_OF_ANN"}}}}}
UPSTREAM = {
    "authorize_url": "https://login.example/authorize",
    "token_url": "https://login.example/token",
    "client_id": "gateway",
    "client_secret": {"env": "KEY_OF_ANN"},
}
SIGNED = {"issuer": "https://login.example", "audience": "x"}


def found(checked: Checked) -> list[tuple[str, str]]:
    return [(each.level, each.place) for each in checked.problems]


@pytest.mark.covers("GW-9.20")
@pytest.mark.parametrize(
    ("content", "expected", "text"),
    [
        ({"mcpServers": {"a": {**AWAY, "prefx": ""}}}, [("error", "mcpServers.a.prefx")], "did you mean 'prefix'"),
        ({"mcpServers": {"a": AWAY}, "gateway": {"nam": "x"}}, [("error", "gateway.nam")], "did you mean 'name'"),
        ({"mcpServers": {}}, [("error", "")], "names no server"),
        (
            {"mcpServers": {"a": {"url": "ftp://a"}, "b": {}}, "gateway": {"secret": {"env": "KEY_OF_ANN"}}},
            [("error", "gateway.secret"), ("error", "mcpServers.a"), ("error", "mcpServers.b")],
            "at least 16 bytes",
        ),
        (
            {"mcpServers": {"a": {**AWAY, "headers": {"X-Key": "${NOT_SET_ANYWHERE}"}}}},
            [("error", "mcpServers.a.headers.X-Key")],
            "NOT_SET_ANYWHERE is not set",
        ),
        (
            {"mcpServers": {"a": {**AWAY, "headers": {"Authorization": "s3cret", "X-Tenant": "acme"}}}},
            [("warning", "mcpServers.a.headers.Authorization")],
            "in clear",
        ),
        ({"mcpServers": {"a": {"command": "x", "env": {"API_KEY": "s3cret", "A": "b"}}}},
         [("warning", "mcpServers.a.env.API_KEY")], "in clear"),
        ({"mcpServers": {"a": {"url": "http://127.0.0.1:1/mcp?token=s3cret"}}},
         [("warning", "mcpServers.a.url")], "in clear"),
        ({"mcpServers": {"a": AWAY}, "gateway": {"secret": "0123456789abcdef"}},
         [("warning", "gateway.secret")], "in clear"),
        ({"mcpServers": {"a": AWAY}, "gateway": {"stores": "redis://:s3cret@localhost:1/0"}},
         [("warning", "gateway.stores")], "in clear"),
        ({"mcpServers": {"a": AWAY}, "gateway": {"stores": "state.db"}}, [], ""),
        ({"mcpServers": {"a": AWAY}, "gateway": {"auth": KEYS}}, [], ""),
        (
            {"mcpServers": {"a": {**AWAY, "prefix": ""}, "b": {**AWAY, "prefix": ""}}},
            [("warning", "mcpServers.b.prefix")],
            "'a' has the prefix '', too",
        ),
        (
            {"mcpServers": {"a": {**AWAY, "credentials": {"kind": "user_secret"}}}},
            [("error", "mcpServers.a.credentials")],
            "needs gateway.auth",
        ),
        ({"mcpServers": {"a": {**AWAY, "credentials": {"kind": "user_secret"}}}, "gateway": {"auth": KEYS}}, [], ""),
        ({"mcpServers": {"a": {"url": "http://localhost:8000/mcp"}}}, [("error", "mcpServers.a.url")], "itself"),
        (
            {"mcpServers": {"a": {"url": "https://g.example/mcp"}}, "http": {"public_url": "https://g.example/mcp"}},
            [("error", "mcpServers.a.url")],
            "itself",
        ),
        ({"mcpServers": {"a": AWAY}, "gateway": {"auth": {"proxy": UPSTREAM, "jwt": SIGNED}}}, [("error", "http")], ""),
        ({"mcpServers": {"a": AWAY}, "http": {"trusted_proxies": ["x"]}}, [("error", "http")], ""),
    ],
)  # fmt: skip
async def test_mistakes_are_found_without_reaching_a_server(
    content: dict[str, Any], expected: list[tuple[str, str]], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_OF_ANN", "key-of-ann")
    checked = await check_file(content, offline=True)
    assert found(checked) == expected
    assert text in str(checked.problems)
    assert "s3cret" not in str(checked.problems)
    assert checked.is_good is all(level == "warning" for level, _ in expected)


async def test_a_gateway_that_starts_itself_is_found(tmp_path: Path) -> None:
    file = tmp_path / "gateway.json"
    entry = {"command": "toolwire", "args": ["gateway", "gateway.json", "--transport", "stdio"], "cwd": str(tmp_path)}
    file.write_text(json.dumps({"mcpServers": {"a": entry}}))
    assert found(await check_file(file, offline=True)) == [("error", "mcpServers.a.args")]


async def test_secrets_that_others_can_read(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0123456789abcdef")
    (tmp_path / "key").chmod(0o644)
    file = tmp_path / "gateway.toml"
    file.write_text('mcpServers.a.url = "http://127.0.0.1:1/mcp"\ngateway.secret = { file = "key" }\n')
    checked = await check_file(file, offline=True)
    assert [(each.level, "'key'" in each.text) for each in checked.problems] == [("warning", True)]


async def test_a_file_that_is_not_there() -> None:
    checked = await check_file("nowhere.toml")
    assert checked.problems == [Problem("'nowhere.toml' cannot be read: No such file or directory")]
    assert not checked.is_good


async def test_a_tool_with_a_name_of_the_search_is_named() -> None:
    server = Server("taker")
    server.tool("tools")(lambda: "taken")
    async with testing.connect(server, over="port") as (direct, _):
        url = repr(direct).removeprefix("<Client of ").partition(",")[0]
        checked = await check_file(
            {
                "mcpServers": {"search": {"url": url}},
                "gateway": {"auth": {"anonymous": {}}, "search": {"mode": "always"}},
            }
        )
    assert [(each.place, each.text) for each in checked.problems] == [
        (
            "mcpServers.search.prefix",
            "the search has 'search_tools', too, so that nobody can use this one: give one another prefix",
        )
    ]


@pytest.mark.covers("GW-9.20")
async def test_servers_are_reached_and_their_names_compared() -> None:
    async with testing.connect(everything(), over="port") as (direct, _):
        url = repr(direct).removeprefix("<Client of ").partition(",")[0]
        content = {
            "mcpServers": {
                "first": {"url": url, "prefix": ""},
                "second": {"url": url, "prefix": ""},
                "gone": AWAY,
                "users": {**AWAY, "credentials": {"kind": "user_secret"}},
                "there": {"url": url, "credentials": {"kind": "user_secret"}},
                "shaped": {"url": url, "tools": {"ad": {"title": "Add"}}},
            },
            "gateway": {"auth": {"anonymous": {}}, "strict": True},
        }
        checked = await check_file(content)
    assert checked.backs["first"].state == "ready"
    assert checked.backs["first"].tools > 3
    errors = {each.place: each.text for each in checked.problems}
    assert errors.keys() == {
        "mcpServers.second.prefix",
        "mcpServers.gone",
        "mcpServers.users",
        "mcpServers.shaped.tools.ad",
    }
    assert "'ad'" in errors["mcpServers.shaped.tools.ad"]
    assert "not reached" in errors["mcpServers.gone"]
    assert {each.level for each in checked.problems} == {"error"}


@cases(
    ("options", "least", "most", "warns"),
    [
        ({}, 101, 101, False),
        ({"isolation": "conversation", "max_processes": 9}, 10, 10, False),
        ({"isolation": "principal"}, 101, 101, False),
        ({"isolation": "shared"}, 1, 1, True),
        ({"isolation": "shared", "max_processes": 3}, 3, 3, True),
    ],
)
async def test_processes_of_commands_are_estimated(
    tmp_path: Path, options: dict[str, Any], least: int, most: int, warns: bool
) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD)
    entry = {"command": sys.executable, "args": [str(script)], "revision": "2025-11-25", **options}
    checked = await check_file({"mcpServers": {"b": entry}})
    estimate = checked.estimates["b"]
    assert (estimate.least, estimate.most) == (least, most)
    if sys.platform == "linux":
        assert estimate.bytes_each is not None and 2**20 < estimate.bytes_each < 2**30
        assert f"{most} process" in str(estimate) and "MiB each" in str(estimate)
    texts = [(each.level, each.place) for each in checked.problems]
    assert texts == ([("warning", "mcpServers.b.isolation")] if warns else [])


async def test_processes_of_a_server_of_both_eras_are_estimated(tmp_path: Path) -> None:
    script = tmp_path / "both.py"
    script.write_text("from toolwire import Server\nserver = Server('both')\nserver.run()\n")
    entry = {"command": sys.executable, "args": [str(script)]}
    shared, pinned = {**entry, "isolation": "shared"}, {**entry, "revision": "2026-07-28"}
    checked = await check_file({"mcpServers": {"b": entry, "shared": shared, "pinned": pinned}})
    found = {name: (each.least, each.most) for name, each in checked.estimates.items()}
    assert found == {"b": (1, 101), "shared": (1, 1), "pinned": (1, 1)}
    assert str(checked.estimates["b"]).startswith("100 sessions: 1 to 101 processes")
    assert checked.problems == []


async def test_cost_of_the_list_is_estimated(tmp_path: Path) -> None:
    script = tmp_path / "both.py"
    script.write_text(
        "from toolwire import Server\nserver = Server('many')\n"
        "for number in range(40):\n    server.tool(f'tool_{number}')(lambda: 1)\n"
        "server.tool('first', pinned=True)(lambda: 1)\nserver.run()\n"
    )
    file = {"mcpServers": {"b": {"command": sys.executable, "args": [str(script)]}}}
    cost = (await check_file(file)).cost
    assert cost is not None and cost.tools == 41
    assert 500 < cost.tokens < 2_000
    assert 150 < cost.with_search < 400
    pinned = (await check_file({**file, "gateway": {"search": {"mode": "auto", "pinned": ["*"]}}})).cost
    assert pinned is not None and pinned.with_search == pinned.tokens == cost.tokens
    assert (await check_file(file, offline=True)).cost is None


async def test_tools_that_are_left_out_are_named(tmp_path: Path) -> None:
    script = tmp_path / "child.py"
    script.write_text(CHILD.replace('"inputSchema": {"type": "object"}', '"inputSchema": 7 if n == "fork" else {}'))
    checked = await check_file({"mcpServers": {"b": {"command": sys.executable, "args": [str(script)]}}})
    (problem,) = checked.problems
    assert problem.level == "warning" and "'fork' is left out" in problem.text and problem.place == "mcpServers.b"
    assert checked.backs["b"].tools == 2 and checked.is_good


async def test_command_with_restrictions_is_an_error_with_its_remedy(tmp_path: Path) -> None:
    script = tmp_path / "strict.py"
    script.write_text(
        "from toolwire import Server\nserver = Server('strict')\n"
        "server.tool(name='purge', scopes=['admin'])(lambda: 'purged')\nserver.run()\n"
    )
    checked = await check_file({"mcpServers": {"b": {"command": sys.executable, "args": [str(script)]}}})
    (problem,) = checked.problems
    assert (problem.level, problem.place) == ("error", "mcpServers.b")
    assert "toolwire run FILE --as SUBJECT" in problem.text and not checked.is_good


async def test_shared_legacy_server_is_warned_of_without_reaching_it() -> None:
    entry = {"url": "http://localhost:1/mcp", "revision": "2025-06-18", "isolation": "shared"}
    checked = await check_file({"mcpServers": {"b": entry}}, offline=True)
    (problem,) = checked.problems
    assert problem.level == "warning" and "share one session" in problem.text and '"conversation"' in problem.text


SHAPED = """\
[mcpServers.back]
url = "{url}"
allow = ["add", "wrods",
         "tag:none"]
deny = ["delet_*"]
allow_prompts = ["breif"]

[mcpServers.back.tools.words]
title = "Words"

[mcpServers.back.tools.add]
title = "Add"

[mcpServers.back.tools.add.arguments.aa]
hidden = true

[mcpServers.back.tools.fali]
title = "Fail"

[gateway]
auth = {{ anonymous = {{}} }}
secret = {{ env = "KEY_OF_SHAPED" }}
"""


@pytest.mark.covers("GW-9.20")
async def test_each_mistake_in_a_shape_has_its_own_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_SHAPED", "0123456789abcdef0123456789abcdef")
    path = tmp_path / "gateway.toml"
    async with testing.connect(everything(), over="port") as (direct, _):
        path.write_text(SHAPED.format(url=repr(direct).removeprefix("<Client of ").partition(",")[0]))
        checked = await check_file(path)
    assert [(each.level, each.line, each.place) for each in checked.problems] == [
        ("warning", 3, "mcpServers.back.allow[1]"),
        ("warning", 4, "mcpServers.back.allow[2]"),
        ("warning", 5, "mcpServers.back.deny[0]"),
        ("warning", 6, "mcpServers.back.allow_prompts[0]"),
        ("error", 14, "mcpServers.back.tools.add.arguments.aa"),
        ("error", 17, "mcpServers.back.tools.fali"),
    ]
    texts = [each.text for each in checked.problems]
    assert texts[0] == "allow: 'wrods' matches no tool: did you mean 'words'?"
    assert texts[2] == "deny: 'delet_*' matches no tool"
    assert set(checked.backs["back"].faults) == set(texts)


async def test_a_store_that_is_not_reached_is_found() -> None:
    content = {"mcpServers": {"a": AWAY}, "gateway": {"stores": "redis://127.0.0.1:1/0"}}
    checked = await check_file(content, seconds=0.1)
    assert ("error", "gateway.stores") in found(checked)


async def test_what_a_command_wrote_is_shown_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_A_COMMAND", "hunter2hunter2")
    entry = {"command": sys.executable, "args": ["-c", "import sys; sys.exit(sys.argv[1])", "${SECRET_OF_A_COMMAND}"]}
    checked = await check_file({"mcpServers": {"a": entry}})
    assert MASK in str(checked.backs["a"].error)
    assert "hunter2" not in str(checked)
