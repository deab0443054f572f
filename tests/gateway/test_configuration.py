"""The file of a gateway changes while the gateway runs."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.backs import one, until
from tests.http.raw_streams import KINDS, Hearing, rest_of

from toolwire import Client, Server, testing
from toolwire.client.http_target import HttpTarget
from toolwire.client.target import Target
from toolwire.client.targets import ServerTarget
from toolwire.gateway import Gateway
from toolwire.gateway.back_connections import BackConnections
from toolwire.gateway.config import gateway_of, making
from toolwire.gateway.configuration_status import Reloaded
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.protocol.errors import ServerError, Unauthorized
from toolwire.server.catalog import Catalog
from toolwire.util import file_watch
from toolwire.wire import hangup

PLAIN = str(Path(__file__).parent / "plain_back.py")


class Places:
    """Servers in this process that a file names by `memory://name`, and how often each was connected to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.servers: dict[str, Server] = {}
        self.opened: dict[str, int] = {}
        monkeypatch.setattr(making, "target_of", self._target)

    def _target(self, name: str, entry: Any, **options: Any) -> Target:
        places = self

        class Counted(ServerTarget):
            async def open(self) -> Any:
                places.opened[name] = places.opened.get(name, 0) + 1
                return await super().open()

        return Counted(self.servers[entry.url.removeprefix("memory://")])


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setattr(file_watch, "LOOK_SECONDS", 0.005)
    monkeypatch.setattr(file_watch, "QUIET_SECONDS", 0.005)
    found = Places(monkeypatch)
    for name in ("a", "b", "c"):
        found.servers[name] = one(name, "who")
    return found


def backs(**urls: str) -> dict[str, Any]:
    return {name: {"url": f"memory://{url}"} for name, url in urls.items()}


def written(path: Path, content: Any) -> Path:
    """Write a file as editors do: another one takes its place."""
    beside = path.with_name("beside.json")
    beside.write_text(content if isinstance(content, str) else json.dumps(content))
    beside.replace(path)
    return path


def config(servers: dict[str, Any], **table: Any) -> dict[str, Any]:
    return {"mcpServers": servers, "gateway": table}


def status(gateway: Gateway) -> Any:
    assert gateway.configuration is not None
    return gateway.configuration.status


@pytest.mark.covers("GW-9.30")
async def test_only_the_servers_that_changed_are_touched(places: Places) -> None:
    gateway = gateway_of(config(backs(x="a", y="b")))
    async with testing.connect(gateway) as (client, _):
        assert await client.call_tool("y_who", returns=str) == "b"
        before = dict(places.opened)
        done = await gateway.reload(config(backs(z="c", x="b", y="b"), title="A title"))
        assert done == Reloaded(added=("z",), changed=("x",), settings=("gateway.title",))
        assert places.opened == {**before, "x": before["x"] + 1, "z": 1}
        assert [await client.call_tool(f"{name}_who", returns=str) for name in "xyz"] == ["b", "b", "c"]
        # The order is that of the file.
        assert list(gateway.backs) == ["z", "x", "y"]
        assert gateway.identity.title == "A title"
        assert await gateway.reload(config(backs(z="c", x="b", y="b"), title="A title")) == Reloaded()
        assert (await gateway.reload(config(backs(x="b")))).removed == ("z", "y")
        assert [tool.name for tool in await client.list_tools()] == ["x_who"]
        await until(lambda: len(gateway.catalog.family()) == 1)


@pytest.mark.covers("GW-9.30")
async def test_all_servers_of_a_change_come_at_the_same_time_and_are_told_once(places: Places) -> None:
    gateway = gateway_of(config(backs(x="a")))
    async with testing.connect(gateway) as (client, wire), client.listen(tools=True) as changes:
        await gateway.reload(config(backs(y="b", z="c")))
        await anext(aiter(changes))
        assert {tool.name for tool in await client.list_tools()} == {"y_who", "z_who"}
        # One that lists the same tools is no change for clients.
        await gateway.reload(config(backs(y="c", z="b")))
        assert await client.call_tool("y_who", returns=str) == "c"
    told = [each for each in wire.received if each.get("method") == "notifications/tools/list_changed"]
    assert len(told) == 1


@pytest.mark.covers("GW-9.32")
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ('{"mcpServers": {"x": {"url": "memory://a"', "cannot be read as a JSON file"),
        ("", "cannot be read as a JSON file"),
        ('{"mcpServers": {}}', "needs mcpServers"),
        ('{\n"mcpServers": {"x": {"url": "memory://b"},\n"y": {"urll": 1}}}', "line 3, mcpServers.y.urll"),
        ('{"mcpServers": {"x": {"url": "memory://b"}},\n\n"gateway": {"strict": 7}}', "line 3, gateway.strict"),
        (
            '{"mcpServers": {"x": {"url": "memory://b"}, "y": {\n"url": "memory://${NOT_SET}"}}}',
            "line 2, mcpServers.y.url",
        ),
        (
            '{"mcpServers": {"x": {"url": "memory://b"},\n"y": {"url": "memory://c", "revision": "1"}}}',
            "line 2, mcpServers.y",
        ),
    ],
)
async def test_a_wrong_file_changes_nothing_and_its_mistake_is_shown(
    places: Places, tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: str, text: str
) -> None:
    path = written(tmp_path / "gateway.json", config(backs(x="a")))
    gateway = gateway_of(path)
    async with testing.connect(gateway) as (client, _), running(gateway):
        assert await client.call_tool("x_who", returns=str) == "a"
        written(path, wrong)
        await until(lambda: status(gateway).error is not None)
        assert text in status(gateway).error and gateway.kernel.remark
        assert await client.call_tool("x_who", returns=str) == "a"
        assert list(gateway.backs) == ["x"]
        with pytest.raises(ServerError):
            await gateway.reload()
        # It is logged once.
        assert len([each for each in caplog.records if each.levelname == "ERROR"]) == 1
        written(path, config(backs(x="c")))
        await until(lambda: status(gateway).error is None)
        assert await client.call_tool("x_who", returns=str) == "c" and not gateway.kernel.remark


class running:
    """A gateway that follows its file."""

    def __init__(self, gateway: Gateway) -> None:
        assert gateway.configuration is not None
        self._configuration = gateway.configuration

    async def __aenter__(self) -> None:
        self._task = asyncio.ensure_future(self._configuration.watch())
        await asyncio.sleep(0)

    async def __aexit__(self, *error: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})


@pytest.mark.covers("GW-9.32")
async def test_a_file_that_stays_wrong_is_read_less_and_less_often(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float | None] = []

    async def changed(watch: Any, longest: float | None = None) -> None:
        pauses.append(longest)
        if len(pauses) > 8:
            await asyncio.Event().wait()

    monkeypatch.setattr("toolwire.util.file_watch.FileWatch.changed", changed)
    path = written(tmp_path / "gateway.json", config(backs(x="a")))
    gateway = gateway_of(path)
    written(path, "{")
    async with testing.connect(gateway), running(gateway):
        await until(lambda: len(pauses) > 8)
    first, *others = pauses
    assert first is None
    # Each pause has a random share of at most half.
    for doublings, pause in enumerate(others):
        longest = min(5.0 * 2**doublings, 300.0)
        assert pause is not None and longest / 2 <= pause <= longest


@pytest.mark.covers("GW-9.32")
async def test_a_file_that_vanished_changes_nothing(places: Places, tmp_path: Path) -> None:
    path = written(tmp_path / "gateway.json", config(backs(x="a")))
    gateway = gateway_of(path)
    async with testing.connect(gateway) as (client, _), running(gateway):
        path.unlink()
        await until(lambda: status(gateway).error is not None)
        assert "No such file" in status(gateway).error
        assert await client.call_tool("x_who", returns=str) == "a"
        written(path, config(backs(x="b")))
        await until(lambda: status(gateway).error is None)
        assert await client.call_tool("x_who", returns=str) == "b"


@pytest.mark.covers("GW-9.30")
async def test_links_that_are_swapped_are_noticed(places: Places, tmp_path: Path) -> None:
    # The files of a ConfigMap: gateway.json -> ..data/gateway.json, and ..data -> ..1
    for number, name in enumerate("ab", 1):
        (tmp_path / f"..{number}").mkdir()
        written(tmp_path / f"..{number}" / "gateway.json", config(backs(x=name)))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "gateway.json").symlink_to("..data/gateway.json")
    gateway = gateway_of(tmp_path / "gateway.json")
    async with testing.connect(gateway) as (client, _), running(gateway):
        assert await client.call_tool("x_who", returns=str) == "a"
        (tmp_path / "..new").symlink_to("..2")
        (tmp_path / "..new").replace(tmp_path / "..data")
        await until(lambda: status(gateway).reloads == 1)
        assert await client.call_tool("x_who", returns=str) == "b"


@pytest.mark.covers("GW-9.30")
async def test_a_secret_that_is_rotated_replaces_its_server(places: Places, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("one")
    secret.chmod(0o600)
    entry = {"url": "memory://a", "headers": {"x-key": {"file": "token"}}}
    path = written(tmp_path / "gateway.json", config({"x": entry, **backs(y="b")}))
    gateway = gateway_of(path)
    async with testing.connect(gateway), running(gateway):
        before = dict(places.opened)
        secret.write_text("two")
        await until(lambda: status(gateway).reloads == 1)
        assert places.opened == {**before, "x": before["x"] + 1}


async def test_a_certificate_that_is_replaced_is_noticed(
    places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "QUIET_SECONDS", 0.01)
    for name in ("ca", "key"):
        (tmp_path / f"{name}.pem").write_text("one")
    servers = backs(x="a", y="b")
    servers["x"]["tls"] = {"ca": "ca.pem", "certificate": "key.pem"}
    gateway = gateway_of(written(tmp_path / "gateway.json", config(servers)))
    async with testing.connect(gateway), running(gateway):
        for count, name in enumerate(("ca", "key"), 1):
            before = dict(places.opened)
            written(tmp_path / f"{name}.pem", "two")
            await until(lambda count=count: status(gateway).reloads == count)
            assert places.opened == {**before, "x": before["x"] + 1}


async def test_many_writes_are_one_change(places: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_watch, "QUIET_SECONDS", 0.05)
    path = written(tmp_path / "gateway.json", config(backs(x="a")))
    gateway = gateway_of(path)
    async with testing.connect(gateway) as (client, _), running(gateway):
        for number in range(20):
            written(path, config(backs(x="abc"[number % 3])) if number % 2 else "{")
        await until(lambda: status(gateway).reloads == 1)
        assert await client.call_tool("x_who", returns=str) == "b"
        assert status(gateway).reloads == 1 and status(gateway).error is None


@pytest.mark.covers("GW-9.32")
async def test_a_gateway_that_points_to_itself_is_refused(places: Places) -> None:
    gateway = gateway_of(config(backs(x="a")))
    places.servers["self"] = gateway
    async with testing.connect(gateway) as (client, _):
        with pytest.raises(ServerError, match=r"mcpServers.y: its lists lead back to this gateway"):
            await gateway.reload(config(backs(x="b", y="self")))
        # Nothing of the file is in force.
        assert list(gateway.backs) == ["x"]
        assert await client.call_tool("x_who", returns=str) == "a"
        assert "circle" in status(gateway).error
        await until(lambda: len(gateway.catalog.family()) == 1)


@pytest.mark.covers("GW-9.33")
async def test_calls_run_while_the_configuration_changes_200_times(places: Places) -> None:
    gateway = gateway_of(config(backs(x="a", y="b")))

    async def call(client: Any) -> None:
        assert await client.call_tool("x_who", returns=str) in ("a", "b")

    def living() -> int:
        return sum(isinstance(each, Server | Catalog | BackConnections) for each in gc.get_objects())

    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    async with testing.connect(gateway) as (client, _):
        for number in range(200):
            if number == 20:
                await until(lambda: len(gateway.catalog.family()) == 2)
                gc.collect()
                before = (opened(), len(asyncio.all_tasks()), living())
            calling = asyncio.ensure_future(call(client))
            await gateway.reload(config(backs(x="ba"[number // 4 % 2], y="b"), title=f"Number {number}"))
            await calling
        assert places.opened["y"] == 1 and places.opened["x"] == 51
        await until(lambda: len(gateway.catalog.family()) == 2)
        await until(lambda: len(asyncio.all_tasks()) <= before[1])
        gc.collect()
        assert opened() <= before[0]
        # The old servers are gone, and so are the gateways that were made to check the file. Some may be on their way.
        assert living() < before[2] + 20


def keyed(servers: dict[str, Any], keys: str, **table: Any) -> dict[str, Any]:
    """Return a configuration that lets callers in whose key is one of these letters, 32 times."""
    return config(servers, auth={"api_keys": {"keys": {name: {"key": name * 32} for name in keys}}}, **table)


async def answer_to(app: Any, key: str) -> int | str:
    """Return what a caller with this key gets: the status of the refusal, or the result of a call."""
    pool = AsgiPool(app)
    target = HttpTarget("http://localhost/mcp", pool=pool, headers={"authorization": f"Bearer {key * 32}"})
    try:
        async with Client(target) as client:
            result = await client.call_tool("x_who")
            return "an error" if result.is_error else "a result"
    except Unauthorized as error:
        return error.status
    finally:
        await pool.close()


@pytest.mark.covers("GW-9.34")
async def test_api_keys_change_while_calls_run(places: Places) -> None:
    gateway = gateway_of(keyed(backs(x="a"), "ab"))
    app = gateway.http_app()
    assert [await answer_to(app, key) for key in "abc"] == ["a result", "a result", 401]
    assert (await gateway.reload(keyed(backs(x="a"), "bc"))).settings == ("gateway.auth",)
    assert [await answer_to(app, key) for key in "abc"] == [401, "a result", "a result"]
    # An address that was listened on because nobody gets in without a key stays closed until a restart.
    assert (await gateway.reload(config(backs(x="a")))).restart == ("gateway.auth",)
    assert [await answer_to(app, key) for key in "abc"] == [401, "a result", "a result"]
    app.drain()
    await app.stop()


def slow_server(places: Places, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Have the server `slow` not answer; return what says that it is connected to, and what lets it answer."""
    answers = asyncio.Event()
    connects = asyncio.Event()
    target_of = making.target_of

    def slow(name: str, entry: Any, **options: Any) -> Target:
        class Slow(ServerTarget):
            async def open(self) -> Any:
                connects.set()
                await answers.wait()
                return await super().open()

        return Slow(places.servers[entry.url[-1]]) if name == "slow" else target_of(name, entry, **options)

    monkeypatch.setattr(making, "target_of", slow)
    return connects, answers


@pytest.mark.covers("GW-9.34")
@pytest.mark.parametrize("is_refused", [False, True])
async def test_looser_rules_wait_until_the_servers_that_go_are_gone(
    places: Places, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    connects, answers = slow_server(places, monkeypatch)
    one_call = {"rate": {"calls": "1/hour", "per": "everyone"}}
    gateway = gateway_of(keyed(backs(x="a"), "a", policy=one_call))
    places.servers["c"] = gateway if is_refused else places.servers["c"]
    app = gateway.http_app()
    assert await answer_to(app, "a") == "a result"
    loading = asyncio.ensure_future(gateway.reload(keyed(backs(slow="c"), "ab")))
    await connects.wait()
    # The server `x` is still there. Who is let in from now on does not get at it, and the rate still holds.
    new = Hearing(app, "b" * 32)
    refused = await new.open("2026-07-28")
    assert refused.status == 503
    refused.close()
    assert await answer_to(app, "a") == "an error"
    answers.set()
    if is_refused:
        with pytest.raises(ServerError, match="circle"):
            await loading
        assert [await answer_to(app, key) for key in "ab"] == ["an error", 401]
    else:
        await loading
        assert gateway.policy is None and list(gateway.backs) == ["slow"]
        assert (await new.open("2026-07-28")).status == 200
    await new.pool.close()
    app.drain()
    await app.stop()


@pytest.mark.covers("GW-9.34")
async def test_a_key_that_is_removed_does_not_wait_for_new_servers(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    connects, answers = slow_server(places, monkeypatch)
    gateway = gateway_of(keyed(backs(x="a"), "ab"))
    app = gateway.http_app()
    assert [await answer_to(app, key) for key in "ab"] == ["a result", "a result"]
    none_left = {"rate": {"calls": "1/hour", "per": "everyone"}}
    loading = asyncio.ensure_future(gateway.reload(keyed(backs(x="a", slow="c"), "b", policy=none_left)))
    await connects.wait()
    assert [await answer_to(app, key) for key in "abb"] == [401, "a result", "an error"]
    assert not loading.done() and list(gateway.backs) == ["x"]
    answers.set()
    assert (await loading).settings == ("gateway.auth", "gateway.policy")
    assert list(gateway.backs) == ["x", "slow"]
    assert await answer_to(app, "a") == 401
    app.drain()
    await app.stop()


@pytest.mark.covers("GW-9.32")
async def test_a_file_that_proves_wrong_when_its_servers_answer_changes_no_key_and_no_policy(places: Places) -> None:
    gateway = gateway_of(keyed(backs(x="a"), "ab"))
    places.servers["self"] = gateway
    app = gateway.http_app()
    assert await answer_to(app, "a") == "a result"
    with pytest.raises(ServerError, match="lead back to this gateway"):
        none = {"rate": {"calls": "1/hour", "per": "everyone"}}
        await gateway.reload(keyed(backs(x="a", y="self"), "bc", policy=none))
    assert [await answer_to(app, key) for key in "aabbc"] == [*["a result"] * 4, 401]
    app.drain()
    await app.stop()


@pytest.mark.covers("GW-9.34")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_caller_whose_key_is_gone_hears_nothing_more(places: Places, kind: str) -> None:
    gateway = gateway_of(keyed(backs(x="a"), "ab"))
    app = gateway.http_app(sse=True)
    assert await answer_to(app, "a") == "a result"
    callers = [Hearing(app, key * 32) for key in "ab"]
    streams = [await caller.open(kind) for caller in callers]
    assert [stream.status for stream in streams] == [200, 200]
    # The server that comes changes the list of tools after the key is gone.
    await gateway.reload(keyed(backs(x="a", y="b"), "b"))
    heard = [await rest_of(stream) for stream in streams]
    assert not any("list_changed" in each for each in heard)
    again = [await caller.open(kind) for caller in callers]
    assert [stream.status for stream in again] == [401, 200]
    for stream in again:
        stream.close()
    app.drain()
    await app.stop()
    for caller in callers:
        await caller.pool.close()


@pytest.mark.covers("GW-9.34")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_caller_who_is_still_let_in_misses_no_change(places: Places, revision: str) -> None:
    gateway = gateway_of(keyed(backs(x="a"), "ab"))
    app = gateway.http_app()
    pool = AsgiPool(app)
    target = HttpTarget("http://localhost/mcp", pool=pool, headers={"authorization": f"Bearer {'b' * 32}"})
    async with Client(target, revision=revision) as client, client.listen(tools=True) as changes:
        heard = aiter(changes)
        # The stream ends in the middle of this, and the change is told afterwards.
        await gateway.reload(keyed(backs(x="a", y="b"), "b"))
        assert (await anext(heard)).kind == "tools"
        assert {tool.name for tool in await client.list_tools()} == {"x_who", "y_who"}
        # The stream that was opened again is one like the first.
        await gateway.reload(keyed(backs(x="a"), "b"))
        assert (await anext(heard)).kind == "tools"
    app.drain()
    await app.stop()
    await pool.close()


@pytest.mark.covers("GW-9.34")
async def test_policies_and_audit_logs_change_while_calls_run(places: Places, tmp_path: Path) -> None:
    def audited(name: str) -> dict[str, Any]:
        return {"path": str(tmp_path / name), "key": "0123456789abcdef0123456789abcdef"}

    def calls(name: str) -> int:
        return (tmp_path / name).read_text().count('"x_who"') if (tmp_path / name).exists() else 0

    gateway = gateway_of(config(backs(x="a")))
    async with testing.connect(gateway) as (client, _):
        await client.call_tool("x_who")
        limited = {"rate": {"calls": "2/hour", "per": "everyone"}}
        await gateway.reload(config(backs(x="a"), audit=audited("one.log"), policy=limited))
        assert [(await client.call_tool("x_who")).is_error for _ in range(3)] == [False, False, True]
        # What was counted stays counted.
        await gateway.reload(config(backs(x="a"), audit=audited("two.log"), policy={**limited, "timeout": 9}))
        assert (await client.call_tool("x_who")).is_error
        await gateway.reload(config(backs(x="a")))
        assert not (await client.call_tool("x_who")).is_error
        await until(lambda: (calls("one.log"), calls("two.log")) == (3, 1))


@pytest.mark.covers("GW-9.33")
async def test_a_reload_swaps_all_of_its_own_state(places: Places) -> None:
    """docker/mcp-gateway#383: a reload that kept the old configuration for the next comparison."""
    gateway = gateway_of(config(backs(x="a")))
    async with testing.connect(gateway) as (client, _):
        for name in "bab":
            assert (await gateway.reload(config(backs(x=name)))).changed == ("x",)
            assert await client.call_tool("x_who", returns=str) == name
        assert gateway.configuration is not None and gateway.configuration.file.backs["x"].url == "memory://b"
        assert (await gateway.reload(config(backs(x="b")))) == Reloaded()


@pytest.mark.covers("GW-9.32")
async def test_readyz_stays_ready_and_says_that_the_file_is_wrong(places: Places) -> None:
    gateway = gateway_of(config(backs(x="a")))
    app = gateway.http_app()
    pool = AsgiPool(app)

    async def ready() -> tuple[int, bytes]:
        response = await pool.send("GET", "http://localhost/readyz", {}, None)
        return response.status, await response.read(1000)

    assert await ready() == (200, b"ok")
    with pytest.raises(ServerError):
        await gateway.reload(config(backs(x="a"), stric=True))
    assert await ready() == (200, b"ok, the file of its configuration is wrong")
    await gateway.reload({**config(backs(x="a")), "http": {"port": 1}})
    assert await ready() == (200, b"ok, a restart is needed for changes of its configuration")
    await gateway.reload(config(backs(x="a")))
    assert await ready() == (200, b"ok")
    app.drain()
    await pool.close()
    await app.stop()


def test_sighup_reads_the_file_again_unless_the_terminal_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    async def signalled(*, is_gone: bool) -> None:
        monkeypatch.setattr(hangup, "terminal_is_gone", lambda: is_gone)
        before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append("end"))
        try:
            with hangup.hangups(lambda: heard.append("read")):
                signal.raise_signal(signal.SIGHUP)
                await until(lambda: heard)
        finally:
            signal.signal(signal.SIGTERM, before)

    asyncio.run(signalled(is_gone=False))
    assert heard == ["read"]
    heard.clear()
    asyncio.run(signalled(is_gone=True))
    assert heard == ["end"]


def test_a_terminal_that_was_closed_is_noticed() -> None:
    # In a process of its own, whose standard input is the terminal.
    ours, theirs = pty.openpty()
    code = "import os, sys; from toolwire.wire.hangup import terminal_is_gone as gone; a = gone(); input(); "
    code += "sys.stderr.write(f'{a}\\n'); sys.stderr.flush(); os.read(3, 1); sys.stderr.write(f'{gone()}\\n')"
    wait, go_on = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", f"import os; os.dup2({wait}, 3); {code}"],
        stdin=theirs,
        stderr=subprocess.PIPE,
        pass_fds=[wait],
        start_new_session=True,
    )
    os.close(theirs)
    os.write(ours, b"\n")
    assert child.stderr is not None and child.stderr.readline() == b"False\n"
    os.close(ours)
    os.write(go_on, b"1")
    assert child.stderr.read() == b"True\n"
    child.stderr.close()
    child.wait()
    os.close(wait)
    os.close(go_on)


async def test_processes_of_commands_that_were_replaced_end() -> None:
    def file(said: str) -> dict[str, Any]:
        return config({"x": {"command": sys.executable, "args": [PLAIN, said], "revision": "2025-11-25"}})

    def children() -> int:
        return len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())

    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = children()
    gateway = gateway_of(file("0"))
    async with testing.connect(gateway) as (client, _):
        for number in range(1, 9):
            assert (await client.call_tool("x_who")).text == str(number - 1)
            if number == 3:
                await until(lambda: children() == before + 2)
                descriptors = opened()
            await gateway.reload(file(str(number)))
        # One process for the lists, and one for the conversation.
        assert (await client.call_tool("x_who")).text == "8"
        await until(lambda: children() == before + 2 and opened() <= descriptors)
    await until(lambda: children() == before)
