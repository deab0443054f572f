"""Credentials go to the origins of the whole API, and to no other that a description names for some operations."""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.cases import cases

from toolwire import Client, Server
from toolwire.auth import NoCredential
from toolwire.http1.asgi_pool import AsgiPool
from toolwire.http1.response import HttpResponse
from toolwire.http1.url import parse_url
from toolwire.openapi import ALL, Api, DescriptionError, openapi
from toolwire.openapi.description.fetching import Sources
from toolwire.openapi.lock_file.lock import write_lock
from toolwire.openapi.lock_file.locking import lock_api, read_api

KEY = "k-5ecret"
HOME = (True, "api.example", 443)
URI = "https://api.example/openapi.json"
EVIL = [{"url": "https://evil.example"}]
SCHEMES = {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}}
PLACES = ["operation", "path", "referenced path", "beside a reference", "both"]


def described(own: Any = None, place: str = "operation", **members: Any) -> dict[str, Any]:
    """Describe an API of two operations. `place` says where the second one has servers of its `own`."""
    operation: dict[str, Any] = {"operationId": "upload", "responses": {}}
    item: dict[str, Any] = {"get": operation}
    path_items: dict[str, Any] = {}
    if own is not None:
        if place in ("operation", "both"):
            operation["servers"] = own
        if place == "both":
            item["servers"] = [{"url": "https://api.example"}]
        if place in ("path", "referenced path"):
            item["servers"] = own
    if place in ("referenced path", "beside a reference"):
        path_items["upload"] = item
        item = {"$ref": "#/components/pathItems/upload"}
        if place == "beside a reference" and own is not None:
            path_items["upload"]["servers"] = [{"url": "https://api.example"}]
            item["servers"] = own
    return {
        "openapi": "3.1.0",
        "info": {"title": "Files", "version": "1"},
        "servers": [{"url": "https://api.example"}],
        "security": [{"key": []}],
        "paths": {"/files": {"get": {"operationId": "list", "responses": {}}}, "/upload": item},
        "components": {"securitySchemes": SCHEMES, "pathItems": path_items},
        **members,
    }


class Recorder(AsgiPool):
    """Answers each request, and records where the request went and whether it had the key."""

    def __init__(self, sent: list[tuple[tuple[bool, str, int], bool]]) -> None:
        super().__init__(_answer)
        self._sent = sent

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpResponse:
        secure, host, port, *_ = parse_url(url)
        self._sent.append(((secure, host.removesuffix("."), port), KEY in json.dumps([url, dict(headers)])))
        return await super().send(method, url, headers, body)


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": b"{}"})


async def call_all(api: Api) -> list[tuple[tuple[bool, str, int], bool]]:
    """Call every tool. Return where each request went, and whether it had the key."""
    sent: list[tuple[tuple[bool, str, int], bool]] = []
    with api.tools.carried_by(lambda: Recorder(sent)):
        async with Client(Server("all").include(api)) as client:
            for tool in await client.list_tools():
                await client.call_tool(tool.name, {})
    return sent


def read(described: dict[str, Any], **options: Any) -> Api:
    return openapi(described, **{"keep": ALL, "base_uri": URI, "credentials": {"key": KEY}, **options})


# --- hostile servers --------------------------------------------------------------------------------------------------


def variable(url: str, default: Any, *enum: str, name: str = "x") -> list[Any]:
    return [{"url": url, "variables": {name: {"default": default, **({"enum": list(enum)} if enum else {})}}}]


AWAY: dict[str, list[Any]] = {
    url: [{"url": url}]
    for url in (
        "https://evil.example",
        "HTTPS://EVIL.EXAMPLE",
        "https://api.example.evil.example",
        "https://evil.example/api.example",
        "https://evil-api.example",
        "https://api.example.",
        "https://api.example..",
        "https://api.example:8443",
        "https://api.example:80",
        "http://api.example",
        "http://api.example:443",
        "//evil.example",
        "//evil.example/v1",
        "//evil.example\\@api.example",
        "https:evil.example",
        "https:/evil.example",
        "https:///evil.example",
        "https://api.example@evil.example",
        "https://api.example:443@evil.example",
        "https://:@evil.example",
        "https://evil.example\\@api.example",
        "https://api.example\\.evil.example",
        "https://api.example%2eevil.example",
        "https://api.example%40evil.example",
        "https://api.example%00.evil.example",
        "https://evil.\texample",
        "ht\ntps://evil.example",
        " https://evil.example",
        "\x01https://evil.example",
        "https://evil.example#@api.example",
        "https://evil.example?@api.example",
        "https://[2606:4700::1]",
        "https://api.example:99999",
        "https://api.example:\uff14\uff14\uff13",
        "https://api.ex\u0430mple",
        "https://evil\u3002example",
        "https://api.example\uff0eevil.example",
        "https://api.example\uff20evil.example",
        "https://api.example\u2044@evil.example",
        "https://\uff41\u200dpi.example",
        "https://xn--api.example",
        "https://api.example\u00ad",
        "wss://api.example",
        "file:///etc/passwd",
        "https://",
        "https://[",
        "//[",
    )
} | {
    "default of a variable": variable("https://{x}", "evil.example"),
    "default beside an enum": variable("https://{x}", "evil.example", "api.example"),
    "enum of one": variable("https://{x}", "evil.example", "evil.example"),
    "scheme of a variable": variable("{x}://api.example", "http"),
    "port of a variable": variable("https://api.example:{x}", 8443),
    "whole address of a variable": variable("{x}", "https://evil.example"),
    "user of a variable": variable("https://{x}evil.example", "api.example@"),
    "end of the host in a variable": variable("https://{x}.api.example", "evil.example/"),
    "query in a variable": variable("https://{x}.api.example", "evil.example?"),
    "fragment in a variable": variable("https://{x}.api.example", "evil.example#"),
    "variable in a variable": variable("https://{x}", "{x}.evil.example"),
    "relative host of a variable": variable("{x}", "//evil.example"),
    "variable without a default": variable("https://{x}", ""),
    "first of two": [{"url": "https://evil.example"}, {"url": "https://api.example"}],
}
AT_HOME: dict[str, list[Any]] = {
    url: [{"url": url}]
    for url in (
        "https://api.example",
        "https://api.example/upload",
        "HTTPS://API.Example/upload",
        "https://api.example:443",
        "https://api.example:0443",
        "https://\uff41pi.example",
        "https://api.example:",
        "/upload",
        "upload",
        "",
        "/\\evil.example",
        "\\\\evil.example",
        "/%2f/evil.example",
        "/@evil.example",
        "evil.example",
    )
} | {
    "no server": [],
    "default of a variable": variable("https://{x}.example", "api", "api", "test"),
    "second of two": [{"url": "https://api.example"}, {"url": "https://evil.example"}],
}


@pytest.mark.covers("OA-6.11")
@cases("servers", AWAY.values(), ids=AWAY)
async def test_server_of_one_operation_at_another_origin_gets_no_credential(servers: list[Any]) -> None:
    for place in PLACES:
        with pytest.raises(DescriptionError, match="upload"):
            read(described(servers, place)).server  # noqa: B018
        # Calls in code are judged by the same rule, and the rest of the API works.
        api = read(described(servers, place), keep="list")
        with pytest.raises(DescriptionError, match="upload"):
            api.operation("upload")
    assert await call_all(api) == [(HOME, True)]


@cases("servers", AT_HOME.values(), ids=AT_HOME)
async def test_server_of_one_operation_at_an_origin_of_the_api_gets_the_credential(servers: list[Any]) -> None:
    for place in PLACES:
        assert await call_all(read(described(servers, place))) == [(HOME, True)] * 2


@cases(
    "path",
    [
        "//evil.example/x",
        "@evil.example/x",
        ":8443/x",
        ".evil.example/x",
        "\\evil.example",
        "/\\evil.example",
        "https://evil.example/x",
        "/x?@evil.example",
        "#@evil.example",
        "",
        "/\t/evil.example",
    ],
)
async def test_path_that_reads_like_a_host_stays_at_the_server(path: str) -> None:
    one = {path: {"get": {"operationId": "upload", "responses": {}}}}
    for root in ("https://api.example", "https://api.example/", "/", ""):
        assert await call_all(read(described(servers=[{"url": root}], paths=one))) == [(HOME, True)]


@cases(
    "members",
    [
        {"openapi": "3.2.0", "$self": "https://evil.example/openapi.json", "servers": [{"url": "/"}]},
        {"openapi": "3.2.0", "$self": "https://evil.example/openapi.json", "servers": None},
        {"openapi": "3.2.0", "$self": "//evil.example/openapi.json", "servers": []},
    ],
)
async def test_name_of_a_document_does_not_move_its_servers(members: dict[str, Any]) -> None:
    assert await call_all(read(described(**members))) == [(HOME, True)] * 2


def test_server_of_the_same_name_at_another_origin_is_refused() -> None:
    root = [{"url": "https://api.example", "name": "prod"}, {"url": "https://test.example", "name": "test"}]
    own = [{"url": "https://test.example", "name": "prod"}]
    with pytest.raises(DescriptionError, match=r"upload: its server https://test\.example"):
        read(described(own, servers=root), server="prod").server  # noqa: B018
    # Without a choice of the operator, all servers of the whole API may get the credential.
    read(described(own, servers=root)).server  # noqa: B018


def test_value_of_a_server_variable_counts_for_the_whole_api() -> None:
    root = variable("https://{x}.example", "api")
    api = read(described([{"url": "https://eu.example/upload"}], servers=root), server_variables={"x": "eu"})
    api.server  # noqa: B018
    with pytest.raises(DescriptionError, match=r"upload: its server https://api\.example"):
        read(described([{"url": "https://api.example"}], servers=root), server_variables={"x": "eu"}).server  # noqa: B018


# --- documents --------------------------------------------------------------------------------------------------------

PARTS = "https://parts.example/parts.json"


@pytest.fixture
def documents(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    found: dict[str, Any] = {}
    monkeypatch.setattr(Sources, "_fetched", lambda self, uri, **options: json.dumps(found[uri]).encode())
    return found


def in_parts(**members: Any) -> dict[str, Any]:
    item = described()["paths"]["/upload"]
    return {"openapi": "3.1.0", "info": {"title": "x", "version": "1"}, "paths": {"/upload": {**item, **members}}}


def refer(root_servers: Any) -> dict[str, Any]:
    root = described()
    root["paths"]["/upload"] = {"$ref": f"{PARTS}#/paths/~1upload"}
    return {**root, "servers": root_servers}


@pytest.mark.parametrize("root_servers", [None, [], [{"url": "/"}], [{"url": "https://api.example"}]])
async def test_operation_of_a_referenced_document_is_served_by_the_root(
    documents: dict[str, Any], root_servers: Any
) -> None:
    documents[PARTS] = {**in_parts(), "servers": EVIL}
    documents[URI] = refer(root_servers)
    api = openapi(URI, keep=ALL, reach="https://parts.example", credentials={"key": KEY})
    assert await call_all(api) == [(HOME, True)] * 2


@pytest.mark.parametrize("url", ["/", "v1", "//parts.example", "https://parts.example"])
def test_server_relative_to_a_referenced_document_gets_no_credential(documents: dict[str, Any], url: str) -> None:
    documents[PARTS] = in_parts(servers=[{"url": url}])
    documents[URI] = refer([{"url": "/"}])
    with pytest.raises(DescriptionError, match=r"upload: its server https://parts\.example"):
        openapi(URI, keep=ALL, reach="https://parts.example", credentials={"key": KEY}).server  # noqa: B018


@cases(
    ("root", "own", "is_refused"),
    [(["https"], ["http"], True), (["http"], ["https"], True), (["https", "http"], ["http"], False), (None, [], False)],
)
def test_scheme_of_a_swagger_operation_is_another_origin(root: Any, own: list[str], is_refused: bool) -> None:
    swagger = {
        "swagger": "2.0",
        "info": {"title": "Files", "version": "1"},
        "host": "api.example",
        "schemes": root,
        "securityDefinitions": SCHEMES,
        "security": [{"key": []}],
        "paths": {"/upload": {"get": {"operationId": "upload", "schemes": own, "responses": {}}}},
    }
    api = read(swagger)
    if is_refused:
        with pytest.raises(DescriptionError, match=rf"upload: its server {own[0]}://api\.example"):
            api.server  # noqa: B018
    else:
        api.server  # noqa: B018


# --- what the operator decides ----------------------------------------------------------------------------------------


def test_refusal_names_operation_origin_and_remedies() -> None:
    with pytest.raises(DescriptionError) as caught:
        read(described([{"url": "https://evil.example/v1"}])).server  # noqa: B018
    text = str(caught.value)
    assert text.startswith("upload: its server https://evil.example ")
    for remedy in ("origins=['https://evil.example']", "base_url=", "drop=", "toolwire openapi add"):
        assert remedy in text
    assert KEY not in text


@cases(
    ("options", "sent"),
    [
        ({"origins": ["https://evil.example/any"]}, [(HOME, True), ((True, "evil.example", 443), True)]),
        ({"base_url": "https://mine.example"}, [((True, "mine.example", 443), True)] * 2),
        ({"credentials": {"key": NoCredential()}}, [(HOME, False), ((True, "evil.example", 443), False)]),
        ({"drop": "upload"}, [(HOME, True)]),
    ],
    ids=["origins", "base_url", "no credential", "drop"],
)
async def test_operator_decides_about_a_server_at_another_origin(options: dict[str, Any], sent: Any) -> None:
    assert await call_all(read(described(EVIL), **options)) == sent


async def test_operation_without_security_is_called_at_another_origin() -> None:
    open_one = described(EVIL)
    open_one["paths"]["/upload"]["get"]["security"] = []
    assert await call_all(read(open_one)) == [(HOME, True), ((True, "evil.example", 443), False)]


def test_headers_of_callers_stay_at_the_origins_of_the_api() -> None:
    open_one = described(EVIL)
    open_one["paths"]["/upload"]["get"]["security"] = []
    with pytest.raises(DescriptionError, match=r"upload: its server https://evil\.example"):
        read(open_one, forward_headers=["x-tenant"]).server  # noqa: B018


def test_certificate_of_a_client_stays_at_the_origins_of_the_api() -> None:
    schemes = {"components": {"securitySchemes": {"key": {"type": "mutualTLS"}}}}
    context = ssl.create_default_context()
    with pytest.raises(DescriptionError, match=r"upload: its server https://evil\.example"):
        read(described(EVIL, **schemes), credentials={"key": context}).server  # noqa: B018
    read(described(**schemes), credentials={"key": context}).server  # noqa: B018


@pytest.mark.parametrize("shape", ["tools", "bridge"])
def test_every_shape_refuses_a_server_at_another_origin(shape: str) -> None:
    with pytest.raises(DescriptionError, match=r"upload: its server https://evil\.example"):
        read(described(EVIL), shape=shape).server  # noqa: B018


def test_resources_and_overrides_refuse_a_server_at_another_origin() -> None:
    with pytest.raises(DescriptionError, match=r"upload: its server https://evil\.example"):
        read(described(EVIL), keep="list", resources="upload").server  # noqa: B018
    api = read(described(EVIL), keep="list")
    with pytest.raises(DescriptionError, match=r"upload: its server https://evil\.example"):

        @api.override("upload")
        async def upload() -> str:
            return ""


@pytest.mark.covers("OA-6.11")
async def test_locked_operation_is_called_at_its_locked_server(tmp_path: Path) -> None:
    other = {"get": {"operationId": "other", "responses": {}, "servers": EVIL}}
    whole = described(EVIL)
    whole["paths"]["/other"] = other
    source, path = tmp_path / "api.json", tmp_path / "api.lock.json"
    source.write_text(json.dumps(whole))
    made = lock_api(path, read_api(source), keep=["list", "upload"])
    write_lock(path, made.lock, made.texts)
    api = openapi(path, credentials={"key": KEY})
    assert await call_all(api) == [(HOME, True), ((True, "evil.example", 443), True)]
    # What was not locked was not reviewed.
    with pytest.raises(DescriptionError, match=r"other: its server https://evil\.example"):
        api.operation("other")
