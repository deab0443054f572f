"""Servers that are added to a client of several servers and removed from it while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.client.test_several import make

from toolwire import Context, Server
from toolwire.client import Client, ToolCall
from toolwire.client.sync import Client as BlockingClient
from toolwire.client.target import Link
from toolwire.client.targets import ServerTarget
from toolwire.protocol.errors import NotSupported, OutcomeUnknown, ProtocolError, Unreachable
from toolwire.protocol.revisions import LATEST_LEGACY, MODERN
from toolwire.wire.channel import Channel


class Away(ServerTarget):
    async def open(self) -> Link:
        raise Unreachable("it is off")


class SlowToEnd(ServerTarget):
    """A server whose connection is closed when `ends` is set."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self.ends = asyncio.Event()

    async def _serve(self, channel: Channel) -> None:
        await super()._serve(channel)
        await self.ends.wait()


async def tool_names(client: Client) -> list[str]:
    return sorted(tool.name for tool in await client.list_tools())


@pytest.mark.parametrize("revision", [LATEST_LEGACY, MODERN])
async def test_added_server_is_listed_and_called(revision: str) -> None:
    async with Client({"a": Server("a"), "b": make("b")}, revision=revision) as client:
        assert await tool_names(client) == ["b_count", "b_who"]
        await client.add_server("c", make("c"))
        assert await tool_names(client) == ["b_count", "b_who", "c_count", "c_who"]
        assert (await client.call_tool("c_who")).text == "c"
        assert (await client.read_resource("memo://c"))[0].text == "memo of c"
        assert [prompt.name for prompt in await client.list_prompts()] == ["b_greet", "c_greet"]
        assert client.missing == {}
        assert "c" in repr(client)


async def test_added_server_brings_the_first_prompts_and_resources() -> None:
    async with Client({"a": Server("a"), "b": Server("b")}) as client:
        with pytest.raises(NotSupported):
            await client.list_prompts()
        await client.add_server("c", make("c"))
        assert [prompt.name for prompt in await client.list_prompts()] == ["c_greet"]
        assert [resource.uri for resource in await client.list_resources()] == ["memo://c"]


async def test_instructions_are_those_of_the_servers_of_now() -> None:
    async with Client({"a": Server("a", instructions="Ask."), "b": Server("b")}) as client:
        await client.add_server("c", Server("c", instructions="Be brief."))
        assert client.instructions == "a: Ask.\n\nc: Be brief."
        await client.remove_server("a")
        assert client.instructions == "c: Be brief."


async def test_added_server_that_is_away_is_missing() -> None:
    async with Client({"a": make("a"), "b": make("b")}) as client:
        await client.add_server("c", Away(make("c")))
        assert client.missing == {"c": "it is off"}
        await client.remove_server("c")
        assert client.missing == {}


async def test_server_may_be_added_before_the_client_connects() -> None:
    client = Client({"a": make("a"), "b": make("b")})
    await client.add_server("c", make("c"))
    await client.remove_server("a")
    async with client:
        assert await tool_names(client) == ["b_count", "b_who", "c_count", "c_who"]


async def test_added_and_removed_servers_stay_so_after_a_new_connection() -> None:
    client = Client({"a": make("a"), "b": make("b")})
    async with client:
        await client.add_server("c", make("c"))
        await client.remove_server("a")
    async with client:
        assert await tool_names(client) == ["b_count", "b_who", "c_count", "c_who"]


async def test_changes_of_servers_are_announced_to_the_program() -> None:
    async with Client({"a": make("a"), "b": make("b")}) as client, client.listen(tools=True) as changes:
        following = aiter(changes)
        await client.add_server("c", make("c"))
        assert (await anext(following)).kind == "tools"
        await client.remove_server("b")
        assert (await anext(following)).kind == "tools"
        assert await tool_names(client) == ["a_count", "a_who", "c_count", "c_who"]


async def test_cached_lists_are_read_again_after_a_change_of_servers() -> None:
    servers = {name: make(name) for name in "ab"}
    async with Client(servers) as client:
        assert len(await client.list_resources()) == 2
        await client.add_server("c", make("c"))
        assert len(await client.list_resources()) == 3
        await client.remove_server("c")
        assert len(await client.list_resources()) == 2


async def test_removed_server_is_unknown_and_may_be_added_again() -> None:
    async with Client({"a": make("a"), "b": make("b")}) as client:
        await client.remove_server("b")
        assert await tool_names(client) == ["a_count", "a_who"]
        with pytest.raises(ProtocolError, match="Unknown tool"):
            await client.call_tool("b_who")
        await client.add_server("b", make("other"))
        assert (await client.call_tool("b_who")).text == "other"


async def test_call_of_unlisted_tool_reaches_its_server_after_another_was_removed() -> None:
    server = make("b")
    async with Client({"a": make("a"), "b": server, "c": make("c")}) as client:
        await client.remove_server("a")
        await client.list_tools()

        @server.tool
        async def late() -> str:
            return "late"

        assert (await client.call_tool("b_late")).text == "late"


@pytest.mark.parametrize("is_given_up", [False, True])
async def test_unlisted_tool_is_asked_for_while_and_after_a_server_that_closes_slowly_is_removed(
    is_given_up: bool,
) -> None:
    slow = SlowToEnd(make("a"))
    async with Client({"a": slow, "b": make("b"), "c": make("c")}) as client:
        removing = asyncio.create_task(client.remove_server("a"))
        await asyncio.sleep(0.05)
        assert not removing.done()
        # The server says that it is unknown, which shows in its name there.
        with pytest.raises(ProtocolError, match="Unknown tool: late"):
            await client.call_tool("b_late")
        if is_given_up:
            removing.cancel()
        slow.ends.set()
        await asyncio.wait({removing})
        assert removing.cancelled() is is_given_up
        # The server says that it is unknown, which shows in its name there.
        with pytest.raises(ProtocolError, match="Unknown tool: late"):
            await client.call_tool("b_late")


@pytest.mark.parametrize("revision", [LATEST_LEGACY, MODERN])
async def test_running_call_of_a_removed_server_ends_with_an_error(revision: str) -> None:
    server, begun = make("b"), asyncio.Event()

    @server.tool
    async def wait() -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    async with Client({"a": make("a"), "b": server}, revision=revision) as client:
        running = asyncio.create_task(client.call_tool("b_wait"))
        await begun.wait()
        await client.remove_server("b")
        with pytest.raises(OutcomeUnknown, match="The server 'b' was removed from the client"):
            await running
        assert (await client.call_tool("a_who")).text == "a"


async def test_calls_of_other_servers_go_on_while_one_is_removed() -> None:
    server, begun, ends = make("a"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> str:
        begun.set()
        await ends.wait()
        return "done"

    async with Client({"a": server, "b": make("b")}) as client:
        running = asyncio.create_task(client.call_tool("a_wait"))
        await begun.wait()
        await client.remove_server("b")
        ends.set()
        assert (await running).text == "done"


async def test_added_server_asks_the_callbacks_and_passes_the_checks() -> None:
    server, seen = make("c"), list[str]()

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", str)
        return str(answer)

    def approve(call: ToolCall) -> bool:
        seen.append(call.name)
        return True

    async with Client(
        {"a": make("a"), "b": make("b")}, elicit=lambda _message, _params: {"value": "Ada"}, approve=approve
    ) as client:
        await client.add_server("c", server)
        assert "Ada" in (await client.call_tool("c_ask")).text
    assert seen == ["c_ask"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a", "Two servers would both be called 'a'"),
        ("a b", "Two servers would both be called 'a_b'"),
        ("b_more", "Tools of 'b' may have names that begin with 'b_more_'"),
        ("", "cannot be the name of one of several servers"),
    ],
)
async def test_name_that_is_taken_is_refused(name: str, message: str) -> None:
    async with Client({"a": make("a"), "b": make("b"), "a_b": make("a_b")}) as client:
        with pytest.raises(ValueError, match=message):
            await client.add_server(name, make("c"))
        assert len(await client.list_tools()) == 6


async def test_what_cannot_be_removed_is_refused() -> None:
    async with Client({"a": make("a"), "b": make("b")}) as client:
        with pytest.raises(ValueError, match="There is no server 'c': the servers are a, b"):
            await client.remove_server("c")
        await client.remove_server("b")
        with pytest.raises(ValueError, match="'a' is the last server of the client"):
            await client.remove_server("a")


async def test_client_of_one_server_has_a_fixed_server() -> None:
    async with Client({"a": make("a")}) as client:
        changes: list[Coroutine[Any, Any, None]] = [client.add_server("b", make("b")), client.remove_server("a")]
        for change in changes:
            with pytest.raises(NotSupported, match="give Client a mapping of two or more"):
                await change


async def test_skills_follow_the_servers() -> None:
    async with Client({"a": make("a"), "b": make("b")}) as client:
        skills = client.skills
        await client.add_server("c", make("c"))
        await client.remove_server("a")
        assert skills.origins == ["b", "c"]


def test_blocking_client_adds_and_removes_servers() -> None:
    with BlockingClient({"a": make("a"), "b": make("b")}) as client:
        client.add_server("c", make("c"))
        assert client.call_tool("c_who").text == "c"
        client.remove_server("a")
        assert sorted(tool.name for tool in client.list_tools()) == ["b_count", "b_who", "c_count", "c_who"]


async def test_adding_a_server_ends_when_the_client_is_closed() -> None:
    opening = asyncio.Event()

    class Silent(ServerTarget):
        async def open(self) -> Link:
            opening.set()
            await asyncio.Event().wait()
            raise AssertionError

    client = Client({"a": make("a"), "b": make("b")})
    async with client:
        adding = asyncio.create_task(client.add_server("c", Silent(make("c"))))
        await opening.wait()
    with pytest.raises(Unreachable, match="The client was closed while it added 'c'"):
        await adding


async def test_server_may_be_removed_while_it_is_added() -> None:
    opening = asyncio.Event()

    class Silent(ServerTarget):
        async def open(self) -> Link:
            opening.set()
            await asyncio.Event().wait()
            raise AssertionError

    async with Client({"a": make("a"), "b": make("b")}) as client:
        adding = asyncio.create_task(client.add_server("c", Silent(make("c"))))
        await opening.wait()
        await client.remove_server("c")
        await adding
        assert client.missing == {}
