"""The rules of skills: names, URIs, entries, limits, digests, and the comparison of frontmatter."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from tests.cases import cases

from toolwire.protocol import skills
from toolwire.protocol.skills import SkillRejected
from toolwire.protocol.types import Skill, SkillResource, decode, encode

ROOT = "skill://acme/pdf"
URI = f"{ROOT}/SKILL.md"
DIGEST = skills.digest_of(b"")


def entry(**members: Any) -> dict[str, Any]:
    """Return the JSON of an entry without faults, with these members instead of its own."""
    return {
        "uri": URI,
        "frontmatter": {"name": "pdf", "description": "Fill in forms"},
        "resources": [{"uri": URI, "digest": DIGEST, "size": 0}],
        **members,
    }


def file(path: str, size: int = 0, digest: str = DIGEST) -> dict[str, Any]:
    return {"uri": f"{ROOT}/{path}", "digest": digest, "size": size}


def read(members: dict[str, Any]) -> Skill:
    return skills.read_entry(json.dumps(members).encode())


def reason(members: dict[str, Any]) -> str:
    with pytest.raises(SkillRejected) as caught:
        read(members)
    return caught.value.reason


# --- Names -----------------------------------------------------------------------------------------------------------


@cases("name", ["a", "7", "pdf-processing", "a-b-c", "a" * 64, "1-2"])
def test_names(name: str) -> None:
    assert skills.is_name(name)


@cases("name", ["", "-a", "a-", "a--b", "A", "a_b", "a b", "a" * 65, "é", "a\n", "a.b", "a/b"])
def test_texts_that_are_no_names(name: str) -> None:
    assert not skills.is_name(name)


def test_reg_names() -> None:
    assert skills.is_reg_name("acme.example")
    assert skills.is_reg_name("a%20b")
    assert not any(map(skills.is_reg_name, ["", "a:80", "me@acme", "[::1]", "a b", "%2"]))


# --- URIs ------------------------------------------------------------------------------------------------------------


@cases(
    ("uri", "root", "name"),
    [
        ("skill://git-workflow/SKILL.md", "skill://git-workflow", "git-workflow"),
        ("skill://acme/billing/refunds/SKILL.md", "skill://acme/billing/refunds", "refunds"),
        ("github://owner/repo/skills/refunds/SKILL.md", "github://owner/repo/skills/refunds", "refunds"),
        ("file:///home/me/refunds/SKILL.md", "file:///home/me/refunds", "refunds"),
        ("https://host:8080/refunds/SKILL.md", "https://host:8080/refunds", "refunds"),
        ("urn:skills/refunds/SKILL.md", "urn:skills/refunds", "refunds"),
    ],
)
def test_the_root_and_the_name_of_a_uri(uri: str, root: str, name: str) -> None:
    assert (skills.root_of(uri), skills.name_in(uri)) == (root, name)


@cases(
    "uri",
    [
        "",
        "SKILL.md",
        "/SKILL.md",
        "skill:///SKILL.md",
        "skill:///a/SKILL.md",
        "skill://a/skill.md",
        "skill://a/SKILL.md/",
        "skill://a/SKILL.md?x=1",
        "skill://a?x=/SKILL.md",
        "skill://a#/SKILL.md",
        "skill://a/../SKILL.md",
        "skill://a/%2e%2e/SKILL.md",
        "skill://a/./SKILL.md",
        "skill://a//b/SKILL.md",
        "skill://a/b%2Fc/SKILL.md",
        "skill://a/b%5Cc/SKILL.md",
        "skill://a\\b/SKILL.md",
        "skill://a b/SKILL.md",
        "skill://a%/SKILL.md",
        "skill://a%ff/SKILL.md",
        "skill://a%00/SKILL.md",
        "skill://a\n/SKILL.md",
        "no-scheme/a/SKILL.md",
        f"skill://{'a' * 9000}/SKILL.md",
    ],
)
def test_texts_that_are_no_uri_of_a_skill(uri: str) -> None:
    with pytest.raises(SkillRejected) as caught:
        skills.root_of(uri)
    assert caught.value.reason in ("entry", "limit")


@cases(
    ("uri", "path"),
    [
        (URI, "SKILL.md"),
        (f"{ROOT}/references/FORMS.md", "references/FORMS.md"),
        (f"{ROOT}/a%20b.md", "a b.md"),
        (f"{ROOT}/%C3%A9.md", "é.md"),
        (f"{ROOT}/é.md", "é.md"),
        (f"{ROOT}/a/b/c", "a/b/c"),
        (f"{ROOT}/ab:c@d;e=f&g", "ab:c@d;e=f&g"),
    ],
)
def test_the_path_of_a_file(uri: str, path: str) -> None:
    assert skills.path_of(ROOT, uri) == path


@cases(
    "uri",
    [
        ROOT,
        f"{ROOT}/",
        f"{ROOT}x/a",
        "skill://acme/PDF/a",
        "skill://acme/other/a",
        f"{ROOT}/../other/a",
        f"{ROOT}/%2e%2e/other/a",
        f"{ROOT}/a/..",
        f"{ROOT}/a//b",
        f"{ROOT}/a/",
        f"{ROOT}/..%2Fother",
        f"{ROOT}/a%5Cb",
        f"{ROOT}/a\\b",
        f"{ROOT}/C:/a",
        f"{ROOT}/a/c:b",
        f"{ROOT}/C%3A/a",
        f"{ROOT}/a%00",
        f"{ROOT}/a?b",
        f"{ROOT}/a#b",
        f"{ROOT}/a%ff",
        f"{ROOT}/a%",
        f"{ROOT}/{'a' * 9000}",
        "file:///etc/passwd",
        f"{ROOT}/\ud800",
    ],
)
def test_files_that_are_not_inside(uri: str) -> None:
    assert skills.path_of(ROOT, uri) is None


FILE_NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="/\\"), min_size=1, max_size=20)


@given(st.lists(FILE_NAMES.filter(lambda name: name not in (".", "..") and name[1:2] != ":"), min_size=1, max_size=4))
def test_an_encoded_path_is_found_again(names: list[str]) -> None:
    path = "/".join(names)
    assert skills.path_of(ROOT, f"{ROOT}/{skills.encode_path(path)}") == path


def test_the_uri_of_a_path() -> None:
    assert skills.skill_uri("acme/billing/refunds") == "skill://acme/billing/refunds/SKILL.md"
    assert skills.encode_path("a b/(c)'!*/#?%") == "a%20b/(c)'!*/%23%3F%25"


@cases(
    ("reference", "path"),
    [
        ("references/FORMS.md", "references/FORMS.md"),
        ("./a", "a"),
        ("a/../b", "b"),
        ("a/./b//c", "a/b/c"),
        ("..", None),
        ("a/../../b", None),
        ("/etc/passwd", None),
        ("", ""),
    ],
)
def test_relative_references(reference: str, path: str | None) -> None:
    assert skills.resolve(reference) == path


# --- Entries ---------------------------------------------------------------------------------------------------------


def test_an_entry_keeps_what_it_carries() -> None:
    given_ = entry(frontmatter={"name": "pdf", "description": "x", "metadata": {"a": [1, None]}}, more={"b": 1})
    assert json.loads(encode(read(given_))) == given_
    assert read(entry(resources="dynamic")).resources == "dynamic"


def test_the_files_of_an_entry_by_their_paths() -> None:
    found = skills.files_of(read(entry(resources=[file("SKILL.md"), file("a%20b/c.md", 3)])))
    assert {path: each.size for path, each in found.items()} == {"SKILL.md": 0, "a b/c.md": 3}
    assert skills.files_of(read(entry(resources="dynamic"))) == {}


@cases(
    ("members", "expected"),
    [
        ({"uri": 1}, "entry"),
        ({"uri": "skill://pdf"}, "entry"),
        ({"frontmatter": []}, "entry"),
        ({"frontmatter": {"description": "x"}}, "name"),
        ({"frontmatter": {"name": 1, "description": "x"}}, "name"),
        ({"frontmatter": {"name": "PDF", "description": "x"}}, "name"),
        ({"frontmatter": {"name": "other", "description": "x"}}, "name"),
        ({"frontmatter": {"name": "pdf"}}, "frontmatter"),
        ({"frontmatter": {"name": "pdf", "description": " "}}, "frontmatter"),
        ({"frontmatter": {"name": "pdf", "description": ["x"]}}, "frontmatter"),
        ({"resources": "Dynamic"}, "entry"),
        ({"resources": None}, "entry"),
        ({"resources": {}}, "entry"),
        ({"resources": []}, "entry"),
        ({"resources": [file("other.md")]}, "entry"),
        ({"resources": [file("SKILL.md"), file("SKILL.md")]}, "entry"),
        ({"resources": [file("SKILL.md"), file("%53KILL.md")]}, "entry"),
        ({"resources": [file("SKILL.md"), file("../other/a")]}, "outside"),
        ({"resources": [file("SKILL.md"), {**file(""), "uri": "file:///etc/passwd"}]}, "outside"),
        ({"resources": [file("SKILL.md", digest="sha256:00")]}, "digest"),
        ({"resources": [file("SKILL.md", digest=DIGEST.upper())]}, "digest"),
        ({"resources": [file("SKILL.md", digest=f"{DIGEST}\n")]}, "digest"),
        ({"resources": [file("SKILL.md", -1)]}, "size"),
        ({"resources": [{**file("SKILL.md"), "size": 1.5}]}, "entry"),
        ({"resources": [{**file("SKILL.md"), "size": True}]}, "entry"),
        ({"resources": [{"uri": URI, "digest": DIGEST}]}, "entry"),
        ({"resources": [file("SKILL.md"), *(file(f"{n}.md") for n in range(512))]}, "limit"),
        ({"resources": [file("SKILL.md", 16 * 1024 * 1024), file("a", 1)]}, "limit"),
        ({"resources": [file("SKILL.md", 10**30)]}, "limit"),
    ],
)
def test_entries_that_are_rejected(members: dict[str, Any], expected: str) -> None:
    assert reason(entry(**members)) == expected


def test_an_entry_without_resources_is_rejected() -> None:
    members = entry()
    del members["resources"]
    assert reason(members) == "entry"


@cases("raw", [b"", b"[]", b"null", b'{"uri": "\xff"}', b'{"uri": ' + b"[" * 100_000])
def test_json_that_is_no_entry(raw: bytes) -> None:
    with pytest.raises(SkillRejected) as caught:
        skills.read_entry(raw)
    assert caught.value.reason == "entry"


def test_the_limits_are_inclusive() -> None:
    files = [file("SKILL.md", 16 * 1024 * 1024), *(file(f"{n}.md") for n in range(511))]
    assert read(entry(resources=files)).resources


def test_every_fault_of_an_entry_is_found() -> None:
    files = [SkillResource(f"{ROOT}/../a", "md5:0", -1)]
    found = [fault.reason for fault in skills.faults_of(Skill(URI, {"name": "x"}, files))]
    assert found == ["name", "frontmatter", "outside", "digest", "size", "entry"]


def test_texts_of_a_server_cannot_pass_for_something_else() -> None:
    with pytest.raises(SkillRejected) as caught:
        read(entry(frontmatter={"name": "\x1b[2J\u202e" + "x" * 1000, "description": "x"}))
    assert "\x1b" not in str(caught.value)
    assert "\u202e" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_reserved_metadata() -> None:
    metadata = {"io.modelcontextprotocol/x": 1, "io.modelcontextprotocolx": 2, "version": 3}
    assert skills.reserved_metadata({"metadata": metadata}) == ["io.modelcontextprotocol/x"]
    assert skills.reserved_metadata({}) == skills.reserved_metadata({"metadata": "x"}) == []


# --- Bytes -----------------------------------------------------------------------------------------------------------


def test_bytes_are_checked_by_size_and_digest() -> None:
    listed = SkillResource(URI, skills.digest_of(b"abc"), 3)
    skills.check_bytes(listed, b"abc")
    for data, expected in (b"abd", "digest"), (b"abcd", "size"), (b"", "size"):
        with pytest.raises(SkillRejected) as caught:
            skills.check_bytes(listed, data)
        assert caught.value.reason == expected
    assert (caught.value.expected, caught.value.found) == (3, 0)


@given(st.binary(max_size=50))
def test_the_size_of_base64_is_known_before_it_is_decoded(data: bytes) -> None:
    assert skills.base64_size(base64.b64encode(data).decode()) == len(data)


def test_the_fingerprint_is_that_of_the_set() -> None:
    one = read(entry(resources=[file("SKILL.md"), file("a")]))
    other = read(entry(resources=[file("a"), file("SKILL.md")], frontmatter={"name": "pdf", "description": "y"}))
    assert skills.fingerprint(one) == skills.fingerprint(other)
    changed = [
        [file("SKILL.md")],
        [file("SKILL.md"), file("b")],
        [file("SKILL.md"), file("a", digest=skills.digest_of(b"x"))],
        [file("SKILL.md"), file("a"), file("b")],
    ]
    prints = {skills.fingerprint(read(entry(resources=files))) for files in changed}
    assert len(prints) == 4
    assert skills.fingerprint(one) not in prints
    assert skills.fingerprint(read(entry(resources="dynamic"))) is None


# --- Frontmatter -----------------------------------------------------------------------------------------------------


@cases(
    ("one", "other", "path"),
    [
        ({"a": 1}, {"a": 1.0}, None),
        ({"a": 12345678901234567890}, {"a": 12345678901234567000}, None),
        ({"a": {"b": [1, {"c": None}]}}, {"a": {"b": [1, {"c": None}]}}, None),
        ({"a": True}, {"a": 1}, "a"),
        ({"a": "1"}, {"a": 1}, "a"),
        ({"a": None}, {}, "a"),
        ({}, {"a": None}, "a"),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1]}}, "a.b"),
        ({"a": {"b": [1, 2]}}, {"a": {"b": [1, 3]}}, "a.b[1]"),
        ({"a": []}, {"a": {}}, "a"),
        ({"b": 1, "a": 1}, {"b": 2, "a": 2}, "a"),
        ({"a": 10**400}, {"a": 1.5}, "a"),
        ({"a": "\u00e9"}, {"a": "e\u0301"}, "a"),
    ],
)
def test_differences(one: dict[str, Any], other: dict[str, Any], path: str | None) -> None:
    found = skills.difference(one, other)
    assert (found.path if found else None) == path


def test_a_missing_member_differs_from_null() -> None:
    assert skills.difference({"a": None}, {}) == ("a", None, UNSET)


def test_deep_values_are_compared() -> None:
    def deep(end: Any) -> Any:
        for _ in range(20_000):
            end = [end]
        return end

    assert skills.difference(deep(1), deep(1)) is None
    assert skills.difference(deep(1), deep(2)) is not None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_a_value_never_differs_from_itself(value: Any) -> None:
    assert skills.difference(value, value) is None
    assert skills.difference(value, json.loads(json.dumps(value))) is None


@given(JSON, JSON)
def test_the_comparison_is_symmetric(one: Any, other: Any) -> None:
    assert (skills.difference(one, other) is None) == (skills.difference(other, one) is None)


def test_the_results_carry_what_the_specification_names() -> None:
    from toolwire.protocol import types as t

    listed = t.ListSkillsResult(skills=[read(entry())], next_cursor="x", ttl_ms=1, cache_scope="public")
    assert set(json.loads(encode(listed))) == {"resultType", "skills", "nextCursor", "ttlMs", "cacheScope"}
    assert decode(t.ListSkillsResult, encode(listed)) == listed
    assert decode(t.ReadResourceDirectoryRequestParams, b'{"uri": "a", "cursor": "b"}').cursor == "b"
