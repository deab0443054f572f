"""Skills of servers behind a gateway: one list, verified files, and two servers with the same skill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases
from tests.client.skills.serving import ServedSkills, skill_md
from tests.gateway.backs import OVER, Recorded, behind, gateway_before, until
from tests.skills.folders import write

from toolwire import Client, Server
from toolwire.client.target import Link
from toolwire.client.targets import ServerTarget
from toolwire.gateway import Gateway
from toolwire.protocol.errors import ProtocolError, Unreachable
from toolwire.protocol.revisions import MODERN
from toolwire.protocol.upstreams import UPSTREAM_KEY

#: The revisions whose capabilities carry extensions.
CARRYING = (MODERN, "2025-11-25")
EXTENSION = "io.modelcontextprotocol/skills"
PDF = "skill://pdf/SKILL.md"


def pdf(label: str) -> dict[str, bytes]:
    """Make the files of a skill that differs from others of its name."""
    return {
        "SKILL.md": skill_md("pdf", f"Fills forms, says {label}", "See references/FORMS.md\n", version="1.10"),
        "references/FORMS.md": f"forms of {label}, at skill://pdf/SKILL.md".encode(),
        "assets/logo.png": b"\x89PNG\r\n\x1a\n\xff" + label.encode(),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "skills", {"report/SKILL.md": "Reports", "report/data/a.csv": "1,2"})


@pytest.mark.covers("GW-4.10")
@cases("over", OVER)
@cases("back", CARRYING)
@cases("front", CARRYING)
async def test_two_servers_with_the_same_skill_stay_apart(front: str, back: str, over: str) -> None:
    one, two = ServedSkills({"pdf": pdf("one")}), ServedSkills({"pdf": pdf("two"), "a": {"SKILL.md": skill_md("a")}})
    gateway = Gateway("front")
    async with behind(one.server, over) as first, behind(two.server, over) as second:
        gateway.add("one", first, revision=back).add("two", second, revision=back)
        async with Client(gateway, revision=front) as client:
            assert client.capabilities["extensions"] == {EXTENSION: {"directoryRead": True}}
            skills = {each.uri: each for each in await client.skills.list()}
            assert set(skills) == {"skill://a/SKILL.md", PDF, "skill://two/pdf/SKILL.md"}
            assert not one.reads and not two.reads
            for uri, label in ((PDF, "one"), ("skill://two/pdf/SKILL.md", "two")):
                skill = await client.skills.load(skills[uri])
                assert skills[uri].name == "pdf"
                assert set(skill.files) == {"SKILL.md", "references/FORMS.md", "assets/logo.png"}
                # The digests are those of the bytes, in which nothing is rewritten.
                assert (await skill.read("references/FORMS.md")).data == pdf(label)["references/FORMS.md"]
                assert (await skill.read("assets/logo.png")).data == pdf(label)["assets/logo.png"]
                assert (await client.skills.get(uri)).description == f"Fills forms, says {label}"
    assert [uri for uri in two.reads if "two" in uri] == []


async def listed(client: Client) -> list[str]:
    return [each.uri for each in await client.skills.list()]


@pytest.mark.parametrize("front", CARRYING)
async def test_skills_of_this_server_and_of_others_are_one_list(front: str, folder: Path) -> None:
    gateway = Gateway("front", instructions="Hello.")
    gateway.skills(folder, page_size=1, instructions=True)
    gateway.add("one", ServedSkills({"pdf": pdf("one"), "report": {"SKILL.md": skill_md("report")}}).server)
    gateway.add("two", ServedSkills({"zip": {"SKILL.md": skill_md("zip")}}).server)
    gateway.add("three", Server("three", instructions="Ask three."))
    async with Client(gateway, revision=front) as client:
        assert await listed(client) == [
            "skill://one/report/SKILL.md",
            PDF,
            "skill://report/SKILL.md",
            "skill://zip/SKILL.md",
        ]
        page = await client.request("skills/list", extension=EXTENSION)
        assert len(page["skills"]) == 1
        assert (await (await client.skills.load("skill://report/SKILL.md")).read("data/a.csv")).data == b"1,2"
        assert "Hello." in client.instructions and "skill://report/SKILL.md" in client.instructions
        assert "three: Ask three." in client.instructions


@pytest.mark.parametrize("back", CARRYING)
@pytest.mark.parametrize("front", CARRYING)
async def test_directories_are_read_under_the_addresses_that_clients_know(front: str, back: str, folder: Path) -> None:
    def serving() -> Server:
        server = Server("s")
        server.skills(folder)
        return server

    gateway = Gateway("front")
    async with behind(serving(), "memory") as first, behind(serving(), "memory") as second:
        gateway.add("one", first, revision=back).add("two", second, revision=back)
        async with Client(gateway, revision=front) as client:
            for root in ("skill://report", "skill://two/report"):
                children = await _children(client, root)
                assert set(children) == {f"{root}/SKILL.md", f"{root}/data"}
                assert children[f"{root}/SKILL.md"]["name"] == "report"
                assert children[f"{root}/data"]["mimeType"] == "inode/directory"
                assert set(await _children(client, f"{root}/data")) == {f"{root}/data/a.csv"}
            for wrong in ("skill://report/data/a.csv", "skill://nobody", "skill://two/report/none"):
                with pytest.raises(ProtocolError) as refused:
                    await _children(client, wrong)
                assert refused.value.code == -32602


async def _children(client: Client, uri: str) -> dict[str, dict[str, Any]]:
    found = await client.request("resources/directory/read", {"uri": uri}, extension=EXTENSION)
    return {each["uri"]: each for each in found["resources"]}


async def test_directories_of_a_server_that_reads_none_are_made_of_its_entries() -> None:
    served = ServedSkills({"pdf": pdf("one")})
    served.server.catalog.extensions[EXTENSION].settings.clear()
    async with gateway_before(served.server, "memory", None) as gateway, Client(gateway) as client:
        children = await _children(client, "skill://pdf")
        assert set(children) == {PDF, "skill://pdf/references", "skill://pdf/assets"}
        assert children[PDF] == {
            "uri": PDF, "name": "pdf", "description": "Fills forms, says one",
            "mimeType": "text/markdown", "size": len(pdf("one")["SKILL.md"]),
        }  # fmt: skip
        (form,) = (await _children(client, "skill://pdf/references")).values()
        assert form["name"] == "FORMS.md" and "mimeType" not in form


@cases("back", CARRYING)
@cases("front", CARRYING)
async def test_skills_without_digests_and_unlisted_ones_are_read(front: str, back: str) -> None:
    one = ServedSkills({"pdf": pdf("one"), "live": pdf("one") | {"SKILL.md": skill_md("live")}}, unlisted=("pdf",))
    two = ServedSkills({"live": pdf("two") | {"SKILL.md": skill_md("live")}})
    one.dynamic.add("live")
    two.dynamic.add("live")
    gateway = Gateway("front")
    async with behind(one.server, "memory") as first, behind(two.server, "memory") as second:
        gateway.add("one", first, revision=back).add("two", second, revision=back)
        async with Client(gateway, revision=front) as client:
            assert await listed(client) == ["skill://live/SKILL.md", "skill://two/live/SKILL.md"]
            for uri, label in (("skill://live/SKILL.md", "one"), ("skill://two/live/SKILL.md", "two")):
                skill = await client.skills.load(uri, dynamic=True)
                assert (await skill.read("references/FORMS.md")).data == pdf(label)["references/FORMS.md"]
            assert "skill://two/live/references" in await _children(client, "skill://two/live")
            hidden = await client.skills.load(PDF)
            assert (await hidden.read("references/FORMS.md")).data == pdf("one")["references/FORMS.md"]
            with pytest.raises(ProtocolError) as unknown:
                await client.skills.get("skill://none/SKILL.md")
            assert unknown.value.code == -32602


@pytest.mark.covers("GW-4.10")
async def test_adding_a_server_renames_no_skill_and_removing_one_frees_its_addresses() -> None:
    one, two = ServedSkills({"pdf": pdf("one")}), ServedSkills({"pdf": pdf("two")})
    nested = ServedSkills({"pdf/inner": {"SKILL.md": skill_md("inner")}})
    gateway = Gateway("front")
    gateway.add("one", one.server)
    async with Client(gateway) as client, client.listen(resources_list=True) as changes:
        assert await listed(client) == [PDF]
        gateway.add("two", two.server)
        assert (await anext(aiter(changes))).kind == "resources"
        await until(lambda: len(gateway.catalog.all("skills")) == 2)
        assert await listed(client) == [PDF, "skill://two/pdf/SKILL.md"]
        # A skill inside the skill of another server would look like a part of it.
        gateway.add("in", nested.server)
        await until(lambda: len(gateway.catalog.all("skills")) == 3)
        assert (await listed(client))[0] == "skill://in/pdf/inner/SKILL.md"
        gateway.remove("one")
        await until(lambda: len(gateway.catalog.all("skills")) == 2)
        # Two keeps the name that clients know.
        assert "skill://two/pdf/SKILL.md" in await listed(client)


async def test_a_change_of_a_skill_is_told_and_listed(folder: Path) -> None:
    server = Server("s")
    served = server.skills(folder)
    async with gateway_before(server, "memory", None) as gateway, Client(gateway) as client:
        before = await client.skills.get("skill://report/SKILL.md")
        async with client.listen(resources_list=True) as changes:
            write(folder, {"report/data/a.csv": "3,4"})
            served.reload()
            assert (await anext(aiter(changes))).kind == "resources"
        after = await client.skills.get("skill://report/SKILL.md")
        assert before.files["data/a.csv"].digest != after.files["data/a.csv"].digest


@pytest.mark.parametrize("kind", ["outside", "twice", "shape"])
async def test_an_entry_that_breaks_a_rule_is_left_out(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    served = ServedSkills({"pdf": pdf("one"), "zip": {"SKILL.md": skill_md("zip")}})

    def tamper(entry: dict[str, Any]) -> None:
        if "pdf" in entry["uri"]:
            entry.update(
                {
                    "outside": {"resources": [*entry["resources"], {**entry["resources"][0], "uri": "note://today"}]},
                    "twice": {"resources": [*entry["resources"], entry["resources"][0]]},
                    "shape": {"resources": 7},
                }[kind]
            )

    served.tamper = tamper
    async with gateway_before(served.server, "memory", None) as gateway, Client(gateway) as client:
        assert await listed(client) == ["skill://zip/SKILL.md"]
    assert "a skill is left out" in caplog.text


async def test_the_entry_of_a_skill_crosses_as_it_is() -> None:
    served = ServedSkills({"pdf": pdf("one")})
    unknown = {"com.example/more": {"a": [1, 2]}}

    def tamper(entry: dict[str, Any]) -> None:
        entry.update(unknown)
        entry["resources"][0].update(unknown)
        entry["frontmatter"]["metadata"] = {"deep": unknown}

    served.tamper = tamper
    recorded = Recorded()
    async with gateway_before(served.server, "memory", MODERN, recorded) as gateway, Client(gateway) as client:
        page = await client.request("skills/list", extension=EXTENSION)
        got = await client.request("skills/get", {"uri": PDF}, extension=EXTENSION)
    assert page["skills"] == [{**served.entry("pdf"), "_meta": {UPSTREAM_KEY: {"servers": ["b"]}}}]
    assert got["skill"] == served.entry("pdf")
    assert page["cacheScope"] == "private"
    assert isinstance(page["ttlMs"], int)


@pytest.mark.parametrize("front", CARRYING)
async def test_skills_come_through_several_gateways(front: str) -> None:
    inner = Gateway("inner")
    inner.add("one", ServedSkills({"pdf": pdf("one")}).server).add("two", ServedSkills({"pdf": pdf("two")}).server)
    gateway = Gateway("front")
    gateway.add("near", ServedSkills({"pdf": pdf("near")}).server).add("far", inner)
    async with Client(gateway, revision=front) as client:
        assert await listed(client) == ["skill://far/pdf/SKILL.md", PDF, "skill://two/pdf/SKILL.md"]
        for root, label in (("skill://far/pdf", "one"), ("skill://pdf", "near"), ("skill://two/pdf", "two")):
            skill = await client.skills.load(f"{root}/SKILL.md")
            assert (await skill.read("references/FORMS.md")).data == pdf(label)["references/FORMS.md"]


@pytest.mark.covers("SKL-H4")
@cases("over", OVER)
@cases("back", CARRYING)
@cases("front", CARRYING)
async def test_a_skill_that_changed_without_notice_is_loaded_with_its_new_entry(
    front: str, back: str, over: str
) -> None:
    other, served = ServedSkills({"pdf": pdf("other")}), ServedSkills({"pdf": pdf("old")}, ttl=300_000)
    gateway = Gateway("front")
    async with behind(served.server, over) as target:
        gateway.add("other", other.server).add("b", target, revision=back)
        async with Client(gateway, revision=front) as client:
            listed = {each.uri: each for each in await client.skills.list()}
            uri = "skill://b/pdf/SKILL.md"
            served.skills["pdf"] = pdf("new") | {"references/NEW.md": b"new here"}
            skill = await client.skills.load(listed[uri])
            assert skill.entry.resources != listed[uri].entry.resources
            # Also a file that the gateway did not know.
            assert (await skill.read("references/NEW.md")).data == b"new here"
            assert (await client.skills.get(uri)).entry == skill.entry
            assert {each.uri: each for each in await client.skills.list()}[uri].entry == skill.entry
            served.skills["pdf"]["SKILL.md"] = skill_md("pdf", body="Changed again\n")
            assert (await client.skills.load(uri)).body == "Changed again\n"
    assert other.count("skills/get") == 0


@cases("front", CARRYING)
async def test_a_skill_that_is_gone_is_unknown_and_one_of_a_server_that_fails_is_as_listed(front: str) -> None:
    served = ServedSkills({"pdf": pdf("one"), "zip": {"SKILL.md": skill_md("zip")}}, ttl=300_000)
    fails = False

    @served.server.use
    async def fail(ctx: Any, call_next: Any) -> Any:
        if fails and ctx.method == "skills/get":
            raise ProtocolError(-32603, "no disk")
        return await call_next(ctx)

    async with gateway_before(served.server, "memory", None) as gateway, Client(gateway, revision=front) as client:
        listed = {each.uri: each for each in await client.skills.list()}
        del served.skills["zip"]
        with pytest.raises(ProtocolError, match="No skill is served at this URI"):
            await client.skills.get("skill://zip/SKILL.md")
        assert [each.uri for each in await client.skills.list()] == [PDF]
        fails = True
        assert (await client.skills.get(PDF)).entry == listed[PDF].entry


async def test_files_of_a_skill_are_told_of_when_they_change(folder: Path) -> None:
    server = Server("s")
    served = server.skills(folder)
    gateway = Gateway("front")
    gateway.add("one", ServedSkills({"report": {"SKILL.md": skill_md("report")}}).server).add("two", server)
    uri = "skill://two/report/data/a.csv"
    async with Client(gateway) as client, client.listen(resources=[uri]) as changes:
        write(folder, {"report/data/a.csv": "3,4"})
        served.reload()
        assert (await anext(aiter(changes))).uri == uri
        assert (await client.read_resource(uri))[0].text == "3,4"


async def test_a_server_that_cannot_list_its_skills_is_of_use_without_them(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("s")
    extension = server.extension(EXTENSION, needs_client=False)

    @extension.method("skills/list")
    async def fail(params: Any, ctx: Any) -> None:
        raise ProtocolError(-32603, "no disk")

    @server.tool
    async def run() -> str:
        return "ran"

    async with gateway_before(server, "memory", None) as gateway, Client(gateway) as client:
        assert await client.call_tool("b_run", returns=str) == "ran"
        page = await client.request("skills/list", extension=EXTENSION)
        assert page["skills"] == []
        assert page["_meta"]["io.toolwire/missing"] == ["b"]
    assert "skills/list failed" in caplog.text


@pytest.mark.parametrize("strict", [False, True])
async def test_the_skills_of_a_server_that_is_away_are_missing_and_the_list_says_so(strict: bool) -> None:
    class Away(ServerTarget):
        async def open(self) -> Link:
            raise Unreachable("it is away")

    gateway = Gateway("front", strict=strict)
    gateway.add("one", ServedSkills({"pdf": pdf("one")}).server).add("two", Away(Server("two")))
    async with Client(gateway) as client:
        if strict:
            with pytest.raises(ProtocolError, match="two cannot be reached"):
                await listed(client)
            return
        assert await listed(client) == [PDF]
        page = await client.request("skills/list", extension=EXTENSION)
        assert page["_meta"]["io.toolwire/missing"] == ["two"]
