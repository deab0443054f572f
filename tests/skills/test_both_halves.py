"""The skills of a server, read by the client: both halves of the library, on both eras and over each transport."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolwire import Server, testing
from toolwire.client.skills import SkillRejected

WAYS = [(over, revision) for over in ("memory", "stdio", "http") for revision in ("2025-11-25", "2026-07-28")]
FILES = {
    "pdf/SKILL.md": b"---\nname: pdf\ndescription: Fill in forms\nreleased: 2026-09-13\nbeta: yes\n---\n# PDF\n",
    "pdf/references/FORMS.md": b"\xef\xbb\xbf# Forms\r\n",
    "pdf/logo.bin": bytes(range(256)),
    "pdf/inner/SKILL.md": b"---\r\nname: inner\r\ndescription: 'Inside: another'\r\n---\r\n",
    "report/SKILL.md": b"---\nname: report\ndescription: Today\n---\nRead today.md\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path, data in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    return tmp_path


@pytest.mark.parametrize(("over", "revision"), WAYS)
async def test_every_skill_is_verified_and_every_byte_is_the_same(folder: Path, over: Any, revision: str) -> None:
    server = Server("s")
    server.skills(folder, prefix="acme", page_size=1)
    async with testing.connect(server, over=over, revision=revision) as (client, _):
        listed = await client.skills.list()
        assert listed.refused == []
        paths = [each.uri.removeprefix("skill://acme/").removesuffix("/SKILL.md") for each in listed]
        assert paths == ["pdf", "pdf/inner", "report"]
        for each, path in zip(listed, paths, strict=True):
            skill = await client.skills.load(each)
            for file in skill.files:
                assert (await skill.read(file)).data == (folder / path / file).read_bytes()
            assert skill.entry == (await client.skills.get(each.uri)).entry
        assert set((await client.skills.load(listed[0])).files) == {
            "SKILL.md",
            "references/FORMS.md",
            "logo.bin",
            "inner/SKILL.md",
        }


@pytest.mark.parametrize(("over", "revision"), WAYS)
async def test_a_generated_file_makes_the_skill_dynamic(folder: Path, over: Any, revision: str) -> None:
    server = Server("s")
    server.skills(folder)

    @server.skill_file("report/today.md")
    def today() -> str:
        return "sunny"

    async with testing.connect(server, over=over, revision=revision) as (client, _):
        uri = "skill://report/SKILL.md"
        with pytest.raises(SkillRejected) as caught:
            await client.skills.load(uri)
        assert caught.value.reason == "dynamic"
        skill = await client.skills.load(uri, dynamic=True)
        assert await skill.directory() == ["SKILL.md", "today.md"]
        file = await skill.read("today.md")
        assert (file.text, file.verified) == ("sunny", False)
