"""Skills on the client: what is listed, loaded and read, and what is refused before a byte is used."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest
from tests.cases import cases
from tests.client.skills.serving import ServedSkills, skill_md

from toolwire import Client, Server, testing
from toolwire.client import InvalidResponse
from toolwire.client.skills import LoadedSkill, SkillRejected, origin
from toolwire.protocol.errors import NotSupported, ProtocolError
from toolwire.testing import TamperedSkills

PDF = "skill://acme/pdf/SKILL.md"
FILES = {
    "SKILL.md": skill_md("pdf", body="# PDF\n\nRead [forms](references/FORMS.md).\n"),
    "references/FORMS.md": b"# Forms\r\n",
    "assets/logo.bin": bytes(range(256)),
    "assets/a b (1).md": "\ufeffgr\u00fcn \u2728".encode(),
    "empty.md": b"",
}
WAYS = [(over, revision) for over in ("memory", "stdio", "http") for revision in ("2025-11-25", "2026-07-28")]


def served(**options: Any) -> ServedSkills:
    others = {"acme/refunds": {"SKILL.md": skill_md("refunds")}, "git": {"SKILL.md": skill_md("git")}}
    return ServedSkills({"acme/pdf": FILES, **others}, **options)


async def load(skills: ServedSkills, uri: str = PDF, **options: Any) -> LoadedSkill:
    async with Client(skills.server) as client:
        return await client.skills.load(uri, **options)


# --- honest skills ---


@pytest.mark.covers("SKL-H1")
@cases(("over", "revision"), WAYS)
async def test_a_skill_and_its_files_are_read_byte_for_byte(over: Any, revision: str) -> None:
    skills = served()
    async with testing.connect(skills.server, over=over, revision=revision) as (client, _):
        listed = await client.skills.list()
        assert [skill.uri for skill in listed] == [PDF, "skill://acme/refunds/SKILL.md", "skill://git/SKILL.md"]
        assert listed.refused == []
        skill = await client.skills.load(listed[0])
        assert (skill.name, skill.description) == ("pdf", "Fill in forms")
        assert skill.body == "# PDF\n\nRead [forms](references/FORMS.md).\n"
        assert skill.document.data == FILES["SKILL.md"]
        assert set(skill.files) == set(FILES)
        for path, data in FILES.items():
            file = await skill.read(path)
            assert (file.data, file.path, file.verified, file.origin) == (data, path, True, skill.origin)
        assert not skill.changed
        assert (await skill.read("assets/logo.bin")).text is None
        assert (await skill.read("references/FORMS.md")).text == "# Forms\r\n"


@pytest.mark.covers("SKL-H3")
@cases(("over", "revision"), WAYS)
async def test_nothing_is_read_ahead(over: Any, revision: str) -> None:
    trap = TamperedSkills("prefetch")
    async with testing.connect(trap.server, over=over, revision=revision) as (client, wire):
        await client.skills.list()
        await client.skills.get(trap.uri)
        await client.skills.for_model()
        trap.check_nothing_read()
        assert [message for message in wire.sent if message["method"] == "resources/read"] == []
        await client.skills.load(trap.uri)
        assert trap.reads == [trap.uri]
        trap.check_given_up()
    with pytest.raises(AssertionError, match="did not load"):
        trap.check_nothing_read()


async def test_approval_comes_before_the_first_read() -> None:
    skills = served()
    seen: list[list[str]] = []

    def approve(request: Any) -> bool:
        seen.append(skills.reads)
        return True

    async with Client(skills.server, approve_skill=approve) as client:
        await client.skills.load(PDF)
    assert seen == [[]]


async def test_a_skill_that_is_not_listed_is_found_by_its_uri() -> None:
    skills = served(unlisted=("git",))
    async with Client(skills.server) as client:
        assert "skill://git/SKILL.md" not in [skill.uri for skill in await client.skills.list()]
        assert (await client.skills.load("skill://git/SKILL.md")).name == "git"
        with pytest.raises(ProtocolError):
            await client.skills.load("skill://unknown/SKILL.md")
        with pytest.raises(SkillRejected):
            await client.skills.get("skill://git")


@cases(
    "reference",
    [
        "assets/a b (1).md",
        "./assets/a b (1).md",
        "references/../assets/a b (1).md",
        "assets/a%20b%20(1).md",
        "skill://acme/pdf/assets/a%20b%20(1).md",
    ],
)
async def test_a_reference_is_resolved_as_in_a_file_system(reference: str) -> None:
    skills = served()
    async with Client(skills.server) as client:
        skill = await client.skills.load(PDF)
        assert (await skill.read(reference)).path == "assets/a b (1).md"


async def test_a_directory_is_answered_from_the_held_entry() -> None:
    skills = served()
    async with Client(skills.server) as client:
        skill = await client.skills.load(PDF)
        assert await skill.directory() == ["SKILL.md", "assets/", "empty.md", "references/"]
        assert await skill.directory("assets") == ["assets/a b (1).md", "assets/logo.bin"]
        assert await skill.directory("nothing") == []
        with pytest.raises(SkillRejected, match="not inside"):
            await skill.directory("../other")
    assert skills.count("resources/directory/read") == 0


async def test_a_file_is_fetched_once_and_a_listing_while_it_is_fresh() -> None:
    skills = served(ttl=60_000)
    async with Client(skills.server) as client:
        for _ in range(3):
            listed = await client.skills.list()
            skill = await client.skills.load(listed[0])
            await skill.read("references/FORMS.md")
    assert skills.count("skills/list") == 2, "two pages, once"
    assert sorted(skills.reads) == [PDF, "skill://acme/pdf/references/FORMS.md"]


async def test_an_announced_change_ends_the_freshness() -> None:
    skills = served(ttl=60_000)
    async with (
        Client(skills.server, revision="2025-11-25") as client,
        client.listen(resources_list=True) as changes,
    ):
        await client.skills.list()
        skills.skills["new"] = {"SKILL.md": skill_md("new")}
        skills.server.resource("note://x")(lambda: "x")
        await anext(aiter(changes))
        assert "new" in [skill.name for skill in await client.skills.list()]


async def test_a_change_that_is_announced_between_two_pages_ends_the_freshness() -> None:
    skills = served(ttl=60_000)
    async with Client(skills.server) as client:
        announce = client.skills.forget
        skills.tamper = lambda entry: announce()
        await client.skills.list()
        skills.tamper = lambda entry: None
        skills.skills["new"] = {"SKILL.md": skill_md("new")}
        assert "new" in [skill.name for skill in await client.skills.list()]


@pytest.mark.covers("SKL-H4")
@pytest.mark.parametrize("has_approval", [False, True])
async def test_a_listed_skill_that_changed_is_loaded_with_its_new_entry(has_approval: bool) -> None:
    """The listing is fresh for a minute, and the server has reloaded its skills meanwhile."""
    skills = served(ttl=60_000)
    asked: list[Any] = []

    def approve(request: Any) -> bool:
        asked.append(request)
        return True

    async with Client(skills.server, approve_skill=approve if has_approval else None) as client:
        listed = await client.skills.list()
        skills.skills["acme/pdf"]["SKILL.md"] = skill_md("pdf", body="Read the new forms.\n")
        skill = await client.skills.load(listed[0])
        assert skill.body == "Read the new forms.\n"
        assert skill.entry.resources != listed[0].entry.resources
        assert skills.count("skills/get") == 1
        # Other files are other ones to approve.
        assert len(asked) == (2 if has_approval else 0)
        # The listing that has the old entry is not used again.
        assert (await client.skills.list())[0].entry == skill.entry
        # A file of the held entry stays the one that was loaded, and the refusal says what to do.
        skills.skills["acme/pdf"]["references/FORMS.md"] = b"# Other\r\n"
        with pytest.raises(SkillRejected, match="the server has changed the skill since it was loaded") as caught:
            await skill.read("references/FORMS.md")
        assert caught.value.reason == "digest"


@pytest.mark.covers("SKL-H4")
async def test_an_entry_is_fetched_anew_once_where_the_bytes_contradict_it() -> None:
    skills = served(ttl=60_000)
    skills.tamper = lambda entry: entry["resources"][0].update(digest="sha256:" + "0" * 64)
    async with Client(skills.server) as client:
        listed = await client.skills.list()
        with pytest.raises(SkillRejected, match="another digest") as caught:
            await client.skills.load(listed[0])
    assert caught.value.reason == "digest"
    assert skills.count("skills/get") == 1
    assert len(skills.reads) == 1


# --- what is refused ---

REFUSED = {
    "digest": "digest",
    "size": "size",
    "frontmatter": "frontmatter",
    "yaml 1.1": "frontmatter",
    "alias bomb": "frontmatter",
    "513 files": "limit",
    "17 MiB": "limit",
    "oversized answer": "size",
    "wrong name": "name",
    "outside": "outside",
    "no resources": "entry",
    "two contents": "contents",
    "another file": "contents",
    "dynamic": "dynamic",
}


@pytest.mark.covers("SKL-H1", "SKL-H2", "SKL-H11", "SKL-H12")
@cases(("over", "revision"), [way for way in WAYS if way[0] != "memory"])
@cases("mode", REFUSED)
async def test_a_tampered_skill_is_refused_and_none_of_its_files_read(mode: Any, over: Any, revision: str) -> None:
    trap = TamperedSkills(mode)
    async with testing.connect(trap.server, over=over, revision=revision) as (client, _):
        listed = await client.skills.list()
        for skill in (*listed, trap.uri):
            with pytest.raises(SkillRejected) as caught:
                await client.skills.load(skill)
            assert caught.value.reason == REFUSED[mode]
        assert [each.error.reason for each in listed.refused] == ([] if listed else [REFUSED[mode]])
    trap.check_given_up()


@pytest.mark.covers("SKL-H1", "SKL-H4")
@cases(("over", "revision"), [way for way in WAYS if way[0] != "memory"])
async def test_a_file_that_the_entry_does_not_name_is_not_read(over: Any, revision: str) -> None:
    trap = TamperedSkills("unlisted")
    async with testing.connect(trap.server, over=over, revision=revision) as (client, _):
        skill = await client.skills.load(trap.uri)
        for reference in ("secrets/keys.md", trap.secret, "../other/SKILL.md", "/etc/passwd", "file:///etc/passwd", ""):
            with pytest.raises(SkillRejected) as caught:
                await skill.read(reference)
            assert caught.value.reason == "unlisted"
    assert trap.reads == [trap.uri]


async def test_the_modes_of_tampered_servers_are_all_tried() -> None:
    elsewhere = {"nothing", "prefetch", "unlisted", "endless list", "cyclic cursor", "listed twice", "changed"}
    assert {*REFUSED} | elsewhere == {*TamperedSkills.modes}
    with pytest.raises(ValueError, match="mode is one of"):
        TamperedSkills("other")  # type: ignore[arg-type]


@pytest.mark.covers("SKL-H12")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_an_endless_list_ends(revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.client.listing.MAX_PAGES", 20)
    trap = TamperedSkills("endless list")
    async with testing.connect(trap.server, revision=revision) as (client, _):
        with pytest.raises(InvalidResponse, match="more than 20 pages"):
            await client.skills.list()
    assert len(trap.requests) == 20


@pytest.mark.covers("SKL-H12")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_a_cursor_that_comes_again_ends_the_list(revision: str, caplog: pytest.LogCaptureFixture) -> None:
    trap = TamperedSkills("cyclic cursor")
    async with testing.connect(trap.server, revision=revision) as (client, _):
        assert len(await client.skills.list()) == 1
    assert len(trap.requests) == 3
    assert "repeated a cursor" in caplog.text


async def test_a_uri_that_is_listed_twice_is_refused_both_times() -> None:
    trap = TamperedSkills("listed twice")
    async with testing.connect(trap.server) as (client, _):
        listed = await client.skills.list()
        with pytest.raises(SkillRejected, match="is listed twice"):
            await client.skills.load(trap.uri)
    assert list(listed) == []
    assert [each.uri for each in listed.refused] == [trap.uri]


async def test_the_bytes_of_a_listing_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "MAX_LISTING_BYTES", 300)
    async with Client(served().server) as client:
        with pytest.raises(InvalidResponse, match="more than 300 bytes"):
            await client.skills.list()


async def test_the_bytes_that_are_fetched_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "MAX_FETCHED_BYTES", 200)
    async with Client(served().server) as client:
        skill = await client.skills.load(PDF)
        with pytest.raises(SkillRejected) as caught:
            await skill.read("assets/logo.bin")
        assert caught.value.reason == "limit"


async def test_the_files_that_are_kept_are_bounded_even_if_they_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "MAX_KEPT_BYTES", 3_000)
    names = [f"{number}.md" for number in range(10)]
    skills = ServedSkills({"acme/pdf": {"SKILL.md": skill_md("pdf"), **dict.fromkeys(names, b"")}})
    async with Client(skills.server) as client:
        skill = await client.skills.load(PDF)
        for name in (*names, *names):
            await skill.read(name)
    assert len(skills.reads) == 1 + 2 * len(names)


async def test_skills_that_a_server_invents_take_little_memory() -> None:
    files = {f"{number}.md": b"x" for number in range(200)}
    skills = ServedSkills({})
    async with Client(skills.server) as client:

        async def size_after(rounds: range) -> int:
            for number in rounds:
                skills.skills = {f"{number}/pdf": {"SKILL.md": skill_md("pdf"), **files}}
                await client.skills.list()
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        await size_after(range(3))
        tracemalloc.start()
        try:
            before = await size_after(range(3, 4))
            grown = await size_after(range(4, 24)) - before
        finally:
            tracemalloc.stop()
    assert grown < 20 * 10_000, "an entry with 200 files has 25 KB"


async def test_the_bytes_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origin, "MAX_KEPT_BYTES", 2_000)
    skills = served()
    async with Client(skills.server) as client:
        skill = await client.skills.load(PDF)
        for _ in range(2):
            await skill.read("assets/logo.bin")
            await skill.read("references/FORMS.md")
            await skill.read("empty.md")
    assert skills.reads.count("skill://acme/pdf/assets/logo.bin") == 1
    await load(skills)


@cases(
    "contents",
    [
        [],
        [{"uri": PDF}],
        [{"uri": PDF, "text": "x", "blob": "eA=="}],
        [{"uri": PDF, "blob": "e"}],
        [{"uri": PDF, "blob": "e*=="}],
        [{"uri": PDF, "blob": "eA==\n"}],
    ],
)
async def test_contents_that_are_no_file(contents: list[dict[str, Any]]) -> None:
    skills = served()
    skills.contents_instead = contents
    with pytest.raises(SkillRejected) as caught:
        await load(skills)
    assert caught.value.reason in ("contents", "size")


async def test_an_answer_for_another_skill_is_refused() -> None:
    skills = served()

    @skills.server.use
    async def other(ctx: Any, call_next: Any) -> Any:
        if ctx.method == "skills/get":
            return {"skill": skills.entry("git"), "ttlMs": 0, "cacheScope": "private"}
        return await call_next(ctx)

    with pytest.raises(SkillRejected, match=r"answered for 'skill://git/SKILL\.md'"):
        await load(skills)


async def test_a_server_without_the_extension_is_told_apart() -> None:
    async with Client(Server("plain")) as client:
        with pytest.raises(NotSupported, match=r"did not declare the extension io\.modelcontextprotocol/skills"):
            await client.skills.list()


# --- the acting window ---


@pytest.mark.covers("SKL-H4")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_the_entry_that_a_skill_was_loaded_under_is_held(revision: str) -> None:
    skills = served()
    async with testing.connect(skills.server, revision=revision) as (client, _):
        skill = await client.skills.load(PDF)
        skills.skills["acme/pdf"]["new.md"] = b"new"
        skills.skills["acme/pdf"]["references/FORMS.md"] = b"# Formz\r\n"
        assert not skill.changed, "nobody has asked"
        await client.skills.get(PDF)
        assert skill.changed
        assert "new.md" not in skill.files
        with pytest.raises(SkillRejected) as unlisted:
            await skill.read("new.md")
        with pytest.raises(SkillRejected) as rotated:
            await skill.read("references/FORMS.md")
        assert (unlisted.value.reason, rotated.value.reason) == ("unlisted", "digest")
        again = await client.skills.load(PDF)
        assert (await again.read("new.md")).data == b"new"
        assert not again.changed


async def test_a_nested_skill_file_is_a_file_of_the_skill_around_it() -> None:
    nested = {"SKILL.md": skill_md("forms", **{"allowed-tools": "Bash"})}
    skills = ServedSkills({"acme/pdf": FILES, "acme/pdf/forms": nested})
    async with Client(skills.server) as client:
        skill = await client.skills.load(PDF)
        file = await skill.read("forms/SKILL.md")
        assert file.data == nested["SKILL.md"]
        assert "allowed-tools" not in skill.frontmatter


# --- dynamic skills ---


@pytest.mark.covers("SKL-H11")
async def test_a_dynamic_skill_needs_consent_and_is_marked() -> None:
    skills = served()
    skills.dynamic.add("acme/pdf")
    async with Client(skills.server) as client:
        listed = (await client.skills.list())[0]
        assert listed.dynamic and listed.files == {}
        with pytest.raises(SkillRejected):
            await client.skills.load(listed)
        assert skills.reads == []
        skill = await client.skills.load(listed, dynamic=True)
        assert skill.dynamic
        file = await skill.read("references/FORMS.md")
        assert (file.data, file.verified) == (b"# Forms\r\n", False)
        assert (await skill.read("skill://acme/pdf/assets/a%20b%20(1).md")).path == "assets/a b (1).md"
        assert await skill.directory("assets") == ["assets/a b (1).md", "assets/logo.bin"]
        assert "references/" in await skill.directory()
        skills.skills["acme/pdf"]["references/FORMS.md"] = b"# Other\r\n"
        assert (await skill.read("references/FORMS.md")).data == b"# Other\r\n"


async def test_directory_of_a_dynamic_skill_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    skills = served()
    skills.dynamic.add("acme/pdf")
    async with Client(skills.server) as client:
        skill = await client.skills.load(PDF, dynamic=True)
        monkeypatch.setattr(origin, "MAX_LISTING_BYTES", 10)
        with pytest.raises(InvalidResponse, match="resources/directory/read gave more than 10 bytes"):
            await skill.directory("assets")


@cases("reference", ["../git/SKILL.md", "/etc/passwd", "", "a/../..", "skill://acme/pdf/../git/SKILL.md"])
async def test_reads_of_a_dynamic_skill_stay_inside_it(reference: str) -> None:
    skills = served()
    skills.dynamic.add("acme/pdf")
    async with Client(skills.server) as client:
        skill = await client.skills.load(PDF, dynamic=True)
        with pytest.raises((SkillRejected, ProtocolError)):
            await skill.read(reference)
    assert all(uri.startswith("skill://acme/pdf/") for uri in skills.reads)


async def test_the_frontmatter_of_a_dynamic_skill_is_compared_too() -> None:
    skills = served()
    skills.dynamic.add("acme/pdf")
    async with Client(skills.server) as client:
        listed = await client.skills.get(PDF)
        skills.skills["acme/pdf"]["SKILL.md"] = skill_md("pdf", "Something else")
        with pytest.raises(SkillRejected) as caught:
            await client.skills.load(listed, dynamic=True)
        assert caught.value.reason == "frontmatter"


async def test_the_size_of_a_dynamic_skill_counts_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.protocol.skills.MAX_BYTES", 400)
    skills = served()
    skills.dynamic.add("acme/pdf")
    async with Client(skills.server) as client:
        skill = await client.skills.load(PDF, dynamic=True)
        await skill.read("assets/logo.bin")
        with pytest.raises(SkillRejected) as caught:
            await skill.read("assets/logo.bin")
        assert caught.value.reason == "limit"


async def test_loads_at_the_same_time() -> None:
    skills = served()
    async with Client(skills.server) as client:
        loaded = await asyncio.gather(*[client.skills.load(PDF) for _ in range(10)])
        files = await asyncio.gather(*[skill.read("references/FORMS.md") for skill in loaded])
    assert {file.data for file in files} == {b"# Forms\r\n"}
