"""Who sees and may use what, as one table."""

from __future__ import annotations

import pytest

from toolwire import Policy, Server, testing
from toolwire.auth import ApiKeys, Principal, ResourceServer

READER = Principal("ann", scopes=frozenset({"read"}))
ADMIN = Principal("bob", scopes=frozenset({"read", "admin"}))


def make_server(**options: object) -> Server:
    server = Server("s", policy=Policy(implies={"admin": ["write"]}), **options)  # type: ignore[arg-type]

    @server.tool
    def search() -> str:
        return ""

    @server.tool(scopes=["write"])
    def store() -> str:
        return ""

    @server.tool(visible_to=["admin"], tags=["danger"])
    def purge() -> str:
        return ""

    @server.resource("log://all", scopes=["admin"])
    def log() -> str:
        return ""

    @server.resource("log://{day}", visible_to=["admin"])
    def day(day: str) -> str:
        return day

    @server.prompt(scopes=["read"])
    def ask() -> str:
        return ""

    return server


@pytest.mark.covers("R32")
async def test_one_table_for_each_kind_of_caller() -> None:
    server = make_server()
    assert testing.permissions(server, READER) == testing.Permissions(
        tools={"purge": "hidden", "search": "usable", "store": "refused"},
        resources={"log://all": "refused"},
        templates={"log://{day}": "hidden"},
        prompts={"ask": "usable"},
    )
    assert set(testing.permissions(server, ADMIN).tools.values()) == {"usable"}
    assert testing.permissions(server).prompts == {"ask": "refused"}
    # A tool that somebody forgot to guard is a change of the table.
    server.restrict("danger", scopes=["root"])
    assert testing.permissions(server, ADMIN).tools["purge"] == "refused"


@pytest.mark.covers("R32")
@pytest.mark.parametrize("principal", [READER, ADMIN])
async def test_the_table_says_what_happens(principal: Principal) -> None:
    server = make_server()
    table = testing.permissions(server, principal).tools
    async with testing.connect(server, principal=principal) as (client, _):
        seen = {tool.name for tool in await client.list_tools()}
        assert seen == {name for name, permission in table.items() if permission != "hidden"}
        for name, permission in table.items():
            outcome = (await testing.both_sides(server, lambda _, name=name: client.call_tool(name))).outcome  # type: ignore[misc]
            expected = {"usable": None, "refused": "ProtocolError 403", "hidden": "ProtocolError -32602"}
            assert outcome.kind == expected[permission]


@pytest.mark.covers("R32")
async def test_whom_the_door_turns_away_sees_nothing() -> None:
    keys = ApiKeys({"a-key-of-mine": "ann"})
    server = make_server(auth=ResourceServer(keys, scopes=["read"], allow=["ann"]))
    for nobody in (None, ADMIN, Principal("ann")):
        assert set(testing.permissions(server, nobody).tools.values()) == {"hidden"}
    assert testing.permissions(server, READER).tools["search"] == "usable"
