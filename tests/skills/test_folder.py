"""Folders of skills: what is served, what is left out, and what is refused with its place."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest
from tests.skills.folders import manifest, write

from toolwire.protocol.errors import ServerError
from toolwire.protocol.skills import MAX_BYTES, MAX_FILES, digest_of
from toolwire.skills import folder as loading
from toolwire.skills.folder import SkillFileChanged, load_skill, load_skills, watched_files


def problems(root: Path) -> list[str]:
    loaded = load_skills(str(root))
    return [str(problem).replace(f"{root}/", "") for problem in loaded.problems]


@pytest.mark.covers("SKL-S3")
def test_every_folder_with_a_manifest_is_a_skill_also_inside_another(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "pdf/SKILL.md": "See references/FORMS.md",
            "pdf/references/FORMS.md": "forms",
            "pdf/inner/SKILL.md": "nested",
            "billing/refunds/SKILL.md": "in an ordinary folder",
            "billing/README.md": "not in a skill",
        },
    )
    loaded = load_skills(str(tmp_path), "acme")
    assert [skill.uri for skill in loaded.skills] == [
        "skill://acme/billing/refunds/SKILL.md",
        "skill://acme/pdf/SKILL.md",
        "skill://acme/pdf/inner/SKILL.md",
    ]
    outer = loaded.skills[1]
    # Clause "Resources": complete, the files of nested skills among them.
    assert [file.uri for file in outer.files] == [
        "skill://acme/pdf/SKILL.md",
        "skill://acme/pdf/inner/SKILL.md",
        "skill://acme/pdf/references/FORMS.md",
    ]
    assert set(outer.directories) == {"skill://acme/pdf", "skill://acme/pdf/inner", "skill://acme/pdf/references"}
    assert [(each.reason, Path(each.file).name) for each in loaded.left_out] == [("in no skill", "README.md")]


@pytest.mark.covers("SKL-T3")
@pytest.mark.parametrize(
    "data", [b"\xef\xbb\xbfx", b"a\r\nb", b"\x00\xff", b""], ids=["BOM", "CRLF", "binary", "empty"]
)
def test_digest_and_size_are_those_of_the_bytes(tmp_path: Path, data: bytes) -> None:
    write(tmp_path, {"a/SKILL.md": "x", "a/data.bin": data})
    (skill,) = load_skills(str(tmp_path)).skills
    file = next(file for file in skill.files if file.path == "a/data.bin")
    assert (file.digest, file.size, file.data) == (digest_of(data), len(data), data)


@pytest.mark.covers("SKL-T6")
@pytest.mark.parametrize(
    "name",
    [".DS_Store", ".git/config", "__pycache__/x.pyc", "x.pyc", "notes.md~", "#notes.md#", ".notes.md.swp", "Thumbs.db"],
)
def test_hidden_files_caches_and_backups_are_left_out_and_reported(tmp_path: Path, name: str) -> None:
    write(tmp_path, {"a/SKILL.md": "x", f"a/{name}": "y"})
    loaded = load_skills(str(tmp_path))
    assert [file.path for file in loaded.skills[0].files] == ["a/SKILL.md"]
    assert [Path(each.file).name for each in loaded.left_out] == [name.partition("/")[0]]


@pytest.mark.covers("SKL-T6")
def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "secret.txt"
    outside.write_text("secret")
    root = write(tmp_path / "skills", {"a/SKILL.md": "x", "b/SKILL.md": "y", "b/real.md": "z"})
    (root / "a" / "link.md").symlink_to(outside)
    (root / "b" / "link.md").symlink_to(root / "b" / "real.md")
    loaded = load_skills(str(root))
    assert [skill.name for skill in loaded.skills] == ["b"]
    assert problems(root) == ["a/link.md: the link leads out of the folder: copy the file instead"]


def test_a_file_that_becomes_a_link_while_it_is_loaded_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write(tmp_path / "skills", {"a/SKILL.md": "text", "a/notes.md": "notes"})
    outside = tmp_path / "outside.md"
    outside.write_text("secret")
    read = loading._bytes_of

    def swapped(path: str) -> bytes:
        if path.endswith("notes.md"):
            Path(path).unlink()
            Path(path).symlink_to(outside)
        return read(path)

    monkeypatch.setattr(loading, "_bytes_of", swapped)
    loaded = load_skills(str(root))
    assert loaded.skills == []
    assert [each.message[:23] for each in loaded.problems] == ["the file cannot be read"]


@pytest.mark.covers("SKL-T6")
def test_a_link_to_a_folder_outside_and_one_that_leads_back_are_refused(tmp_path: Path) -> None:
    root = write(tmp_path / "skills", {"a/SKILL.md": "x", "b/SKILL.md": "y"})
    write(tmp_path / "elsewhere", {"x.md": "x"})
    (root / "a" / "out").symlink_to(tmp_path / "elsewhere")
    (root / "b" / "loop").symlink_to(root)
    (root / "b" / "gone").symlink_to(root / "nothing")
    found = problems(root)
    assert "a/out: the link leads out of the folder: copy the file instead" in found
    assert "b/loop: the link leads to a folder above it: remove it" in found
    assert any(text.startswith("b/gone: the file cannot be read") for text in found)


def test_a_pipe_is_left_out_and_does_not_block(tmp_path: Path) -> None:
    write(tmp_path, {"a/SKILL.md": "x"})
    os.mkfifo(tmp_path / "a" / "pipe")
    loaded = load_skills(str(tmp_path))
    assert [each.reason for each in loaded.left_out] == ["not a regular file"]


@pytest.mark.covers("SKL-T6")
def test_two_names_that_are_one_file_elsewhere_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"a/SKILL.md": "x", "a/Forms.md": "1", "a/FORMS.md": "2"})
    assert problems(tmp_path) == ["a/Forms.md: 'FORMS.md' is the same name on macOS or Windows: rename one of the two"]


@pytest.mark.covers("SKL-T7")
def test_a_name_is_in_the_same_form_on_every_system(tmp_path: Path) -> None:
    decomposed = unicodedata.normalize("NFD", "Größe.md")
    write(tmp_path, {"a/SKILL.md": "x", f"a/{decomposed}": "y"})
    (skill,) = load_skills(str(tmp_path)).skills
    assert [file.uri for file in skill.files] == ["skill://a/Gr%C3%B6%C3%9Fe.md", "skill://a/SKILL.md"]
    write(tmp_path, {f"a/{unicodedata.normalize('NFC', 'Größe.md')}": "z"})
    assert len(problems(tmp_path)) == 1


@pytest.mark.covers("SKL-T7")
def test_names_are_encoded_by_segment(tmp_path: Path) -> None:
    names = ["a b.md", "100%.md", "q?.md", "#1.md", "a%2Fb.md", "[x].md", "ü/é.md"]
    write(tmp_path, {"a/SKILL.md": "x", **{f"a/{name}": name for name in names}})
    (skill,) = load_skills(str(tmp_path)).skills
    assert {file.path: file.uri for file in skill.files if file.path != "a/SKILL.md"} == {
        "a/a b.md": "skill://a/a%20b.md",
        "a/100%.md": "skill://a/100%25.md",
        "a/q?.md": "skill://a/q%3F.md",
        "a/#1.md": "skill://a/%231.md",
        "a/a%2Fb.md": "skill://a/a%252Fb.md",
        "a/[x].md": "skill://a/%5Bx%5D.md",
        "a/ü/é.md": "skill://a/%C3%BC/%C3%A9.md",
    }


@pytest.mark.covers("SKL-T7")
@pytest.mark.parametrize("name", [b"a\\b.md", b"new\nline.md", b"\xff.md"], ids=["backslash", "newline", "not UTF-8"])
def test_names_that_cannot_stand_in_a_uri_are_refused(tmp_path: Path, name: bytes) -> None:
    write(tmp_path, {"a/SKILL.md": "x"})
    (tmp_path / "a" / os.fsdecode(name)).write_text("y")
    (text,) = problems(tmp_path)
    assert "rename it" in text


@pytest.mark.covers("SKL-S6")
def test_the_limits_of_files_and_bytes(tmp_path: Path) -> None:
    write(tmp_path, {"many/SKILL.md": "x", **{f"many/{number}.md": "y" for number in range(MAX_FILES)}})
    write(tmp_path, {"large/SKILL.md": "x"})
    with (tmp_path / "large" / "data.bin").open("wb") as file:
        file.truncate(MAX_BYTES)
    write(tmp_path, {"just/SKILL.md": "x", **{f"just/{number}.md": "y" for number in range(MAX_FILES - 1)}})
    loaded = load_skills(str(tmp_path))
    assert [skill.name for skill in loaded.skills] == ["just"]
    texts = problems(tmp_path)
    assert any("has 513 files, and hosts take 512" in text for text in texts)
    assert any("and hosts take 16,777,216 (16 MiB)" in text for text in texts)


@pytest.mark.covers("SKL-T2")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("---\nname: a\ndescription: Use it: now\n---\n", "line 3, column 20: a value without quotes has a colon"),
        ("---\nname: b\ndescription: x\n---\n", "line 2, column 7: the name is b, and the folder is a: rename one"),
        ("---\nname: A_b\ndescription: x\n---\n", "line 2, column 7: 'A_b' is not the name of a skill"),
        ("---\ndescription: x\n---\n", "line 1, column 1: the frontmatter has no name: write name:"),
        ("---\nname: a\n---\n", "line 1, column 1: the frontmatter has no description: write description:"),
        ("---\nname: a\ndescription: ' '\n---\n", "line 3, column 14: the frontmatter has no description"),
        ("---\nname: a\ndescription: 12\n---\n", "line 3, column 14: the description is 12, which is not a text"),
        ("---\nname: a\ndescription:\n---\n", "line 3, column 13: the frontmatter has no description"),
        ("# Just text\n", "line 1, column 1: there is no frontmatter: begin the file with a line ---"),
        ("---\nname: a\ndescription: &x y\n---\n", "line 3, column 14: &x is an anchor"),
        ("---\nname: a\ndescription: y\nname: a\n---\n", "line 4, column 1: the key 'name' stands here twice"),
    ],
)
def test_a_mistake_names_the_file_the_line_the_column_and_what_to_write(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "SKILL.md").write_text(text)
    (found,) = problems(tmp_path)
    assert says in found
    assert found.startswith("a/SKILL.md: line ")


def test_a_broken_nested_skill_is_an_ordinary_file_of_the_one_around_it(tmp_path: Path) -> None:
    write(tmp_path, {"a/SKILL.md": "x", "a/b/SKILL.md": manifest("other")})
    loaded = load_skills(str(tmp_path))
    assert [(skill.name, len(skill.files)) for skill in loaded.skills] == [("a", 2)]
    assert len(loaded.problems) == 1


def test_a_manifest_in_small_letters_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"a/skill.md": "x"})
    assert problems(tmp_path) == ["a/skill.md: the name of the file is SKILL.md, in capitals: rename it"]


def test_one_skill_by_its_folder(tmp_path: Path) -> None:
    root = write(tmp_path / "pdf", {"SKILL.md": manifest("pdf"), "inner/SKILL.md": "y"})
    assert [skill.uri for skill in load_skill(str(root), "acme/x").skills] == [
        "skill://acme/x/pdf/SKILL.md",
        "skill://acme/x/pdf/inner/SKILL.md",
    ]
    with pytest.raises(ServerError, match="is itself a skill"):
        load_skills(str(root))
    with pytest.raises(ServerError, match=r"has no SKILL\.md"):
        load_skill(str(tmp_path))


@pytest.mark.parametrize("prefix", ["..", "a/../b", "a//b", "a\\b", "a\nb", "."])
def test_a_prefix_is_a_path(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(ServerError, match="is not a path"):
        load_skills(str(tmp_path), prefix)


@pytest.mark.covers("SKL-T5")
def test_a_file_beyond_the_memory_is_read_again_and_never_under_an_old_digest(tmp_path: Path) -> None:
    write(tmp_path, {"a/SKILL.md": "x", "a/large.md": "before"})
    (skill,) = load_skills(str(tmp_path), keep=3).skills
    large = next(file for file in skill.files if file.path == "a/large.md")
    assert large.data is None
    assert large.read() == b"before"
    for change in (lambda: (tmp_path / "a/large.md").write_bytes(b"behind"), (tmp_path / "a/large.md").unlink):
        change()
        with pytest.raises(SkillFileChanged):
            large.read()


def test_a_walk_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"a/SKILL.md": "x", "a/" + "d/" * 40 + "x.md": "deep"})
    assert any("levels of folders" in text for text in problems(tmp_path))
    monkeypatch.setattr(loading, "MAX_ENTRIES", 1)
    assert any("more than 1 files" in text for text in problems(tmp_path))


def test_a_change_of_any_file_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, {"a/SKILL.md": "x", "a/.git/y": "z"})
    before = list(watched_files(str(tmp_path)))
    assert [Path(path).name for path, _ in before] == ["SKILL.md"]
    write(tmp_path, {"a/new.md": "x"})
    assert list(watched_files(str(tmp_path))) != before
