"""Lock files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolwire.openapi.lock_file import lock as lock_file
from toolwire.openapi.lock_file.lock import (
    Lock,
    LockedDocument,
    encode_lock,
    read_copies,
    read_lock,
    write_lock,
)
from toolwire.openapi.model import (
    DescriptionError,
    OperationObject,
    OperationSettings,
    ParameterObject,
    SecurityRequirement,
    ServerObject,
    ToolArgument,
    ToolDefinition,
    digest_of,
)
from toolwire.protocol import types as t

URL = "https://pets.example/openapi.json"


def definition(**changed: Any) -> ToolDefinition:
    operation = OperationObject(
        method="GET",
        path="/pets",
        operation_id=changed.pop("operation_id", "listPets"),
        servers=(ServerObject(url="https://pets.example", document_uri=URL),),
        security=(SecurityRequirement({"oauth": ("read", "write")}), SecurityRequirement({})),
    )
    tags = ParameterObject(name="tags", location="query", style="pipeDelimited", explode=False)
    filters = ParameterObject(name="filter", location="query", content="application/json")
    return ToolDefinition(
        operation=operation,
        name=changed.pop("name", "listPets"),
        description=changed.pop("description", "List pets."),
        input_schema={"type": "object", "properties": {"limit": {"type": "integer"}}},
        annotations=t.ToolAnnotations(read_only_hint=True),
        arguments=(
            ToolArgument(name="limit", parameter=ParameterObject(name="limit", location="query")),
            ToolArgument(name="tags", parameter=tags),
            ToolArgument(name="filter", parameter=filters),
            ToolArgument(name="name", member="name"),
            ToolArgument(name="body"),
        ),
        settings=OperationSettings(),
    )


def test_a_definition_as_a_lock_has_it() -> None:
    found = lock_file.locked(definition())
    assert found.arguments == {
        "limit": "query limit",
        "tags": "query tags (pipeDelimited)",
        "filter": "query filter (application/json)",
        "name": "body name",
        "body": "body",
    }
    assert found.security == ({"oauth": ("read", "write")}, {})
    assert found.servers == ("https://pets.example",)
    assert found.tokens > 5


def test_the_digest_is_that_of_what_the_tool_does() -> None:
    plain = lock_file.locked(definition()).digest
    assert lock_file.locked(definition(operation_id="pets")).digest == plain
    assert lock_file.locked(definition(), {"timeout": 3}).digest == plain
    assert lock_file.locked(definition(name="pets")).digest != plain
    assert lock_file.locked(definition(description="x")).digest != plain


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    lock = Lock(
        source=URL,
        documents={URL: LockedDocument(digest=digest_of(b"{}"), copy="api.lock.documents/openapi.json")},
        operations=(lock_file.locked(definition(), {"timeout": 3}),),
        others=("GET /orders",),
    )
    write_lock(tmp_path / "api.lock.json", lock, {URL: b"{}"})
    assert read_lock(tmp_path / "api.lock.json") == lock
    assert read_copies(tmp_path / "api.lock.json", lock) == {URL: b"{}"}
    assert lock_file.is_lock(tmp_path / "api.lock.json")
    assert encode_lock(lock) == (tmp_path / "api.lock.json").read_bytes()


def test_copies_that_are_not_named_go(tmp_path: Path) -> None:
    file = tmp_path / "api.lock.json"
    write_lock(
        file, Lock(source=URL, documents={URL: LockedDocument(digest="", copy="api.lock.documents/a")}), {URL: b""}
    )
    assert (tmp_path / "api.lock.documents" / "a").exists()
    write_lock(file, Lock(source="api.yaml"), {})
    assert not (tmp_path / "api.lock.documents").exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        (b"{", "is not a lock file"),
        (b'{"format": "toolwire-openapi-lock/1"}', "missing required field `source`"),
        (b'{"format": "toolwire-openapi-lock/9", "source": "x"}', "has the format 'toolwire-openapi-lock/9'"),
        (b"[" * 100_000, "is not a lock file"),
    ],
)
def test_a_file_that_is_no_lock(content: bytes | None, words: str, tmp_path: Path) -> None:
    file = tmp_path / "api.lock.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(DescriptionError, match=words) as caught:
        read_lock(file)
    assert "toolwire openapi add" in str(caught.value)


@pytest.mark.parametrize("copy", ["../secret", "/etc/passwd", "api.lock.documents/../../secret", "other/openapi.json"])
def test_a_lock_names_copies_of_its_own_folder_only(copy: str, tmp_path: Path) -> None:
    lock = Lock(source=URL, documents={URL: LockedDocument(digest="", copy=copy)})
    with pytest.raises(DescriptionError, match=r"is not in api\.lock\.documents/"):
        read_copies(tmp_path / "api.lock.json", lock)


def test_a_changed_copy_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "api.lock.json"
    lock = Lock(source=URL, documents={URL: LockedDocument(digest=digest_of(b"{}"), copy="api.lock.documents/a")})
    write_lock(file, lock, {URL: b"{}"})
    (tmp_path / "api.lock.documents" / "a").write_bytes(b"{ }")
    with pytest.raises(DescriptionError, match="its digest differs"):
        read_copies(file, lock)
    (tmp_path / "api.lock.documents" / "a").unlink()
    with pytest.raises(DescriptionError, match="cannot be read"):
        read_copies(file, lock)


def test_files_are_named_from_the_folder_of_the_lock(tmp_path: Path) -> None:
    uri = (tmp_path / "parts" / "a b.yaml").as_uri()
    assert lock_file.name_of(uri, tmp_path) == "parts/a b.yaml"
    assert lock_file.uri_of("parts/a b.yaml", tmp_path) == uri
    assert lock_file.name_of(uri, tmp_path / "locks") == "../parts/a b.yaml"
    assert lock_file.uri_of("../parts/a b.yaml", tmp_path / "locks") == uri
    assert lock_file.name_of(URL, tmp_path) == lock_file.uri_of(URL, tmp_path) == URL
