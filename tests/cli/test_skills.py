"""`toolwire skills list|show|digest`: a folder, and a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.command import Command
from tests.skills.folders import manifest, write

from toolwire import Server
from toolwire.protocol.skills import digest_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write(
        tmp_path / "skills",
        {
            "pdf/SKILL.md": manifest("pdf", "Work with PDFs", "The body."),
            "pdf/references/FORMS.md": "forms",
            "x/same/SKILL.md": "1",
            "y/same/SKILL.md": "2",
        },
    )


@pytest.fixture(params=["folder", "server"])
def target(request: pytest.FixtureRequest, root: Path, toolwire: Command) -> str:
    if request.param == "folder":
        return str(root)
    server = Server("s")
    server.skills(root)
    toolwire.serves(server)
    return "server"


def test_list_names_the_skills(toolwire: Command, target: str) -> None:
    done = toolwire("skills", "list", target)
    assert done.status == 0
    assert done.out.splitlines()[1].split() == ["pdf", "skill://pdf/SKILL.md", "2", "60", "Work", "with", "PDFs"]
    assert done.out.endswith("3 skills.\n")
    plain = json.loads(toolwire("skills", "list", target, "--json").out)
    assert plain[0]["uri"] == "skill://pdf/SKILL.md"


@pytest.mark.parametrize("name", ["pdf", "skill://pdf/SKILL.md"])
def test_show_prints_a_skill_with_its_files(toolwire: Command, target: str, name: str) -> None:
    done = toolwire("skills", "show", target, name)
    assert done.status == 0
    assert digest_of(b"forms") in done.out
    assert done.out.endswith("The body.\n")
    plain = json.loads(toolwire("skills", "show", target, name, "--json").out)
    assert plain["text"].endswith("The body.")


def test_digest_prints_the_entries(toolwire: Command, target: str, root: Path) -> None:
    everything = json.loads(toolwire("skills", "digest", target).out)
    (one,) = json.loads(toolwire("skills", "digest", target, "pdf").out)
    assert one == everything[0]
    assert one["resources"][0]["digest"] == digest_of((root / "pdf/SKILL.md").read_bytes())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("show",), "show needs the URI or the name of a skill"),
        (("show", "nothing"), "there is no skill 'nothing': there are skill://pdf/SKILL.md"),
        (("digest", "same"), "2 skills are named 'same': name one of skill://x/same/SKILL.md, skill://y/same/SKILL.md"),
    ],
)
def test_a_wrong_name_is_explained(toolwire: Command, target: str, words: tuple[str, ...], says: str) -> None:
    action, *rest = words
    done = toolwire("skills", action, target, *rest)
    assert done.status == 2
    assert says in done.err


def test_a_folder_with_mistakes_says_so_and_shows_the_others(toolwire: Command, root: Path) -> None:
    write(root, {"wrong/SKILL.md": "---\nname: wrong\ndescription: x: y\n---\n"})
    done = toolwire("skills", "list", str(root))
    assert done.status == 1
    assert "wrong/SKILL.md: line 3, column 15:" in done.err
    assert "3 skills." in done.out


def test_a_prefix_stands_in_the_uris(toolwire: Command, root: Path) -> None:
    done = toolwire("skills", "list", str(root / "pdf"), "--prefix", "acme")
    assert "skill://acme/pdf/SKILL.md" in done.out
    assert toolwire("skills", "list", str(root), "--prefix", "..").status == 2


@pytest.mark.parametrize("command", [("skills", "list"), ("skills", "digest"), ("lint",)], ids=" ".join)
def test_a_folder_without_a_skill_is_told(toolwire: Command, tmp_path: Path, command: tuple[str, ...]) -> None:
    write(tmp_path, {"notes/README.md": "text"})
    done = toolwire(*command, str(tmp_path))
    assert done.status == 2
    assert "there is no skill in " in done.err
    assert "a file SKILL.md" in done.err


@pytest.mark.parametrize("command", ["skills", "lint"])
def test_the_help_says_that_a_folder_will_do(toolwire: Command, command: str) -> None:
    assert "a folder of skills, a URL" in " ".join(toolwire(command, "--help").out.split())


def test_a_server_file_with_broken_skills_says_what_is_broken(toolwire: Command, tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "skills/a/SKILL.md": "---\nname: a\ndescription: x: y\n---\n",
            "skills/b/SKILL.md": manifest("c"),
            "server.py": "from toolwire import Server\nserver = Server('s')\nserver.skills('skills')\n",
        },
    )
    done = toolwire("list", str(tmp_path / "server.py"))
    assert done.status == 3
    assert "2 problems in the skills: " in done.err
    assert 'SKILL.md: line 3, column 15: a value without quotes has a colon and a blank: write description: "x: y"' in (
        done.err
    )


def test_a_server_without_skills_is_told(toolwire: Command) -> None:
    toolwire.serves(Server("s"))
    done = toolwire("skills", "list", "server")
    assert done.status == 2
    assert "server.skills()" in done.err


def test_a_dynamic_skill_is_shown_when_asked_for(toolwire: Command, root: Path) -> None:
    server = Server("s")
    server.skills(root)
    server.skill_file("pdf/today.md")(lambda: "today")
    toolwire.serves(server)
    assert "dynamic" in toolwire("skills", "list", "server").out
    assert toolwire("skills", "show", "server", "pdf").status != 0
    done = toolwire("skills", "show", "server", "pdf", "--dynamic")
    assert done.status == 0
    assert "they have no digests" in done.out
