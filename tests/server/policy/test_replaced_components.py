"""Calls whose component is replaced while policies wait: records have what becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from tests.cases import cases
from tests.gateway.backs import until
from tests.server.tasks.talking import DIALECTS, begin, outcome, talk, text_in

from toolwire import Context, Policy, Server
from toolwire.audit import AuditLog


class Scene:
    """A server whose tool `work` is another one by the time that a call of it was approved."""

    def __init__(self, work: Callable[..., Any], **options: Any) -> None:
        self.lines: list[dict[str, Any]] = []
        self.ran: list[str] = []
        audit = AuditLog(self._take, key="k" * 32)
        self.server = Server("s", policy=Policy(approve=self._approve), audit=audit)
        self.server.tool(lambda: "the one before", name="work", task=options.get("task"))
        self._replace: Callable[[], Any] | None = lambda: self.server.tool(name="work", **options)(work)

    def _take(self, line: bytes) -> None:
        entry = msgspec.json.decode(line)
        if "method" in entry:
            self.lines.append(entry)

    async def _approve(self, *_: Any) -> bool:
        if self._replace is not None:
            self.server.remove("work")
            self._replace()
            self._replace = None
        return True


async def fail() -> str:
    raise RuntimeError("boom")


async def ruby() -> str:
    return "ruby"


async def refuse(ctx: Context, call: Any) -> bool:
    return False


@cases("revision", DIALECTS)
@cases("policy", [None, Policy(mask=["sky"])])
async def test_record_names_the_error_of_the_component_that_ran(revision: str, policy: Policy | None) -> None:
    scene = Scene(fail, policy=policy)
    async with talk(scene.server, revision) as client:
        answer = str(await client.call("work"))
        await until(lambda: scene.lines)
    [line] = scene.lines
    assert line["outcome"] == "failed"
    assert line["errorId"] in answer


@cases("revision", DIALECTS)
async def test_record_says_why_the_policy_of_the_component_refused_the_call(revision: str) -> None:
    scene = Scene(ruby, policy=Policy(approve=refuse))
    async with talk(scene.server, revision) as client:
        await client.call("work")
        await until(lambda: scene.lines)
    assert [(line["outcome"], line["reason"]) for line in scene.lines] == [("refused", "approval")]


@cases("revision", DIALECTS)
@cases("is_broken", [False, True])
async def test_task_of_the_component_that_ran_has_both_its_lines(revision: str, is_broken: bool) -> None:
    go_on = asyncio.Event()

    async def work() -> str:
        await go_on.wait()
        return await (fail() if is_broken else ruby())

    scene = Scene(work, task="required", policy=Policy(mask=["ruby"]))
    async with talk(scene.server, revision) as client:
        task = await begin(client, "work")
        await until(lambda: scene.lines)
        go_on.set()
        answer = text_in(await outcome(client, task))
        await until(lambda: len(scene.lines) == 2)
    began, ended = scene.lines
    assert (began["outcome"], began["task"]) == ("task", task)
    assert (ended["outcome"], ended["task"]) == ("failed" if is_broken else "ok", task)
    assert (ended["errorId"] in answer) if is_broken else answer == "[redacted]"


@cases("revision", DIALECTS)
async def test_second_try_of_a_middleware_is_held_to_the_policy_of_the_component(revision: str) -> None:
    asked: list[str] = []

    async def approve(ctx: Context, call: Any) -> bool:
        asked.append(call.name)
        return True

    scene = Scene(ruby, policy=Policy(mask=["ruby"], approve=approve))

    async def twice(ctx: Any, call_next: Any) -> Any:
        await call_next(ctx)
        return await call_next(ctx)

    scene.server.use(twice)
    async with talk(scene.server, revision) as client:
        assert text_in(await client.call("work")) == "[redacted]"
    assert asked == ["work", "work"]
