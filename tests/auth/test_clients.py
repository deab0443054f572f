"""Who the client is at an authorization server."""

from __future__ import annotations

import base64
import json

import pytest
from tests.auth.playing import ISSUER, Site, answer, metadata
from tests.cases import cases

from toolwire.auth.errors import Refused, SignInFailed
from toolwire.auth.flow.clients import (
    BASIC,
    NONE,
    POST,
    Naming,
    Registration,
    check_metadata_url,
    published_client,
    register,
)
from toolwire.auth.flow.messages import Fetch, Fetched

CALLBACK = "http://127.0.0.1:7777/callback"
ME = Naming("Test", "https://client.example", "https://client.example/me.json")


@pytest.mark.covers("6.2.7", "4.3.C3")
def test_a_metadata_document_where_the_server_reads_them() -> None:
    knows = metadata(client_id_metadata_document_supported=True)
    client = published_client(knows, ME, CALLBACK)
    assert client is not None
    assert client.client_id == "https://client.example/me.json"
    assert published_client(metadata(), ME, CALLBACK) is None
    assert published_client(knows, Naming("Test"), CALLBACK) is None


@pytest.mark.covers("6.2.7", "4.3.C4")
@cases("url", ["http://h/x", "https://h", "https://h/", "https:///x", "https://h/x#y"])
def test_a_metadata_document_has_a_path(url: str) -> None:
    with pytest.raises(ValueError, match="https URL with a path"):
        check_metadata_url(url)


@pytest.mark.covers("6.2.9", "6.2.12")
@cases(
    ("redirect_uri", "kind"),
    [(CALLBACK, "native"), ("http://localhost:1/x", "native"), ("https://app.example/callback", "web")],
)
def test_dynamic_registration(redirect_uri: str, kind: str) -> None:
    site = Site({f"{ISSUER}/register": answer({"client_id": "c1", "client_secret": "s"}, 201)})
    client = site.play(register(metadata(), ME, redirect_uri))
    assert client == Registration("c1", "s", None, [redirect_uri])
    sent = json.loads(site.asked[0].body)
    assert sent["application_type"] == kind
    assert sent["redirect_uris"] == [redirect_uri]
    assert "refresh_token" in sent["grant_types"]
    assert sent["client_name"] == "Test"


@cases(
    ("offered", "asked"), [([NONE, BASIC], NONE), ([POST, BASIC], BASIC), ([POST], POST), (None, BASIC), (["x"], NONE)]
)
def test_the_method_that_a_registration_asks_for(offered: list[str] | None, asked: str) -> None:
    site = Site({f"{ISSUER}/register": {"client_id": "c1"}})
    site.play(register(metadata(token_endpoint_auth_methods_supported=offered), ME, CALLBACK))
    assert json.loads(site.asked[0].body)["token_endpoint_auth_method"] == asked


def test_a_registration_names_its_scopes_where_it_may() -> None:
    site = Site({f"{ISSUER}/register": {"client_id": "c1", "scope": "x y"}})
    assert site.play(register(metadata(), ME, CALLBACK, ("x", "y"))).scope == "x y"
    assert json.loads(site.asked[0].body)["scope"] == "x y"


def test_a_server_that_does_not_know_the_scopes_of_a_resource() -> None:
    def picky(request: Fetch) -> Fetched:
        if "scope" in json.loads(request.body):
            return answer({"error": "invalid_client_metadata"}, 400)
        return answer({"client_id": "c1"}, 201)

    assert Site({f"{ISSUER}/register": picky}).play(register(metadata(), ME, CALLBACK, ("x",))).client_id == "c1"
    refused = Site({f"{ISSUER}/register": answer({"error": "invalid_client_metadata"}, 400)})
    with pytest.raises(Refused):
        refused.play(register(metadata(), ME, CALLBACK, ("x",)))
    assert len(refused.asked) == 2


@pytest.mark.covers("6.2.9")
def test_a_registration_that_is_refused_over_its_redirect_uri() -> None:
    refusal = answer({"error": "invalid_redirect_uri", "error_description": "no\nloopback"}, 400)
    with pytest.raises(Refused, match=r"7777/callback was refused: invalid_redirect_uri \(no\?loopback\)") as caught:
        Site({f"{ISSUER}/register": refusal}).play(register(metadata(), ME, CALLBACK))
    assert caught.value.error == "invalid_redirect_uri"


@cases(
    "page",
    [
        Fetched(500, {}, b"oops"),
        Fetched(201, {}, b"[]"),
        answer({"client_id": ""}),
        answer({"client_id": "a\nb"}),
        answer({"client_id": "a" * 5000}),
    ],
)
def test_broken_registrations(page: Fetched) -> None:
    with pytest.raises(SignInFailed):
        Site({f"{ISSUER}/register": page}).play(register(metadata(), ME, CALLBACK))


def test_a_server_that_registers_nobody() -> None:
    with pytest.raises(SignInFailed, match=r"give it as client_id="):
        Site({}).play(register(metadata(registration_endpoint=None), ME, CALLBACK))


@cases(
    ("client", "offered", "form", "authorization"),
    [
        (Registration("a"), None, {"client_id": "a"}, None),
        (Registration("a", "s"), None, {"client_id": "a"}, "a:s"),
        (Registration("a", "s"), [POST], {"client_id": "a", "client_secret": "s"}, None),
        (Registration("a", "s"), [POST, BASIC], {"client_id": "a"}, "a:s"),
        (Registration("a", "s", POST), [BASIC], {"client_id": "a", "client_secret": "s"}, None),
        (Registration("a", "s", NONE), [BASIC], {"client_id": "a"}, None),
        (Registration("a:b", "s%é"), None, {"client_id": "a:b"}, "a%3Ab:s%25%C3%A9"),
    ],
)
def test_how_a_client_proves_who_it_is(
    client: Registration, offered: list[str] | None, form: dict[str, str], authorization: str | None
) -> None:
    sent: dict[str, str] = {}
    headers: dict[str, str] = {}
    client.prove(metadata(token_endpoint_auth_methods_supported=offered), sent, headers)
    assert sent == form
    expected = (
        {} if authorization is None else {"authorization": "Basic " + base64.b64encode(authorization.encode()).decode()}
    )
    assert headers == expected


def test_a_method_that_needs_a_key() -> None:
    with pytest.raises(SignInFailed, match="private_key_jwt"):
        Registration("a", None, "private_key_jwt").prove(metadata(), {}, {})


def test_when_a_stored_registration_still_serves() -> None:
    client = Registration("a", "s", None, [CALLBACK], 100.0)
    assert client.usable(99, CALLBACK, ("x",))
    assert not client.usable(101, CALLBACK, ())
    assert not client.usable(99, "http://127.0.0.1:1/callback", ())
    assert Registration("a", "s", None, [CALLBACK], 0).usable(1e12, CALLBACK, ())
    limited = Registration("a", redirect_uris=[CALLBACK], scope="x y")
    assert limited.usable(0, CALLBACK, ("x",))
    assert not limited.usable(0, CALLBACK, ("x", "z"))
