"""Skills on a server: the three methods, the files as resources, access, reloads, mounts, the bridge."""

from __future__ import annotations

import asyncio
import base64
import gc
import inspect
import json
import logging
import re
import weakref
from pathlib import Path
from typing import Any, Literal

import pytest
from tests.skills.folders import manifest, write
from tests.wireclient import MODERN, connect

from toolwire import Client, Context, Limits, Server, testing, types
from toolwire.auth.principal import Principal
from toolwire.protocol.errors import ProtocolError, ServerError, ToolwireError
from toolwire.protocol.skills import digest_of
from toolwire.server.registration import SkillOptions
from toolwire.skills import extension as paging
from toolwire.skills.folder import SkillsError
from toolwire.skills.served import ServedSkills

LEGACY = "2025-11-25"
ID = "io.modelcontextprotocol/skills"
FILES: dict[str, str | bytes] = {
    "pdf/SKILL.md": "See references/FORMS.md",
    "pdf/references/FORMS.md": "forms",
    "pdf/assets/logo.png": b"\x89PNG\r\n\x1a\n\xff",
    "pdf/inner/SKILL.md": "nested",
    "report/SKILL.md": "Reports",
}
PDF, INNER, REPORT = "skill://pdf/SKILL.md", "skill://pdf/inner/SKILL.md", "skill://report/SKILL.md"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(tmp_path / "skills", FILES)


def served(root: Path, **options: Any) -> Server:
    server = Server("s")
    server.skills(root, **options)
    return server


async def listed(client: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = await client.result("skills/list", {} if cursor is None else {"cursor": cursor})
        found += page["skills"]
        cursor = page.get("nextCursor")
        if cursor is None:
            return found


@pytest.mark.covers("SKL-S2", "SKL-S8")
@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_the_three_methods_work_for_a_client_that_declares_nothing(root: Path, revision: str) -> None:
    async with connect(served(root, prefix="acme"), revision) as client:
        found = await listed(client)
        assert [each["uri"] for each in found] == [
            "skill://acme/pdf/SKILL.md",
            "skill://acme/pdf/inner/SKILL.md",
            "skill://acme/report/SKILL.md",
        ]
        assert found[0]["frontmatter"] == {"name": "pdf", "description": "Does something useful"}
        one = await client.result("skills/get", {"uri": "skill://acme/pdf/SKILL.md"})
        assert one["skill"] == found[0]
        children = await client.result("resources/directory/read", {"uri": "skill://acme/pdf"})
        assert [(each["uri"], each["name"], each["mimeType"]) for each in children["resources"]] == [
            ("skill://acme/pdf/SKILL.md", "pdf", "text/markdown"),
            ("skill://acme/pdf/assets", "assets", "inode/directory"),
            ("skill://acme/pdf/inner", "inner", "inode/directory"),
            ("skill://acme/pdf/references", "references", "inode/directory"),
        ]
        hints = {"ttlMs": 300_000, "cacheScope": "public", "resultType": "complete"}
        for answer in (await client.result("skills/list"), one, children):
            assert {key: answer.get(key) for key in hints} == (hints if revision == MODERN else dict.fromkeys(hints))


@pytest.mark.covers("SKL-S3", "SKL-T8")
@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_every_listed_file_is_read_with_its_digest_and_size(root: Path, revision: str) -> None:
    async with connect(served(root), revision) as client:
        for skill in await listed(client):
            for file in skill["resources"]:
                (contents,) = (await client.result("resources/read", {"uri": file["uri"]}))["contents"]
                data = contents["text"].encode() if "text" in contents else base64.b64decode(contents["blob"])
                # Section 4: the size is that of the bytes, not of their base64.
                assert (digest_of(data), len(data)) == (file["digest"], file["size"])
        assert (await client.result("resources/read", {"uri": PDF}))["contents"][0]["mimeType"] == "text/markdown"


@pytest.mark.covers("SKL-S1")
async def test_skills_are_declared_with_resources(root: Path) -> None:
    server = served(root, list_files="none")
    for revision in (LEGACY, MODERN):
        declared = server.capabilities(revision)
        assert declared["extensions"] == {ID: {"directoryRead": True}}
        assert "resources" in declared
    assert "extensions" not in server.capabilities("2025-06-18")


@pytest.mark.covers("SKL-S2")
@pytest.mark.parametrize("revision", ["2024-11-05", "2025-06-18"])
async def test_older_clients_see_the_files_as_resources(root: Path, revision: str) -> None:
    async with connect(served(root), revision) as client:
        found = (await client.result("resources/list"))["resources"]
        assert [each["uri"] for each in found] == [PDF, INNER, REPORT]
        assert (await client.result("resources/read", {"uri": "skill://pdf/references/FORMS.md"}))["contents"]
        assert (await client.error("skills/list"))["code"] == -32601


@pytest.mark.covers("SKL-S7")
@pytest.mark.parametrize(("choice", "count"), [("skill", 3), ("all", 5), ("none", 0)])
async def test_which_files_the_list_of_resources_has_is_a_choice(root: Path, choice: str, count: int) -> None:
    async with connect(served(root, list_files=choice), MODERN) as client:
        found = (await client.result("resources/list"))["resources"]
        assert len(found) == count
        for each in found:
            assert (await client.result("resources/read", {"uri": each["uri"]}))["contents"]
            if each["uri"] == PDF:
                assert (each["name"], each["description"]) == ("pdf", "Does something useful")
                assert each["size"] == len(manifest("pdf", body=str(FILES["pdf/SKILL.md"])))


@pytest.mark.covers("SKL-S5", "SKL-S8", "SKL-T7")
@pytest.mark.parametrize(
    ("method", "uri"),
    [
        ("skills/get", "skill://nothing/SKILL.md"),
        ("skills/get", "skill://pdf"),
        ("skills/get", "skill://pdf/references/FORMS.md"),
        ("skills/get", "skill://PDF/SKILL.md"),
        ("skills/get", "skill://pdf/inner/../SKILL.md"),
        ("resources/read", "skill://pdf/nothing.md"),
        ("resources/read", "skill://pdf"),
        ("resources/read", "skill://pdf/references%2FFORMS.md"),
        ("resources/read", "skill://pdf/inner/../SKILL.md"),
        ("resources/read", "skill://pdf\\SKILL.md"),
        ("resources/directory/read", "skill://nothing"),
        ("resources/directory/read", PDF),
        ("resources/directory/read", "skill://pdf/"),
        ("resources/directory/read", "skill://pdf/../pdf"),
    ],
)
async def test_any_other_uri_is_unknown(root: Path, method: str, uri: str) -> None:
    async with connect(served(root), MODERN) as client:
        assert (await client.error(method, {"uri": uri}))["code"] == -32602


@pytest.mark.covers("SKL-S4")
async def test_pages_are_bounded_by_entries_and_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {f"s{number:03}/SKILL.md": "x" for number in range(230)})
    server = served(tmp_path)
    async with connect(server, MODERN) as client:
        first = await client.result("skills/list")
        assert len(first["skills"]) == 100
        uris = [each["uri"] for each in await listed(client)]
        assert uris == sorted(set(uris))
        assert len(uris) == 230
    monkeypatch.setattr(paging, "MAX_PAGE_BYTES", 1000)
    async with connect(served(tmp_path), MODERN) as client:
        page = await client.result("skills/list")
        assert 1 <= len(page["skills"]) < 10
        assert len(json.dumps(page["skills"], separators=(",", ":"))) <= 1000
        assert len(await listed(client)) == 230
    monkeypatch.setattr(paging, "MAX_PAGE_BYTES", 1)
    async with connect(served(tmp_path, page_size=3), MODERN) as client:
        assert len((await client.result("skills/list"))["skills"]) == 1  # An entry is never split.


async def test_an_invented_cursor_is_refused(root: Path) -> None:
    async with connect(served(root), MODERN) as client:
        assert (await client.error("skills/list", {"cursor": "x"}))["code"] == -32602
        assert (await client.error("resources/directory/read", {"uri": "skill://pdf", "cursor": "x"}))["code"] == -32602


@pytest.mark.covers("SKL-S8")
async def test_a_directory_has_pages_too(tmp_path: Path) -> None:
    write(tmp_path, {"a/SKILL.md": "x", **{f"a/d/{number:02}.md": "y" for number in range(25)}})
    server = Server("s", page_size=10)
    server.skills(tmp_path)
    async with connect(server, MODERN) as client:
        found: list[str] = []
        cursor: str | None = None
        while True:
            params = {"uri": "skill://a/d"} | ({} if cursor is None else {"cursor": cursor})
            answer = await client.result("resources/directory/read", params)
            found += [each["name"] for each in answer["resources"]]
            cursor = answer.get("nextCursor")
            if cursor is None:
                break
        assert found == [f"{number:02}.md" for number in range(25)]


@pytest.mark.covers("SKL-S5")
async def test_a_skill_that_is_not_listed_is_served_by_its_uri(root: Path) -> None:
    async with connect(served(root, listed=False), MODERN) as client:
        assert await listed(client) == []
        assert (await client.result("resources/list"))["resources"] == []
        assert (await client.result("skills/get", {"uri": PDF}))["skill"]["uri"] == PDF
        assert (await client.result("resources/read", {"uri": PDF}))["contents"]


# --- what cannot be served ---


@pytest.mark.covers("SKL-T4")
def test_a_start_fails_and_says_why(root: Path) -> None:
    write(root, {"wrong/SKILL.md": "---\nname: wrong\ndescription: Use it: now\n---\n"})
    server = Server("s")
    with pytest.raises(SkillsError) as caught:
        server.skills(root)
    assert 'line 3, column 20: a value without quotes has a colon and a blank: write description: "Use it: now"' in str(
        caught.value
    )
    assert "extensions" not in server.capabilities()


@pytest.mark.covers("SKL-T4")
async def test_or_the_skill_is_left_out_with_a_line_in_the_log(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(root, {"wrong/SKILL.md": "---\nname: wrong\ndescription: Use it: now\n---\n", ".DS_Store": b"x"})
    with caplog.at_level(logging.INFO, "toolwire.skills"):
        server = served(root, strict=False)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "wrong/SKILL.md: line 3, column 20" in caplog.text
    assert ".DS_Store (hidden)" in caplog.text
    async with connect(server, MODERN) as client:
        assert [each["uri"] for each in await listed(client)] == [PDF, INNER, REPORT]


def test_two_folders_cannot_have_the_same_skill(root: Path) -> None:
    server = served(root)
    with pytest.raises(ServerError, match=r"Two folders have the skill skill://pdf/SKILL\.md: give one of them"):
        server.skills(root)
    server.skills(root, prefix="other")


@pytest.mark.parametrize("data", [b"\xff" * 90_000, b"\n" * 60_000], ids=["bytes", "text"])
async def test_a_file_that_does_not_fit_into_an_answer_is_refused_at_the_start(tmp_path: Path, data: bytes) -> None:
    write(tmp_path, {"a/SKILL.md": "x", "a/large": data})
    with pytest.raises(SkillsError, match=r"a/large: reading it takes .* Limits\(result=(\d+)\)") as caught:
        Server("s", limits=Limits(result=100_000)).skills(tmp_path)
    enough = int(re.findall(r"result=(\d+)", str(caught.value))[0])
    server = Server("s", limits=Limits(result=enough))
    server.skills(tmp_path)
    async with connect(server, MODERN) as client:
        assert (await client.result("resources/read", {"uri": "skill://a/large"}))["contents"]


def test_a_skill_cannot_lie_inside_one_of_another_folder(root: Path) -> None:
    server = Server("s")
    server.skill(root / "pdf")
    with pytest.raises(ServerError, match=r"skill://pdf/report lies inside the skill skill://pdf of another folder"):
        server.skill(root / "report", prefix="pdf")
    server.skill(root / "report", prefix="pdf-more")


def test_a_folder_that_is_not_there_is_named() -> None:
    with pytest.raises(ServerError, match="There is no skill folder 'nowhere'"):
        Server("s").skills("nowhere")


@pytest.mark.parametrize("wrong", [{"list_files": "some"}, {"page_size": 0}, {"page_size": 101}, {"prefix": "../x"}])
def test_wrong_options_are_refused(root: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ServerError):
        served(root, **wrong)


# --- generated files ---


@pytest.mark.covers("SKL-S10")
async def test_a_generated_file_makes_its_skill_and_those_around_it_dynamic(root: Path) -> None:
    server = served(root)

    @server.skill_file("pdf/inner/today/news.md")
    async def news() -> str:
        return "today"

    @server.skill_file("pdf/inner/raw.bin", mime_type="application/octet-stream")
    def raw() -> bytes:
        return b"\xff"

    async with connect(server, MODERN) as client:
        kinds = {each["uri"]: each["resources"] == "dynamic" for each in await listed(client)}
        assert kinds == {PDF: True, INNER: True, REPORT: False}
        (contents,) = (await client.result("resources/read", {"uri": "skill://pdf/inner/today/news.md"}))["contents"]
        assert (contents["text"], contents["mimeType"]) == ("today", "text/markdown")
        assert (await client.result("resources/read", {"uri": "skill://pdf/inner/raw.bin"}))["contents"][0]["blob"]
        for uri, names in (
            ("skill://pdf/inner", ["inner", "raw.bin", "today"]),
            ("skill://pdf/inner/today", ["news.md"]),
        ):
            answer = await client.result("resources/directory/read", {"uri": uri})
            assert [each["name"] for each in answer["resources"]] == names


async def test_a_generated_file_goes_with_its_skill(root: Path) -> None:
    server = Server("s")
    folder = server.skills(root)
    server.skill_file("report/today.md")(lambda: "today")
    async with connect(server, MODERN) as client:
        assert (await client.result("resources/read", {"uri": "skill://report/today.md"}))["contents"]
        (root / "report/SKILL.md").unlink()
        folder.reload()
        assert (await client.error("resources/read", {"uri": "skill://report/today.md"}))["code"] == -32602


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_a_middleware_sees_the_list_as_objects(root: Path, revision: str) -> None:
    server = served(root)
    seen: list[str] = []

    @server.use
    async def look(ctx: Context, call_next: Any) -> Any:
        result = await call_next(ctx)
        if ctx.method == "skills/list":
            seen.extend(each.uri for each in result.skills)
        return result

    async with connect(server, revision) as client:
        assert [each["uri"] for each in await listed(client)] == seen == [PDF, INNER, REPORT]


@pytest.mark.parametrize(
    ("path", "says"),
    [("nothing/x.md", "is in no skill"), ("pdf/SKILL.md", "cannot be generated"), ("pdf/../x.md", "is not the path")],
)
def test_a_generated_file_belongs_to_a_skill(root: Path, path: str, says: str) -> None:
    with pytest.raises(ServerError, match=says):
        served(root).skill_file(path)(lambda: "x")


# --- changes ---


@pytest.mark.covers("SKL-T5")
async def test_a_file_edited_after_the_load_is_served_as_it_was_hashed(root: Path) -> None:
    async with connect(served(root), MODERN) as client:
        before = await listed(client)
        (root / "pdf/references/FORMS.md").write_text("changed")
        (contents,) = (await client.result("resources/read", {"uri": "skill://pdf/references/FORMS.md"}))["contents"]
        assert contents["text"] == "forms"
        assert await listed(client) == before


@pytest.mark.covers("SKL-T5")
async def test_a_file_that_is_not_in_memory_is_not_served_once_it_changed(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from functools import partial

    from toolwire.skills import served as serving

    monkeypatch.setattr(serving, "load_skills", partial(serving.load_skills, keep=0))
    async with connect(served(root), MODERN) as client:
        uri = "skill://pdf/references/FORMS.md"
        assert (await client.result("resources/read", {"uri": uri}))["contents"][0]["text"] == "forms"
        (root / "pdf/references/FORMS.md").write_text("other")
        error = await client.error("resources/read", {"uri": uri})
        assert error["code"] == -32602
        assert "has changed since" in error["message"]
    assert str(root) not in error["message"]


@pytest.mark.covers("SKL-S9")
@pytest.mark.parametrize("over", ["memory", "http"])
@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_a_reload_tells_clients_of_the_list_and_of_each_changed_file(
    root: Path, over: Any, revision: str
) -> None:
    server = Server("s")
    folder = server.skills(root)
    told: list[tuple[str, str | None]] = []
    async with testing.connect(server, revision=revision, over=over) as (client, _):
        async with client.listen(resources_list=True, resources=["skill://pdf/references/FORMS.md", REPORT]) as changes:
            (root / "pdf/references/FORMS.md").write_text("new forms")
            folder.reload()
            async for change in changes:
                told.append((change.kind, change.uri))
                if len(told) == 2:
                    break
        assert sorted(told) == [("resource", "skill://pdf/references/FORMS.md"), ("resources", None)]
        answer = await client.request("resources/read", {"uri": "skill://pdf/references/FORMS.md"}, returns=dict)
        assert answer["contents"][0]["text"] == "new forms"


async def test_skills_that_were_replaced_leave_the_memory(tmp_path: Path) -> None:
    server = Server("s")
    folder = server.skills(write(tmp_path, {"y/SKILL.md": "y"}), visible_to="docs")
    replaced: list[weakref.ref[Any]] = []
    for number, principal in enumerate([DOCS, DOCS, NOBODY]):
        async with testing.connect(server, revision=MODERN, principal=principal) as (client, _):
            await client.skills.list()
        if principal is DOCS:
            replaced += map(weakref.ref, server.catalog.skill_set.skills.values())
            write(tmp_path, {"y/SKILL.md": f"y {number}"})
            folder.reload()
    gc.collect()
    assert [each() for each in replaced if each() is not None] == []


@pytest.mark.covers("SKL-S9")
async def test_a_reload_that_fails_changes_nothing(root: Path) -> None:
    server = Server("s")
    folder = server.skills(root)
    async with connect(server, MODERN) as client:
        before = await listed(client)
        (root / "pdf/references/FORMS.md").write_text("new")
        (root / "report/SKILL.md").write_text("no frontmatter")
        with pytest.raises(SkillsError):
            folder.reload()
        assert await listed(client) == before
        (root / "report/SKILL.md").unlink()
        folder.reload()
        assert [each["uri"] for each in await listed(client)] == [PDF, INNER]
        assert len(folder) == 2


@pytest.mark.covers("SKL-S9")
@pytest.mark.parametrize("over", ["memory", "http"])
async def test_a_reload_during_many_lists_and_reads_shows_one_generation_to_each(tmp_path: Path, over: Any) -> None:
    def generation(number: int) -> None:
        write(tmp_path, {f"s{at:02}/SKILL.md": manifest(f"s{at:02}", f"Generation {number}") for at in range(30)})

    generation(0)
    server = Server("s")
    folder = server.skills(tmp_path, page_size=5)

    async def walk(client: Client) -> set[str]:
        seen: set[str] = set()
        cursor: str | None = None
        while True:
            page = await client.request("skills/list", {} if cursor is None else {"cursor": cursor}, returns=dict)
            seen |= {each["frontmatter"]["description"] for each in page["skills"]}
            cursor = page.get("nextCursor")
            if cursor is None:
                return seen

    async def read(client: Client, number: int) -> None:
        uri = f"skill://s{number % 30:02}/SKILL.md"
        entry = (await client.request("skills/get", {"uri": uri}, returns=dict))["skill"]
        answer = await client.request("resources/read", {"uri": uri}, returns=dict)
        data = answer["contents"][0]["text"].encode()
        again = (await client.request("skills/get", {"uri": uri}, returns=dict))["skill"]
        assert digest_of(data) in {each["resources"][0]["digest"] for each in (entry, again)}

    async def reload() -> None:
        for number in range(1, 4):
            generation(number)
            folder.reload()
            await asyncio.sleep(0)

    async with testing.connect(server, over=over) as (client, _):
        walks = [walk(client) for _ in range(50)]
        reads = [read(client, number) for number in range(50)]
        *seen, _ = await asyncio.gather(*walks, *reads, reload())
        assert all(len(each) == 1 for each in seen[:50])
        assert await walk(client) == {"Generation 3"}


@pytest.mark.covers("SKL-S9")
async def test_a_replaced_server_tells_of_changed_skills(root: Path) -> None:
    from toolwire.server.hot_reload import Stage

    stage = Stage(served(root))
    write(root, {"pdf/references/FORMS.md": "second", "new/SKILL.md": "x"})
    told: list[str] = []
    second = served(root)
    second.subscribe("skill://pdf/references/FORMS.md", told.append)
    assert await stage.replace(second) == ["resources"]
    assert told == ["skill://pdf/references/FORMS.md"]
    assert await stage.replace(served(root)) == []


# --- access ---

DOCS = Principal("u", scopes=frozenset({"docs"}))
NOBODY = Principal("v", scopes=frozenset())
REQUESTS: list[tuple[str, str]] = [
    ("skills/get", "skill://{}/SKILL.md"),
    ("resources/read", "skill://{}/SKILL.md"),
    ("resources/read", "skill://{}/references/FORMS.md"),
    ("resources/directory/read", "skill://{}"),
    ("resources/directory/read", "skill://{}/references"),
]


async def outcome(client: Client, method: str, params: dict[str, Any]) -> Any:
    try:
        return await client.request(method, params, returns=dict)
    except ProtocolError as error:
        return error.code, error.message


@pytest.mark.pairwise
@pytest.mark.covers("SKL-S11")
@pytest.mark.parametrize("mounted", [False, True])
@pytest.mark.parametrize("over", ["memory", "http"])
@pytest.mark.parametrize("revision", [LEGACY, MODERN])
@pytest.mark.parametrize("rule", ["visible_to", "scopes", "tag"])
async def test_a_hidden_skill_is_like_an_unknown_one(
    root: Path, rule: str, revision: str, over: Any, mounted: bool
) -> None:
    server = Server("s")
    hidden_by = {"tags": "internal"} if rule == "tag" else {rule: "docs"}
    server.skill(root / "pdf", **hidden_by, bridge=True, prompts=True, instructions=True)
    server.restrict("internal", scopes="docs")
    server.skill(root / "report")

    @server.resource("note://{name}")
    def note(name: Literal["a", "b"]) -> str:
        return name

    if mounted:
        outer = Server("outer")
        outer.mount(server)
        server = outer
    async with testing.connect(server, revision=revision, over=over, principal=NOBODY) as (client, _):
        answer = await client.request("skills/list", {}, returns=dict)
        assert [each["uri"] for each in answer["skills"]] == [REPORT]
        if revision == MODERN:
            assert answer["cacheScope"] == "private"
        assert [each.uri for each in await client.list_resources()] == [REPORT]
        for method, pattern in REQUESTS:
            hidden = await outcome(client, method, {"uri": pattern.format("pdf")})
            unknown = await outcome(client, method, {"uri": pattern.format("zzz")})
            assert hidden == unknown
        references = [{"type": "ref/resource", "uri": f"skill://{name}/SKILL.md"} for name in ("pdf", "zzz")]
        argument = {"name": "x", "value": ""}
        hidden, unknown = [
            await outcome(client, "completion/complete", {"ref": each, "argument": argument}) for each in references
        ]
        assert str(hidden).replace("pdf", "zzz") == str(unknown)
        assert "pdf" not in str(client.instructions)
        shown = await client.call_tool("list_skills", {})
        assert "pdf" not in str(shown)
        refused = [await client.call_tool("read_skill", {"uri": each["uri"]}) for each in references]
        assert str(refused[0]).replace("pdf", "zzz") == str(refused[1])
        assert [each.name for each in await client.list_prompts()] == ["report"]
    async with testing.connect(server, revision=revision, over=over, principal=DOCS) as (client, _):
        answer = await client.request("skills/list", {}, returns=dict)
        assert [each["uri"] for each in answer["skills"]] == [PDF, INNER, REPORT]
        for method, pattern in REQUESTS:
            assert isinstance(await outcome(client, method, {"uri": pattern.format("pdf")}), dict)
        assert "pdf" in str(await client.call_tool("list_skills", {}))


async def test_a_hidden_skill_uncovers_a_resource_at_its_address(root: Path) -> None:
    server = Server("s")
    server.skill(root / "report", visible_to="docs")
    server.resource(REPORT)(lambda: "for all")
    for principal, is_skill in ((NOBODY, False), (DOCS, True)):
        async with testing.connect(server, revision=MODERN, principal=principal) as (client, _):
            assert [each.uri for each in await client.list_resources()] == [REPORT]
            (contents,) = await client.read_resource(REPORT)
            assert (contents.text != "for all") == is_skill


@pytest.mark.parametrize("typed", [False, True])
async def test_an_extension_of_ones_own_keeps_its_scopes_whatever_its_method_is_called(typed: bool) -> None:
    server = Server("s")
    own = server.extension("com.example/folders", needs_client=False)
    options = {"params": types.ReadResourceDirectoryRequestParams} if typed else {}

    @own.method("resources/directory/read", scopes="docs", **options)
    async def read(params: Any, ctx: Context) -> dict[str, Any]:
        return {"ok": True}

    for principal, allowed in ((NOBODY, False), (DOCS, True)):
        async with testing.connect(server, revision=MODERN, principal=principal) as (client, _):
            if allowed:
                assert (await client.request("resources/directory/read", {"uri": "x"}))["ok"]
            else:
                with pytest.raises(ToolwireError, match="scope"):
                    await client.request("resources/directory/read", {"uri": "x"})


# --- mounted servers ---


async def test_the_middleware_of_a_mounted_server_sees_the_list_of_skills_as_a_result(root: Path) -> None:
    seen: list[Any] = []

    async def middleware(ctx: Any, call_next: Any) -> Any:
        result = await call_next(ctx)
        seen.append(result)
        return result

    inner, outer = Server("inner", middleware=[middleware]), Server("outer")
    inner.skills(root)
    outer.mount(inner)
    async with connect(outer, MODERN) as client:
        for _ in range(2):
            assert len(await listed(client)) == 3
    assert [type(each) for each in seen] == [types.ListSkillsResult] * 2


@pytest.mark.covers("SKL-S12")
async def test_a_server_offers_the_skills_of_the_servers_mounted_in_it(tmp_path: Path) -> None:
    first, second, outer = Server("first"), Server("second"), Server("outer")
    first.skills(write(tmp_path / "1", {"a/SKILL.md": "of the first", "same/SKILL.md": "of the first"}))
    second.skills(write(tmp_path / "2", {"b/SKILL.md": "of the second", "same/SKILL.md": "of the second"}))
    outer.mount(first, "one")
    outer.mount(second, "two")
    async with connect(outer, MODERN) as client:
        # URIs are global, so the prefix of a mount does not apply. The first of two skills with one URI is served.
        uris = [each["uri"] for each in await listed(client)]
        assert uris == ["skill://a/SKILL.md", "skill://b/SKILL.md", "skill://same/SKILL.md"]
        same = await client.result("resources/read", {"uri": "skill://same/SKILL.md"})
        assert "of the first" in same["contents"][0]["text"]
        entry = (await client.result("skills/get", {"uri": "skill://same/SKILL.md"}))["skill"]
        assert entry["resources"][0]["digest"] == digest_of(same["contents"][0]["text"].encode())
        outer.skills(write(tmp_path / "3", {"c/SKILL.md": "of the outer"}))
        assert len(await listed(client)) == 4
        second.skills(write(tmp_path / "4", {"d/SKILL.md": "later"}))
        assert len(await listed(client)) == 5


@pytest.mark.covers("SKL-S1")
async def test_a_server_without_skills_of_its_own_declares_those_of_a_mounted_one(root: Path) -> None:
    outer = Server("outer")
    inner = Server("inner")
    outer.mount(inner)
    assert "extensions" not in outer.capabilities()
    inner.skills(root)
    assert outer.capabilities()["extensions"] == {ID: {"directoryRead": True}}
    assert "resources" in outer.capabilities()


# --- clients that know no skills ---


@pytest.mark.covers("SKL-S13")
async def test_the_bridge_has_the_same_bytes(root: Path) -> None:
    server = served(root, bridge=True, prompts=True)
    async with Client(server) as client:
        names = {tool.name for tool in await client.list_tools()}
        assert names == {"list_skills", "read_skill"}
        assert [each["uri"] for each in (await client.call_tool("list_skills", {})).structured] == [PDF, INNER, REPORT]
        text = (await client.call_tool("read_skill", {"uri": PDF})).content[0].text
        assert text.encode() == (root / "pdf/SKILL.md").read_bytes()
        picture = (await client.call_tool("read_skill", {"uri": "skill://pdf/assets/logo.png"})).content[0]
        assert picture.resource.blob == FILES["pdf/assets/logo.png"]
        wrong = await client.call_tool("read_skill", {"uri": "note://other"})
        assert wrong.is_error
        prompt = await client.get_prompt("report")
        assert prompt.messages[0].content.text.encode() == (root / "report/SKILL.md").read_bytes()


async def test_skills_of_one_name_are_different_prompts(tmp_path: Path) -> None:
    write(tmp_path, {"a/x/SKILL.md": "1", "b/x/SKILL.md": "2"})
    async with Client(served(tmp_path, prompts=True)) as client:
        assert sorted(each.name for each in await client.list_prompts()) == ["a/x", "b/x"]


async def test_a_reload_replaces_the_prompts_of_skills_and_no_other_prompt(tmp_path: Path) -> None:
    server = Server("s")

    @server.prompt
    def own() -> str:
        return "of the program"

    root = write(tmp_path, {"a/x/SKILL.md": "1", "b/x/SKILL.md": "2", "a-x/SKILL.md": "3", "own/SKILL.md": "4"})
    folder = server.skills(root, prompts=True)
    assert sorted(each.name for each in server.prompts) == ["a-x", "a/x", "b/x", "own"]
    (root / "b/x/SKILL.md").unlink()
    folder.reload()
    assert sorted(each.name for each in server.prompts) == ["a-x", "own", "x"]
    server.remove("a-x")
    folder.reload()
    assert sorted(each.name for each in server.prompts) == ["a-x", "own", "x"]
    async with Client(server) as client:
        assert (await client.get_prompt("own")).messages[0].content.text == "of the program"


async def test_a_reload_that_cannot_show_its_prompts_changes_nothing(tmp_path: Path) -> None:
    root = write(tmp_path, {"x/SKILL.md": "1"})
    server = Server("s")
    folder = server.skills(root, prompts=True)
    deep = "/".join(["d" * 100] * 3)
    write(root, {f"{deep}/x/SKILL.md": "2"})
    with pytest.raises(ServerError, match="at most 256 characters"):
        folder.reload()
    async with connect(server, MODERN) as client:
        assert [each["uri"] for each in await listed(client)] == ["skill://x/SKILL.md"]
    assert len(folder) == 1


@pytest.mark.covers("SKL-S13")
def test_the_bridge_is_off_unless_asked_for(root: Path) -> None:
    server = served(root)
    assert (server.tools, server.prompts, server.instructions) == ([], [], None)


@pytest.mark.covers("SKL-S13")
def test_the_instructions_name_public_skills_within_a_budget(root: Path) -> None:
    server = Server("s", instructions="Be kind.")
    server.skill(root / "pdf", instructions=True)
    server.skill(root / "report", visible_to="docs")
    assert server.instructions is not None
    assert server.instructions.startswith("Be kind.\n\nSkills of this server.")
    assert "- pdf (skill://pdf/SKILL.md): Does something useful" in server.instructions
    assert "report" not in server.instructions
    small = served(root, instructions=45)
    assert small.instructions is not None
    assert small.instructions.endswith("more, which skills/list names")


def test_option_of_skills_that_does_not_exist_is_named(root: Path) -> None:
    for add in (Server("s").skills, Server("s").skill):
        with pytest.raises(TypeError, match="has no option 'prefx'; did you mean 'prefix'"):
            add(root, prefx="a")  # type: ignore[call-arg]


def test_what_a_type_checker_lets_through_is_what_skills_take() -> None:
    taken = inspect.signature(ServedSkills.add).parameters.keys() - {"self", "folder", "one"}
    assert SkillOptions.__optional_keys__ == taken
