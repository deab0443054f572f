"""Request bodies: each form, with the examples that OpenAPI 3.2.0 prints."""

from __future__ import annotations

import email
import json
from email.message import Message
from typing import Any

import pytest
from tests.cases import cases
from tests.openapi.operations import define
from tests.openapi.stub_api import stub_api

from toolwire.errors import ToolError
from toolwire.openapi.model import (
    EncodingObject,
    MediaTypeObject,
    Node,
    OperationSettings,
    ParameterObject,
    ToolArgument,
)
from toolwire.openapi.request.request_bodies import Body, BodyUpload, body_writer

PNG = b"\x89PNG\r\n\x1a\n"
WHOLE = (ToolArgument(name="body"),)


def written(media_type: str, value: Any, **members: Any) -> Body:
    body = body_writer(MediaTypeObject(media_type=media_type, **members), WHOLE, required=True)({"body": value})
    assert body is not None
    return body


def parts(body: Body) -> list[Message]:
    message = email.message_from_bytes(b"Content-Type: " + body.content_type.encode() + b"\r\n\r\n" + body.data)
    payload = message.get_payload()
    assert isinstance(payload, list)
    return payload


def content(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload


def fixed_header(name: str, schema: Any) -> dict[str, ParameterObject]:
    node = Node(schema, None)  # type: ignore[arg-type]
    return {name: ParameterObject(name=name, location="header", style="simple", explode=False, schema=node)}


@cases(
    ("media_type", "value", "data", "content_type"),
    [
        ("application/json", {"a": [1, None]}, b'{"a":[1,null]}', "application/json"),
        ("application/vnd.api+json", [1], b"[1]", "application/vnd.api+json"),
        ("application/json", {"file": BodyUpload(PNG)}, b'{"file":"iVBORw0KGgo="}', "application/json"),
        ("application/octet-stream", BodyUpload(PNG), PNG, "application/octet-stream"),
        ("application/octet-stream", PNG, PNG, "application/octet-stream"),
        ("image/*", BodyUpload(PNG, "image/png"), PNG, "image/png"),
        ("image/*", BodyUpload(PNG, "text/html"), PNG, "application/octet-stream"),
        ("*/*", BodyUpload(PNG, "image/png"), PNG, "image/png"),
        ("text/plain", "ü", "ü".encode(), "text/plain; charset=utf-8"),
        ("text/plain; charset=UTF-8", 5, b"5", "text/plain; charset=UTF-8"),
        ("application/xml", "<a/>", b"<a/>", "application/xml"),
    ],
)
def test_bodies_of_one_piece(media_type: str, value: Any, data: bytes, content_type: str) -> None:
    assert written(media_type, value) == (data, content_type)


def test_xml_is_taken_as_text_only() -> None:
    with pytest.raises(ToolError, match="as a text of XML"):
        written("application/xml", {"a": 1})


def test_a_body_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.openapi.request.request_bodies.MAX_BODY", 10)
    with pytest.raises(ToolError, match="10 are the most"):
        written("text/plain", "x" * 11)


def test_members_of_a_body_and_no_body_at_all() -> None:
    arguments = (ToolArgument(name="name", member="name"), ToolArgument(name="id_body", member="id"))
    media = MediaTypeObject(media_type="application/json")
    optional = body_writer(media, arguments, required=False)
    assert optional({"id_body": 1, "other": 2}) == (b'{"id":1}', "application/json")
    assert optional({"other": 2}) is None
    assert body_writer(media, arguments, required=True)({}) == (b"{}", "application/json")
    assert body_writer(media, WHOLE, required=False)({}) is None


# "Encoding the x-www-form-urlencoded Media Type" of 3.2.0.
ADDRESS = {"streetAddress": "123 Example Dr.", "city": "Somewhere", "state": "CA", "zip": "99999+1234"}
WRITTEN_ADDRESS = (
    "id=f81d4fae-7dec-11d0-a765-00a0c91e6bf6&address=%7B%22streetAddress%22%3A%22123+Example+Dr.%22%2C%22city%22%3A"
    "%22Somewhere%22%2C%22state%22%3A%22CA%22%2C%22zip%22%3A%2299999%2B1234%22%7D"
)


@cases(
    ("value", "encoding", "data"),
    [
        ({"id": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "address": ADDRESS}, {}, WRITTEN_ADDRESS),
        (
            {"id": "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"},
            {"id": EncodingObject(content_type="application/json")},
            "id=%22f81d4fae-7dec-11d0-a765-00a0c91e6bf6%22",
        ),
        (
            {"name": "example", "icon": BodyUpload(PNG)},
            {"icon": EncodingObject(content_type="image/png, image/jpeg")},
            "name=example&icon=iVBORw0KGgo%3D",
        ),
        ({"tags": ["a b", "c"], "none": None, "t": True}, {}, "tags=a+b&tags=c&t=true"),
        ({"tags": ["a b", "c"]}, {"tags": EncodingObject(explode=False)}, "tags=a%20b,c"),
        ({"tags": ["a", "c"]}, {"tags": EncodingObject(style="pipeDelimited")}, "tags=a%7Cc"),
        ({"c": {"R": 1, "G": 2}}, {"c": EncodingObject(style="deepObject")}, "c%5BR%5D=1&c%5BG%5D=2"),
        ({"u": "a/b c"}, {"u": EncodingObject(allow_reserved=True)}, "u=a/b%20c"),
        ({"u": "a/b~*"}, {}, "u=a%2Fb%7E*"),
    ],
)
def test_forms(value: Any, encoding: Any, data: str) -> None:
    assert written("application/x-www-form-urlencoded", value, encoding=encoding) == (
        data.encode(),
        "application/x-www-form-urlencoded",
    )


def test_a_basic_multipart_form() -> None:
    value = {
        "id": "f81d4fae",
        "profileImage": BodyUpload(PNG),
        "addresses": [{"city": "A"}, {"city": "B"}],
        "count": 3,
        "nothing": None,
    }
    made = parts(written("multipart/form-data", value))
    assert [part.get_param("name", header="content-disposition") for part in made] == [
        "id", "profileImage", "addresses", "addresses", "count"
    ]  # fmt: skip
    assert [part["content-type"] for part in made] == [
        None, "application/octet-stream", "application/json", "application/json", None
    ]  # fmt: skip
    assert [content(part) for part in made] == [b"f81d4fae", PNG, b'{"city":"A"}', b'{"city":"B"}', b"3"]
    assert made[1].get_filename() == "profileImage"


def test_a_multipart_form_with_encodings() -> None:
    encoding = {
        "addresses": EncodingObject(content_type="application/xml; charset=utf-8"),
        "profileImage": EncodingObject(
            content_type="image/png, image/jpeg", headers=fixed_header("X-Rate-Limit-Limit", {"const": 5})
        ),
        "color": EncodingObject(style="deepObject"),
        "words": EncodingObject(explode=False, content_type="application/json"),
    }
    value = {
        "addresses": ["<a/>"],
        "profileImage": BodyUpload(PNG, "image/jpeg", 'a"b\r\n.jpg'),
        "color": {"R": 100, "G": "a b"},
        "words": ["x", "y z"],
    }
    made = parts(written("multipart/form-data", value, encoding=encoding))
    assert made[0]["content-type"] == "application/xml; charset=utf-8" and content(made[0]) == b"<a/>"
    assert made[1]["content-type"] == "image/jpeg" and made[1]["x-rate-limit-limit"] == "5"
    assert made[1]["content-disposition"] == 'form-data; name="profileImage"; filename="a%22b%0D%0A.jpg"'
    assert [part["content-disposition"] for part in made[2:]] == [
        'form-data; name="color[R]"',
        'form-data; name="color[G]"',
        'form-data; name="words"',
    ]
    assert [content(part) for part in made[2:]] == [b"100", b"a b", b"x,y z"]


def test_several_files_have_one_name() -> None:
    files = [BodyUpload(b"1", "text/plain", "1.txt"), BodyUpload(b"2", None, "2.txt"), b"3"]
    made = parts(written("multipart/form-data", {"file": files}))
    assert [part.get_param("name", header="content-disposition") for part in made] == ["file"] * 3
    assert [part.get_filename() for part in made] == ["1.txt", "2.txt", "file"]
    assert made[0]["content-type"] == "text/plain" and made[1]["content-type"] == "application/octet-stream"


def test_parts_by_position() -> None:
    prefix = (EncodingObject(), EncodingObject(content_type="image/*"))
    value = [{"author": "A"}, BodyUpload(PNG, "image/png"), "more"]
    body = written(
        "multipart/mixed; boundary=x",
        value,
        prefix_encoding=prefix,
        item_encoding=EncodingObject(content_type="text/css"),
    )
    assert body.content_type.startswith("multipart/mixed; boundary=") and "boundary=x" not in body.content_type
    made = parts(body)
    assert [part["content-type"] for part in made] == ["application/json", "image/png", "text/css"]
    assert all(part["content-disposition"] is None for part in made)


def test_parts_inside_a_part() -> None:
    inner = EncodingObject(
        content_type="multipart/mixed",
        prefix_encoding=(
            EncodingObject(content_type="application/xml"),
            EncodingObject(),
            EncodingObject(content_type="image/png"),
        ),
    )
    body = written("multipart/mixed", [[1, 2], ["<a/>", "text", PNG]], prefix_encoding=(EncodingObject(), inner))
    first, second = parts(body)
    assert json.loads(content(first)) == [1, 2]
    nested = second.get_payload()
    assert isinstance(nested, list)
    assert [part["content-type"] for part in nested] == ["application/xml", None, "image/png"]


async def test_a_form_arrives() -> None:
    from tests.openapi.operations import calling

    form = define(
        "POST",
        "/form",
        members=("a", "b"),
        media=MediaTypeObject(media_type="application/x-www-form-urlencoded"),
        name="form",
    )
    mixed = define(
        "POST",
        "/parts",
        members=("a",),
        media=MediaTypeObject(media_type="multipart/form-data"),
        name="parts",
        settings=OperationSettings(),
    )
    async with stub_api() as api, calling(api.url, form, mixed) as call:
        await call("form", a="x y", b=[1, 2])
        assert api.last.body == b"a=x+y&b=1&b=2"
        await call("parts", a="x")
        (part,) = parts(Body(api.last.body, api.last.headers["content-type"]))
        assert content(part) == b"x"
