"""Skills on the page: what the operations tell it, on both eras."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases
from tests.inspector.page_client import inspected

from toolwire import Server
from toolwire.inspector import skills
from toolwire.testing import TamperedSkills

both_eras = cases("revision", ["2025-11-25", "2026-07-28"])


def states(answer: dict[str, Any]) -> dict[str, str]:
    return {file["path"]: file["state"] for file in answer["files"]}


@both_eras
async def test_a_skill_is_shown_loaded_and_read(revision: str) -> None:
    trap = TamperedSkills("nothing")
    async with inspected(trap.server, revision=revision) as page:
        listing = (await page.ask("state"))["catalogue"]["skills"]
        assert [item["name"] for item in listing["items"]] == ["pdf-processing"]
        shown = (await page.ask("definition", kind="skills", key=trap.uri))["definition"]
        assert [file["size"] for file in shown["entry"]["resources"]] and shown["refused"] is None
        trap.check_nothing_read()
        loaded = await page.ask("skill", uri=trap.uri)
        assert states(loaded) == {
            "SKILL.md": "verified",
            "assets/logo.bin": "not read",
            "references/FORMS.md": "not read",
        }
        assert all(file["digest"].startswith("sha256:") for file in loaded["files"])
        assert "# PDF documents" in loaded["body"]
        read = await page.ask("skillFile", uri=trap.uri, path="references/FORMS.md")
        assert read["file"]["text"].startswith("# Forms")
        assert states(read)["references/FORMS.md"] == "verified"
        binary = await page.ask("skillFile", uri=trap.uri, path="assets/logo.bin")
        assert (binary["file"]["text"], binary["file"]["size"]) == (None, 256)
        unlisted = await page.ask("skillFile", uri=trap.uri, path="secrets/keys.md")
        assert unlisted["file"]["refused"]["reason"] == "unlisted"


@both_eras
@pytest.mark.parametrize("mode", ["digest", "size", "frontmatter", "alias bomb", "yaml 1.1"])
async def test_what_was_refused_says_why(mode: Any, revision: str) -> None:
    trap = TamperedSkills(mode)
    async with inspected(trap.server, revision=revision) as page:
        answer = await page.ask("skill", uri=trap.uri)
        assert answer["refused"]["reason"] in (mode, "frontmatter")
        assert answer["refused"]["message"]
        assert answer["body"] is None
        assert states(answer)["SKILL.md"] == "refused"
        assert states(answer)["references/FORMS.md"] == "not read"
        trap.check_given_up()
        assert (await page.answer("skillFile", uri=trap.uri, path="references/FORMS.md")).status == 422


@cases("mode", ["513 files", "17 MiB", "wrong name", "outside", "no resources", "listed twice"])
async def test_a_refused_entry_is_listed_with_its_reason(mode: Any) -> None:
    async with inspected(TamperedSkills(mode).server) as page:
        (item,) = (await page.ask("state"))["catalogue"]["skills"]["items"]
        assert item["refused"] in ("limit", "name", "outside", "entry")
        shown = (await page.ask("definition", kind="skills", key=item["key"]))["definition"]
        assert shown["refused"]["message"]


async def test_a_generated_skill_is_loaded_only_if_that_is_said() -> None:
    trap = TamperedSkills("dynamic")
    async with inspected(trap.server) as page:
        assert (await page.ask("skill", uri=trap.uri))["refused"]["reason"] == "dynamic"
        trap.check_nothing_read()
        loaded = await page.ask("skill", uri=trap.uri, dynamic=True)
        assert states(loaded) == {"SKILL.md": "not verifiable"}
        read = await page.ask("skillFile", uri=trap.uri, path="references/FORMS.md")
        assert states(read)["references/FORMS.md"] == "not verifiable"


async def test_a_change_is_shown() -> None:
    trap = TamperedSkills("changed")
    async with inspected(trap.server) as page:
        await page.ask("skill", uri=trap.uri)
        assert (await page.ask("skillFile", uri=trap.uri, path="references/FORMS.md"))["changed"] is False


async def test_a_server_without_skills_offers_none() -> None:
    async with inspected(Server("plain")) as page:
        assert (await page.ask("state"))["catalogue"]["skills"]["offered"] is False
        assert (await page.answer("skill", uri="skill://x/SKILL.md")).status == 422


async def test_few_skills_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skills, "MAX_LOADED", 1)
    trap = TamperedSkills("nothing")
    async with inspected(trap.server) as page:
        for _ in range(3):
            await page.ask("skill", uri=trap.uri)
        assert states(await page.ask("skillFile", uri=trap.uri, path="SKILL.md"))["SKILL.md"] == "verified"
