"""`toolwire request`: any method of any server; and the extensions in `toolwire list`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.cli.command import Command

from toolwire import Context, Server

NAME = "org.example/jobs"


def jobs(seen: list[Any] | None = None, *, needs_client: bool = False) -> Server:
    """A server that mounts one with an extension."""
    server = Server("jobs")
    extension = server.extension(NAME, {"max": 3}, needs_client=needs_client)

    @extension.method("jobs/get")
    async def get(params: Any, ctx: Context) -> dict[str, Any]:
        await ctx.progress(1, 2)
        return {"got": params.extra, "declared": ctx.client_capabilities.get("extensions")}

    @extension.notification("notifications/jobs/done")
    def done(params: Any) -> None:
        (seen if seen is not None else []).append(params.extra)

    return Server("office").mount(server)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_method_of_an_extension_is_sent(toolwire: Command, revision: str) -> None:
    toolwire.serves(jobs())
    done = toolwire("request", "server", "jobs/get", "--revision", revision, "job=7", "count:=[1, 2.5]", '{"more": {}}')
    assert (done.status, json.loads(done.out)["got"]) == (0, {"job": "7", "count": [1, 2.5], "more": {}})


def test_a_notification_is_sent(toolwire: Command) -> None:
    seen: list[Any] = []
    toolwire.serves(jobs(seen))
    done = toolwire("request", "server", "notifications/jobs/done", "job=7")
    assert (done.status, done.out, seen) == (0, "", [{"job": "7"}])


def test_an_extension_can_be_declared(toolwire: Command) -> None:
    toolwire.serves(jobs(needs_client=True))
    refused = toolwire("request", "server", "jobs/get")
    assert refused.status == 1
    assert f"declare it with --extension {NAME}" in refused.err
    done = toolwire("request", "server", "jobs/get", "--extension", f'{NAME}={{"level": 2}}')
    assert json.loads(done.out)["declared"][NAME] == {"level": 2}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("jobs/none",), "Method not found: jobs/none"),
        (("initialize",), "initialize belongs to the connection"),
        (("tools/List",), "The protocol spells 'tools/List' as 'tools/list'"),
        (("jobs/get", "--extension", "jobs"), "jobs"),
        (("jobs/get", "--extension", f"{NAME}=[1]"), f"the settings of the extension {NAME} are not a JSON object"),
    ],
)
def test_mistakes_are_named(toolwire: Command, words: tuple[str, ...], text: str) -> None:
    toolwire.serves(jobs())
    done = toolwire("request", "server", *words)
    assert done.status != 0
    assert text in done.err


def test_extensions_are_listed(toolwire: Command) -> None:
    toolwire.serves(jobs())
    shown = toolwire("list", "server").out
    assert "1 extension" in shown
    assert NAME in shown
    assert '{"max":3}' in shown
    assert NAME not in toolwire("list", "server", "tools").out
    assert json.loads(toolwire("list", "server", "--json").out)["capabilities"]["extensions"] == {NAME: {"max": 3}}
