"""`read_description`: files, objects, versions, references, limits, and the texts of errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cases import cases

from toolwire.openapi.description.documents import Limits
from toolwire.openapi.description.reading import read_description
from toolwire.openapi.description.references import Description
from toolwire.openapi.model import DescriptionError, Node

PETS = """\
openapi: 3.1.0
info: {title: Pets, version: "7"}
paths:
  /pets:
    get:
      responses:
        200: {$ref: '#/components/responses/Pets'}
components:
  responses:
    Pets:
      description: All pets.
      content: {application/json: {schema: {$ref: '#/components/schemas/Pet'}}}
  schemas:
    Pet: {type: object}
"""


def api(version: str = "3.1.0", **members: Any) -> dict[str, Any]:
    return {"openapi": version, "info": {"title": "T", "version": "1"}, "paths": {}, **members}


def refused(source: Any, **options: Any) -> str:
    with pytest.raises(DescriptionError) as caught:
        read_description(source, **options)
    return str(caught.value)


def written(folder: Path, **files: str) -> Path:
    """Write files (`root="..."` is root.yaml) and return the root."""
    for name, text in files.items():
        file = folder / f"{name.replace('__', '/')}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder / "root.yaml"


def target(description: Description, reference: str) -> Any:
    return description.referenced(reference, description.root)[1].value


# --- sources ---


def test_a_file_in_yaml_and_the_same_in_json(tmp_path: Path) -> None:
    (tmp_path / "pets.yaml").write_text(PETS)
    from_yaml = read_description(tmp_path / "pets.yaml")
    (tmp_path / "pets.json").write_bytes(b"\xef\xbb\xbf" + msgspec.json.encode(from_yaml.root.root))
    from_json = read_description(str(tmp_path / "pets.json"))
    assert from_yaml.root.root == from_json.root.root
    assert (from_yaml.title, from_yaml.version, from_yaml.root.version) == ("Pets", "7", "3.1")
    uri = (tmp_path / "pets.yaml").as_uri()
    assert from_yaml.root.uri == from_yaml.root.retrieved_from == uri
    assert read_description(uri).root.digest == from_yaml.root.digest
    assert from_yaml.digests == {uri: from_yaml.root.digest}
    assert from_yaml.root.digest.startswith("sha256:")


def test_an_object_and_bytes_with_and_without_an_address() -> None:
    content = api(paths={"/": {"get": {}}})
    assert read_description(content).root.uri == ""
    assert read_description(content).root.root == content
    description = read_description(msgspec.json.encode(content), base_uri="https://example.com/api/v1.json")
    assert description.root.retrieved_from == "https://example.com/api/v1.json"
    assert read_description({**content, "paths": {1: {}}}).root.root["paths"] == {"1": {}}


def test_equal_texts_of_a_document_are_one_object() -> None:
    text = """{"openapi": "3.1.0", "info": {"title": "an API", "version": "1"}, "paths": {},
        "x": ["an API", {"y": "an API"}, [["an API"]]]}"""
    root = read_description(text.encode()).root.root
    first, second, third = root["x"]
    assert root["info"]["title"] is first
    assert second["y"] is first and third[0][0] is first


@cases("version", ["3.0.0", "3.0.3", "3.1.1", "3.2.0", "3.1", "3.0.0-rc1"])
def test_versions(version: str) -> None:
    assert read_description(api(version)).root.version == version[:3]


def test_a_version_without_quotes() -> None:
    assert read_description(b"openapi: 3.1\npaths: {}").root.version == "3.1"


@cases(
    ("text", "words"),
    [
        ("", "not an API description but empty"),
        ("[]", "not an API description but a list"),
        ("<!DOCTYPE html>\n<html><body>hi</body></html>", "text"),
        (
            "openapi: 4.0.0",
            "'4.0.0' is a version that is not known here: OpenAPI 3.0, 3.1, 3.2 and Swagger 2.0 are read",
        ),
        ("openapi: 3.3.0", "'3.3.0'"),
        ("openapi: [3]", "is a version"),
        ("swagger: '1.2'", "'1.2'"),
        ("swaggerVersion: '1.2'", "Swagger 1 document: convert it"),
        ("asyncapi: 2.0.0", "AsyncAPI"),
        ("overlay: 1.0.0", "in overlays="),
        ("arazzo: 1.0.0", "Arazzo"),
        ("data: {__schema: {}}", "GraphQL"),
        ("info: {}\nitem: []", "Postman"),
        ("$schema: x\ntype: object", "JSON Schema"),
        ("info: {}\npaths: {}", "the member openapi is missing"),
    ],
)
def test_other_formats_are_named(text: str, words: str) -> None:
    error = refused(text.encode(), base_uri="https://example.com/x")
    assert error.startswith("https://example.com/x: ")
    assert words in error


def test_the_error_names_file_line_and_remedy(tmp_path: Path) -> None:
    file = tmp_path / "broken.json"
    assert (
        refused(file)
        == f"{file}: the file cannot be read (No such file or directory): check its name and its permissions"
    )
    assert "the file cannot be read (Is a directory)" in refused(tmp_path) or "this is not a file" in refused(tmp_path)
    file.write_text('{"openapi": "3.1.0",\n "paths": {]\n}')
    assert refused(file) == (
        f"{file}:2: this is not JSON (object keys must be strings): check quotes, commas and brackets up to here"
    )
    file.write_text('{"openapi": "3.1.0",\n "paths": {"/a": {},\n "/a": {}}}')
    assert refused(file) == f"{file}:3: the key '/a' stands here twice: keep one of them"
    # An escape could hide the colon that tells about the second member.
    file.write_text('{"openapi": "3.1.0",\n "x": ":", "x":\n "\\u003a\\u003a"}')
    assert refused(file) == f"{file}:2: the key 'x' stands here twice: keep one of them"
    file.write_text("openapi: 3.1.0\npaths:\n  /a: {}\n  /a: {}\n")
    assert refused(file) == f"{file}:4:3: the key '/a' stands here twice: keep one of them"


def test_json_that_only_yaml_allows(tmp_path: Path) -> None:
    assert read_description(b'{"openapi": "3.1.0", # a comment\n "paths": {},}').root.root == {
        "openapi": "3.1.0",
        "paths": {},
    }


# --- limits ---


def test_limits_of_one_document() -> None:
    deep: Any = {}
    for _ in range(99):
        deep = {"a": deep}
    assert "nested more than 100 deep" in refused(api(x=deep))
    data = b'{"openapi": "3.1.0", "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert "nested more than 100 deep" in refused(data)
    assert "more than 5 values" in refused(api(x=[1, 2, 3, 4]), limits=Limits(values=5))
    assert "more than 5 values" in refused(b"openapi: 3.1.0\nx: [1, 2, 3, 4]", limits=Limits(values=5))
    assert "more than 20 bytes" in refused(api(), limits=Limits(bytes=20))
    itself = api()
    itself["x"] = itself
    assert "nested more than 100 deep" in refused(itself)
    assert "the object is not JSON" in refused(api(x=object()))


def test_a_file_of_100_mb_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    with file.open("wb") as opened:
        opened.truncate(100_000_000)
    assert refused(file) == (
        f"{file}: the document has more than 67,108,864 bytes: take the parts that you need, or raise Limits.bytes"
    )


def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    assert refused(tmp_path / "pipe.yaml").endswith("this is not a file: name the file of the description")


# --- references in one document ---


def test_a_chain_of_references_keeps_the_texts_beside_them() -> None:
    parts = {
        "A": {"$ref": "#/components/responses/B", "description": "of A"},
        "B": {"$ref": "#/components/responses/C%20%7Bx%7D~1y", "summary": "of B", "description": "of B"},
        "C {x}/y": {"description": "of C", "content": {}},
    }
    for version, expected in (
        ("3.0.0", {"description": "of C", "content": {}}),
        ("3.1.0", {"description": "of A", "summary": "of B", "content": {}}),
    ):
        description = read_description(api(version, components={"responses": parts}))
        node = Node({"$ref": "#/components/responses/A"}, description.root)
        found = description.resolve(node)
        assert found.value == expected
        assert found.pointer == "/components/responses/C {x}~1y"
    plain = Node({"description": "x"}, description.root)
    assert description.resolve(plain) is plain
    not_a_reference = Node({"$ref": {"type": "string"}}, description.root)
    assert description.resolve(not_a_reference) is not_a_reference


def test_the_canonical_name_is_the_same_for_each_spelling() -> None:
    description = read_description(
        api(components={"schemas": {"A b": {"type": "null"}}}), base_uri="https://x.test/a.json"
    )
    names = {
        description.referenced(each, description.root)[0]
        for each in ("#/components/schemas/A%20b", "#/components/schemas/A b", "a.json#/components/schemas/A%20b")
    }
    assert names == {"https://x.test/a.json#/components/schemas/A b"}


def test_path_items_that_refer_to_each_other_are_refused(tmp_path: Path) -> None:
    root = written(tmp_path, root="openapi: 3.1.0\npaths:\n  /a: {$ref: '#/paths/~1b'}\n  /b: {$ref: '#/paths/~1a'}\n")
    description = read_description(root)
    with pytest.raises(DescriptionError) as caught:
        description.resolve(Node({"$ref": "#/paths/~1a"}, description.root))
    assert str(caught.value).startswith(f"{root}:")
    assert "leads back to itself" in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("#/components/schemas/Pat", "leads to nothing: did you mean #/components/schemas/Pet?"),
        ("#/components/schemas/zzzzzz", "leads to nothing: add it to"),
        ("#/nothing/at/all", "leads to nothing: add it to"),
        ("#anchor", "leads to nothing: no schema in"),
        ("#/components/schemas/Pet/type/0", "leads to nothing"),
        ("other.yaml", "cannot be read: "),
    ],
)
def test_a_reference_to_nothing_names_line_and_remedy(tmp_path: Path, reference: str, words: str) -> None:
    root = written(tmp_path, root=f"{PETS}    Other: {{$ref: '{reference}'}}\n")
    description = read_description(root)
    with pytest.raises(DescriptionError) as caught:
        target(description, reference)
    assert str(caught.value).startswith(f"{root}:15: $ref '{reference}' ")
    assert words in str(caught.value)


def test_places(tmp_path: Path) -> None:
    root = written(tmp_path, root=PETS)
    document = read_description(root).root
    assert document.place("/paths/~1pets/get") == f"{root}:5"
    assert document.place("/components/schemas/Pet") == f"{root}:14"
    assert document.label("/paths/~1pets/get") == f"{root}#/paths/~1pets/get"
    assert str(document.error("/paths", "it is odd", "change it")) == f"{root}:3: it is odd: change it"
    root.write_text("openapi: 3.1.0")  # A line of another text would mislead.
    assert document.place("/paths/~1pets/get") == f"{root}#/paths/~1pets/get"
    assert read_description(api()).root.place("/paths") == "description#/paths"


# --- schemas with addresses of their own (3.1 and later) ---


def test_anchors_and_ids() -> None:
    schemas = {
        "Tree": {
            "$id": "https://schemas.test/tree",
            "$dynamicAnchor": "node",
            "$defs": {"leaf": {"$anchor": "leaf", "type": "null"}},
            "properties": {"children": {"items": {"$ref": "#/$defs/leaf"}}},
        },
        "User": {"$ref": "https://schemas.test/tree#leaf"},
        "Other": {"$anchor": "other", "type": "string"},
        "Relative": {"$id": "schemas/relative", "$ref": "other", "type": "object"},
    }
    description = read_description(api(components={"schemas": schemas}), base_uri="https://api.test/v1/openapi.json")
    assert target(description, "#other") == schemas["Other"]
    assert target(description, "https://schemas.test/tree") is description.root.root["components"]["schemas"]["Tree"]
    assert target(description, "https://schemas.test/tree#leaf")["type"] == "null"
    assert target(description, "https://schemas.test/tree#node")["$dynamicAnchor"] == "node"
    assert target(description, "schemas/relative")["type"] == "object"
    # References below an `$id` are read against it.
    tree = description.referenced("#/components/schemas/Tree", description.root)[1]
    scope = description.scope(tree)
    assert scope.uri == "https://schemas.test/tree"
    name, leaf = description.referenced("#/$defs/leaf", scope)
    assert (name, leaf.value["type"]) == ("https://schemas.test/tree#/$defs/leaf", "null")
    # Many documents forget that: what is not in the schema is looked for around it.
    assert description.referenced("#/components/schemas/Other", scope)[1].value == schemas["Other"]
    assert scope.place("/$defs/leaf") == "https://api.test/v1/openapi.json#/components/schemas/Tree/$defs/leaf"
    # An anchor inside of it is not one of the document.
    with pytest.raises(DescriptionError):
        target(description, "#leaf")


def test_ids_mean_nothing_in_3_0() -> None:
    description = read_description(api("3.0.3", components={"schemas": {"A": {"$id": "https://x.test/a"}}}))
    node = description.referenced("#/components/schemas/A", description.root)[1]
    assert description.scope(node) is description.root


def test_self_is_the_base_of_references_and_not_of_servers(tmp_path: Path) -> None:
    content = api("3.2.0", **{"$self": "/canonical/api.json"}, components={"schemas": {"A": {"type": "null"}}})
    description = read_description(content, base_uri="https://x.test/fetched.json")
    assert description.root.uri == "https://x.test/canonical/api.json"
    assert description.root.retrieved_from == "https://x.test/fetched.json"
    for reference in (
        "#/components/schemas/A",
        "api.json#/components/schemas/A",
        "/fetched.json#/components/schemas/A",
    ):
        assert target(description, reference) == {"type": "null"}
    assert description.digests.keys() == {"https://x.test/fetched.json"}
