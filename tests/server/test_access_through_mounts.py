"""Every server on the way to a component enforces its rules: A mounts B, B mounts C, and C owns everything.

One table: the server that has the rule, what the rule says, prefixes or none, the revision, the transport, the caller,
and every way to reach a component.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

import pytest
from tests.cases import cases
from tests.server.tasks.talking import CORE, Over, begin, changes, open_to, outcome, reaches
from tests.wireclient import MODERN, Message, WireClient

from toolwire import Context, Limits, Policy, Server, Tool
from toolwire.auth import Principal
from toolwire.protocol.errors import (
    CALL_FORBIDDEN,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    RESOURCE_NOT_FOUND,
    ProtocolError,
)

Verdict: TypeAlias = Literal["usable", "refused", "hidden"]
Rule: TypeAlias = Literal["visible_to", "scopes"]

# The same user in two applications: only one of them was granted the scope.
RIGHT = Principal("ann", scopes=frozenset({"admin"}))
WRONG = Principal("ann", scopes=frozenset({"other"}))
CALLERS = {"nobody": None, "wrong": WRONG, "right": RIGHT}


def owner(**options: Any) -> Server:
    """A server with one tagged component of each kind."""
    server = Server("C", **options)

    @server.tool(tags=["t"])
    async def work() -> str:
        return "done"

    @server.tool(tags=["t"], task="optional")
    async def slow(wait: bool) -> str:
        if wait:
            await asyncio.Event().wait()
        return "done"

    @server.resource("note://one", tags=["t"])
    async def note() -> str:
        return "note"

    @server.resource("page://{name}", tags=["t"])
    async def page(name: str) -> str:
        return name

    @server.prompt(tags=["t"])
    async def ask(city: str) -> str:
        return city

    server.completion(prompt="ask", argument="city")(lambda partial: ["Oslo"])
    server.completion(template="page://{name}", argument="name")(lambda partial: ["one"])
    return server


class Tower:
    """Three servers, one in the other, with a rule in one of them."""

    def __init__(self, prefixes: bool, rules: Callable[[dict[str, Server]], object], **options: Any) -> None:
        self.prefix = "b_c_" if prefixes else ""
        self.servers = {"A": Server("A", **options), "B": Server("B"), "C": owner()}
        self.servers["B"].mount(self.servers["C"], "c" if prefixes else None)
        self.servers["A"].mount(self.servers["B"], "b" if prefixes else None)
        rules(self.servers)

        @self.root.tool
        async def fetch(uri: str, ctx: Context) -> str:
            return str((await ctx.read_resource(uri))[0].text)

    @property
    def root(self) -> Server:
        return self.servers["A"]


def verdict(response: Message) -> Verdict:
    """How a request was answered, in the words of the table."""
    if "error" in response:
        code = response["error"]["code"]
        assert code in (CALL_FORBIDDEN, INVALID_PARAMS, RESOURCE_NOT_FOUND, METHOD_NOT_FOUND), response
        return "refused" if code == CALL_FORBIDDEN else "hidden"
    return "hidden" if response["result"].get("isError") else "usable"


async def listed(client: WireClient, method: str, family: str, key: str, name: str) -> Verdict:
    names = [each[key] for each in (await client.result(method))[family]]
    return "usable" if name in names else "hidden"


def completing(kind: str, key: str, name: str, argument: str) -> Message:
    return {"ref": {"type": kind, key: name}, "argument": {"name": argument, "value": ""}}


async def told(client: WireClient, tower: Tower) -> Verdict:
    """Whether the client hears of an update, by the way that its revision has."""
    wanted = ["note://one", "note://open"]
    if client.revision == MODERN:
        waiting = client.start("subscriptions/listen", {"notifications": {"resourceSubscriptions": wanted}})
        await client.until(lambda: waiting.done() or client.of("notifications/subscriptions/acknowledged"))
        if waiting.done():
            return verdict(waiting.result())
    else:
        answers = [await client.request("resources/subscribe", {"uri": uri}) for uri in wanted]
        if verdict(answers[0]) != "usable":
            return verdict(answers[0])
    tower.servers["C"].notify_updated("note://one")
    tower.servers["C"].notify_updated("note://open")
    heard: list[str] = []

    def last() -> bool:
        heard[:] = [each["uri"] for each in client.of("notifications/resources/updated")]
        return "note://open" in heard

    await client.until(last)
    return "usable" if "note://one" in heard else "hidden"


Entry: TypeAlias = Callable[[WireClient, Tower], Awaitable[Verdict]]


def asking(method: str, params: Callable[[str], Message]) -> Entry:
    async def entry(client: WireClient, tower: Tower) -> Verdict:
        return verdict(await client.request(method, params(tower.prefix)))

    return entry


#: Lists show what a caller may not use, so that clients can ask for the scopes; everything else refuses it.
LISTS: dict[str, Entry] = {
    "tools/list": lambda client, tower: listed(client, "tools/list", "tools", "name", f"{tower.prefix}work"),
    "prompts/list": lambda client, tower: listed(client, "prompts/list", "prompts", "name", f"{tower.prefix}ask"),
    "resources/list": lambda client, tower: listed(client, "resources/list", "resources", "uri", "note://one"),
    "resources/templates/list": lambda client, tower: listed(
        client, "resources/templates/list", "resourceTemplates", "uriTemplate", "page://{name}"
    ),
}
USES: dict[str, Entry] = {
    "tools/call": asking("tools/call", lambda prefix: {"name": f"{prefix}work", "arguments": {}}),
    "resources/read": asking("resources/read", lambda prefix: {"uri": "note://one"}),
    "resources/read of a template": asking("resources/read", lambda prefix: {"uri": "page://one"}),
    "prompts/get": asking("prompts/get", lambda prefix: {"name": f"{prefix}ask", "arguments": {"city": "Oslo"}}),
    "completion of a prompt": asking(
        "completion/complete", lambda prefix: completing("ref/prompt", "name", f"{prefix}ask", "city")
    ),
    "completion of a template": asking(
        "completion/complete", lambda prefix: completing("ref/resource", "uri", "page://{name}", "name")
    ),
    "ctx.read_resource": asking("tools/call", lambda prefix: {"name": "fetch", "arguments": {"uri": "note://one"}}),
    "ctx.read_resource of a template": asking(
        "tools/call", lambda prefix: {"name": "fetch", "arguments": {"uri": "page://one"}}
    ),
    "updates": told,
}


async def verdicts(client: WireClient, tower: Tower) -> dict[str, Verdict]:
    return {name: await entry(client, tower) for name, entry in {**LISTS, **USES}.items()}


def expected(rule: Rule, allowed: bool) -> dict[str, Verdict]:
    unlisted: Verdict = "usable" if allowed or rule == "scopes" else "hidden"
    unused: Verdict = "usable" if allowed else "refused" if rule == "scopes" else "hidden"
    return {**dict.fromkeys(LISTS, unlisted), **dict.fromkeys(USES, unused)}


def is_allowed(caller: str, over: Over) -> bool:
    # On stdio and in memory, somebody without a principal is whoever started the process.
    return caller == "right" or (caller == "nobody" and over == "memory")


@pytest.mark.pairwise
@pytest.mark.covers("6.1.13", "6.1.5")
@pytest.mark.parametrize("over", ["memory", "http"])
@pytest.mark.parametrize("revision", [CORE, MODERN])
@pytest.mark.parametrize("prefixes", [False, True], ids=["plain", "prefixed"])
@pytest.mark.parametrize("rule", ["visible_to", "scopes"])
@pytest.mark.parametrize("place", ["A", "B", "C"])
async def test_the_rule_of_any_server_on_the_way_holds(
    place: str, rule: Rule, prefixes: bool, revision: str, over: Over
) -> None:
    tower = Tower(prefixes, lambda servers: servers[place].restrict("t", **{rule: ["admin"]}))
    async with open_to(tower.root, revision, over) as join:
        for caller, principal in CALLERS.items():
            async with join(principal=principal) as client:
                found = await verdicts(client, tower)
            assert found == expected(rule, is_allowed(caller, over)), caller


async def test_the_rules_of_all_servers_on_the_way_hold_together() -> None:
    def rules(servers: dict[str, Server]) -> None:
        for name, server in servers.items():
            server.restrict("t", scopes=[name.lower()], visible_to=[f"sees-{name}"])

    tower = Tower(True, rules)
    everything = frozenset({"a", "b", "c", "sees-A", "sees-B", "sees-C"})
    async with open_to(tower.root, MODERN, "http") as join:
        for missing in (None, *everything):
            async with join(principal=Principal("ann", scopes=everything - {missing})) as client:
                answer = await client.request("tools/call", {"name": "b_c_work", "arguments": {}})
                if missing is None:
                    assert verdict(answer) == "usable"
                elif missing.startswith("sees"):
                    assert verdict(answer) == "hidden", missing
                else:
                    assert verdict(answer) == "refused", missing
                    assert answer["error"]["data"]["requiredScopes"] == ["a", "b", "c"]


@cases(
    ("rule_in", "implied_by", "counts"),
    [
        ("A", "A", True),
        ("B", "A", True),
        ("C", "A", True),
        ("C", "B", True),
        ("C", "C", True),
        ("B", "B", True),
        ("A", "B", False),
        ("A", "C", False),
        ("B", "C", False),
    ],
)
@cases("rule", ["visible_to", "scopes"])
async def test_implied_scopes_count_for_a_server_and_for_those_behind_it(
    rule: str, rule_in: str, implied_by: str, counts: bool
) -> None:
    """What a mounted server makes of scopes opens nothing that the servers before it have closed."""
    implying = Policy(implies={"staff": ["admin"]})
    inner = owner() if implied_by != "C" else Server("C", policy=implying).mount(owner())
    middle = Server("B", policy=implying if implied_by == "B" else None).mount(inner)
    root = Server("A", policy=implying if implied_by == "A" else None).mount(middle)
    {"A": root, "B": middle, "C": inner}[rule_in].restrict("t", **{rule: ["admin"]})  # type: ignore[arg-type]
    async with open_to(root, MODERN, "http") as join, join(principal=Principal("sam", scopes=["staff"])) as client:
        answer = await client.request("tools/call", {"name": "work", "arguments": {}})
        assert (verdict(answer) == "usable") is counts


async def test_a_server_that_is_mounted_twice_shows_each_caller_what_the_way_allows() -> None:
    """What one server hides is not kept for the callers of another."""
    shared = owner()
    strict = Server("strict", tools=Tool(lambda: "x", name="x", visible_to=["a"])).mount(shared)
    strict.restrict("t", visible_to=["admin"])
    loose = Server("loose", tools=Tool(lambda: "x", name="x", visible_to=["b"])).mount(shared)
    root = Server("root").mount(loose, "loose").mount(strict, "strict")
    for server, names in (
        (loose, ["slow", "work"]),
        (strict, []),
        (loose, ["slow", "work"]),
        (root, ["loose_slow", "loose_work"]),
        (shared, ["slow", "work"]),
    ):
        async with open_to(server, MODERN, "http") as join, join(principal=WRONG) as client:
            assert [each["name"] for each in (await client.result("tools/list"))["tools"]] == names


async def test_what_one_server_on_the_way_hides_uncovers_what_lies_behind() -> None:
    first = Server("first", tools=Tool(lambda: "first", name="which", tags=["t"]))
    first.mount(Server("behind", tools=Tool(lambda: "behind", name="which")))
    middle = Server("middle").mount(first)
    middle.restrict("t", visible_to=["admin"])
    root = Server("root").mount(middle)
    async with open_to(root, MODERN, "http") as join:
        for principal, text in ((RIGHT, "first"), (WRONG, "behind")):
            async with join(principal=principal) as client:
                assert [each["name"] for each in (await client.result("tools/list"))["tools"]] == ["which"]
                assert (await client.call("which"))["content"][0]["text"] == text


async def test_a_rule_that_comes_later_holds_at_once() -> None:
    tower = Tower(True, lambda servers: None)
    async with open_to(tower.root, MODERN, "http") as join, join(principal=WRONG) as client:
        assert set((await verdicts(client, tower)).values()) == {"usable"}
    tower.servers["B"].restrict("t", visible_to=["admin"])
    async with open_to(tower.root, MODERN, "http") as join, join(principal=WRONG) as client:
        assert await verdicts(client, tower) == expected("visible_to", False)


@cases("place", ["A", "B", "C"])
@cases(
    ("principal", "rule", "allowed"),
    [(WRONG, "visible_to", False), (WRONG, "scopes", False), (RIGHT, "scopes", True), (None, "scopes", True)],
)
async def test_a_call_without_a_transport_obeys_every_server_too(
    principal: Principal | None, rule: str, allowed: bool, place: str
) -> None:
    tower = Tower(True, lambda servers: servers[place].restrict("t", **{rule: ["admin"]}), local_principal=principal)
    calls: list[Callable[[], Awaitable[Any]]] = [
        lambda: tower.root.call_tool("b_c_work"),
        lambda: tower.root.read_resource("note://one"),
        lambda: tower.root.get_prompt("b_c_ask", {"city": "Oslo"}),
    ]
    for call in calls:
        if allowed:
            await call()
        else:
            with pytest.raises(ProtocolError):
                await call()


async def test_the_completion_of_a_hidden_prompt_says_nothing_under_the_name_of_another() -> None:
    hidden = Server("hidden")
    hidden.prompt(name="ask", visible_to=["admin"])(lambda city: city)
    hidden.completion(prompt="ask", argument="city")(lambda partial: ["secret"])
    root = Server("root").mount(hidden, "in")
    root.prompt(name="in_ask")(lambda city: city)
    async with open_to(root, MODERN, "http") as join, join(principal=WRONG) as client:
        answer = await client.result("completion/complete", completing("ref/prompt", "name", "in_ask", "city"))
        assert answer["completion"]["values"] == []


@cases("revision", [CORE, MODERN])
@cases("place", ["outer", "middle"])
async def test_hidden_component_does_not_lend_its_completions_to_a_namesake(place: str, revision: str) -> None:
    """The first component of the name is hidden; the caller gets that of a mounted server, which has no suggestions."""
    behind, middle, outer = Server("behind"), Server("middle"), Server("outer")
    hiding = {"outer": outer, "middle": middle}[place]
    for server, options in ((hiding, {"visible_to": ["admin"]}), (behind, {})):
        server.prompt(name="ask", **options)(lambda city: city)
        server.resource("note://{city}", **options)(lambda city: city)
    hiding.completion(prompt="ask", argument="city")(lambda partial: ["secret"])
    hiding.completion(template="note://{city}", argument="city")(lambda partial: ["secret"])
    middle.mount(behind)
    outer.mount(middle)
    asked = [("ref/prompt", "name", "ask"), ("ref/resource", "uri", "note://{city}")]
    async with open_to(outer, revision, "http") as join:
        for principal, values in ((WRONG, []), (RIGHT, ["secret"])):
            async with join(principal=principal) as client:
                for reference in asked:
                    answer = await client.result("completion/complete", completing(*reference, "city"))
                    assert answer["completion"]["values"] == values


async def test_completion_of_an_outer_server_serves_the_mounted_prompt_it_names() -> None:
    inner = Server("inner")
    inner.prompt(name="ask")(lambda city: city)
    outer = Server("outer").mount(inner, "in")
    outer.completion(prompt="in_ask", argument="city")(lambda partial: ["Oslo"])
    async with open_to(outer, MODERN, "http") as join, join(principal=WRONG) as client:
        answer = await client.result("completion/complete", completing("ref/prompt", "name", "in_ask", "city"))
        assert answer["completion"]["values"] == ["Oslo"]


# --- tasks: their owner needs the right to the tool behind them, at the time of each request ---


async def listened(client: WireClient, identifier: str) -> Verdict:
    client.start("subscriptions/listen", {"notifications": {"taskIds": [identifier]}})
    (said,) = await client.notified("notifications/subscriptions/acknowledged")
    return "usable" if identifier in said["notifications"]["taskIds"] else "hidden"


async def task_verdicts(client: WireClient, ended: str, waiting: str) -> dict[str, Verdict]:
    """Every method of tasks; those that end a task come last."""

    async def ask(method: str, identifier: str, **more: Any) -> Verdict:
        return verdict(await client.request(method, {"taskId": identifier, **more}))

    found = {"get": await ask("tasks/get", ended)}
    if client.revision == MODERN:
        found["update"] = await ask("tasks/update", waiting, inputResponses={})
        found["listen"] = await listened(client, waiting)
    else:
        found["result"] = await ask("tasks/result", ended)
        answer = await client.request("tasks/list")
        tasks = [each["taskId"] for each in answer.get("result", {"tasks": []})["tasks"]]
        found["list"] = "usable" if ended in tasks and waiting in tasks else "hidden"
    return {**found, "cancel": await ask("tasks/cancel", waiting)}


@pytest.mark.pairwise
@pytest.mark.covers("6.1.13")
@pytest.mark.parametrize("over", ["memory", "http"])
@pytest.mark.parametrize("revision", [CORE, MODERN])
@pytest.mark.parametrize("prefixes", [False, True], ids=["plain", "prefixed"])
@pytest.mark.parametrize("rule", ["visible_to", "scopes"])
@pytest.mark.parametrize("place", ["A", "B", "C"])
async def test_a_task_is_for_those_who_may_use_its_tool(
    place: str, rule: Rule, prefixes: bool, revision: str, over: Over
) -> None:
    limits = Limits(task_window=0.0)
    tower = Tower(prefixes, lambda servers: servers[place].restrict("t", **{rule: ["admin"]}), limits=limits)
    async with open_to(tower.root, revision, over) as join, join(principal=RIGHT) as client:
        ended = await begin(client, f"{tower.prefix}slow", {"wait": False})
        assert (await outcome(client, ended))["content"][0]["text"] == "done"
        waiting = await begin(client, f"{tower.prefix}slow", {"wait": True})
        async with join(principal=None) as nobody:
            assert set((await task_verdicts(nobody, ended, waiting)).values()) == {"hidden"}
        async with join(principal=WRONG) as wrong:
            found = await task_verdicts(wrong, ended, waiting)
        refused: Verdict = "refused" if rule == "scopes" else "hidden"
        assert found == {name: "hidden" if name in ("list", "listen") else refused for name in found}
        found = await task_verdicts(client, ended, waiting)
        assert set(found.values()) == {"usable"}, found


@cases("over", ["memory", "http"])
@cases("revision", [CORE, MODERN])
async def test_a_client_that_has_lost_the_right_to_a_tool_hears_no_more_of_its_tasks(revision: str, over: Over) -> None:
    lost = False
    go: dict[str, asyncio.Event] = {"tagged": asyncio.Event(), "plain": asyncio.Event()}

    async def work(name: str) -> str:
        await go[name].wait()
        return name

    inner = Server("inner")
    inner.tool(name="tagged", tags=["t"], task="optional")(work)
    inner.tool(name="plain", task="optional")(work)
    middle = Server("middle").mount(inner)
    middle.restrict("t", visible_to=lambda principal: not lost or "admin" in principal.scopes)
    root = Server("root", limits=Limits(task_window=0.0)).mount(middle)
    async with open_to(root, revision, over) as join, join(principal=WRONG) as client, join(principal=RIGHT) as other:
        tasks = [await begin(client, name, {"name": name}) for name in ("tagged", "plain")]
        if revision == MODERN:
            client.start("subscriptions/listen", {"notifications": {"taskIds": tasks}})
            await client.notified("notifications/subscriptions/acknowledged")
        lost = True
        for name, identifier in zip(("tagged", "plain"), tasks, strict=True):
            go[name].set()
            await reaches(other, identifier, "completed")
        heard = await changes(client, 1)
        assert {each["taskId"] for each in heard} == {tasks[1]}


async def test_the_task_of_a_tool_that_is_gone_is_for_nobody_where_anything_is_restricted() -> None:
    server = Server("s", limits=Limits(task_window=0.0), tools=Tool(lambda: "x", name="open"))
    server.tool(name="gone", task="optional", visible_to=["admin"])(lambda: "secret")
    server.add(Tool(lambda: "y", name="other", visible_to=["admin"]))
    async with open_to(server, MODERN, "http") as join, join(principal=RIGHT) as client:
        task = await begin(client, "gone")
        await outcome(client, task)
        server.remove("gone")
        assert verdict(await client.request("tasks/get", {"taskId": task})) == "hidden"


@pytest.mark.parametrize("revision", [CORE, MODERN])
async def test_a_task_that_the_host_makes_in_a_call_is_for_those_who_may_make_the_call(revision: str) -> None:
    inner = Server("inner")
    root = Server("root", tasks=True).mount(inner, "in")

    @inner.tool(tags=["t"])
    async def book(ctx: Context) -> str:
        task = await root.tasks.create(ctx)
        await root.tasks.finish(task, "booked")
        return task.id

    inner.restrict("t", scopes=["admin"])
    async with open_to(root, revision, "http") as join, join(principal=RIGHT) as client:
        identifier = (await client.call("in_book"))["content"][0]["text"]
        assert verdict(await client.request("tasks/get", {"taskId": identifier})) == "usable"
        async with join(principal=WRONG) as wrong:
            assert verdict(await wrong.request("tasks/get", {"taskId": identifier})) == "refused"
