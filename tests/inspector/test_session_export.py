"""A session as a file: whole as far as it fits, and without secrets."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases
from tests.http.httpclient import HttpClient
from tests.inspector.page_client import Page, inspected

from toolwire import Server
from toolwire.inspector import session_export
from toolwire.inspector.redaction import MASK, hide, mask, mask_form, mask_headers, mask_members, mask_url

both_eras = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
SECRET = "s3cret-value-0123456789"


def make_server() -> Server:
    server = Server("sample")

    @server.tool(structured=False)
    async def login(user: str, password: str) -> str:
        return json.dumps({"user": user, "token": "given in the result"})

    @server.tool(structured=False)
    async def flood() -> str:
        return "x" * 2_000_000

    return server


async def exported(page: Page) -> dict[str, Any]:
    answer = await page.http.start("GET", path="/api/export").finished()
    assert answer.status == 200 and answer.headers["content-type"] == "application/json"
    session: dict[str, Any] = answer.json()
    return session


@both_eras
async def test_a_session_has_its_calls_and_messages_without_secrets(revision: str) -> None:
    async with inspected(make_server(), revision=revision) as page:
        await page.call("tools/call", name="login", arguments={"user": "ann", "password": SECRET})
        await page.call("tools/call", name="unknown")
        session = await exported(page)
    assert (session["format"], session["version"], session["leftOut"]) == (
        "toolwire-session",
        1,
        {"calls": 0, "messages": 0},
    )
    assert session["connection"]["revision"] == revision
    first, second = session["calls"]
    assert first["params"]["arguments"] == {"user": "ann", "password": mask(SECRET)}
    assert (first["state"], second["state"], second["error"]["code"]) == ("done", "failed", -32602)
    assert first["result"]["content"]
    methods = [each["message"].get("method") for each in session["messages"]]
    assert "tools/list" in methods and methods.count("tools/call") == 2
    answers = {each.get("answers") for each in session["messages"]}
    called = [each["number"] for each in session["messages"] if each["message"].get("method") == "tools/call"]
    assert answers.issuperset(called)
    assert SECRET not in json.dumps(session)


async def test_of_more_than_fits_the_newest_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_export, "MAX_TOTAL", 40_000)
    async with inspected(make_server()) as page:
        for _ in range(40):
            await page.call("tools/call", name="unknown", arguments={"x": "y" * 1_000})
        await page.call("tools/call", name="flood")
        session = await exported(page)
    assert len(msgspec.json.encode(session)) < 50_000
    assert session["leftOut"]["calls"] > 0 and session["leftOut"]["messages"] > 0
    assert session["calls"][-1]["subject"] == "flood"
    assert session["calls"][-1]["result"].endswith("too large for the export)")


async def test_nobody_exports_without_the_token() -> None:
    async with inspected(make_server()) as page:
        for headers in ({}, {"x-toolwire-token": "guess"}):
            assert (
                await HttpClient(page.app, headers=headers).start("GET", path="/api/export").finished()
            ).status == 401
        evil = {"x-toolwire-token": page.app.token, "origin": "http://evil.example"}
        assert (await HttpClient(page.app, headers=evil).start("GET", path="/api/export").finished()).status == 403


# --- what is a secret ---


@cases(
    ("name", "is_secret"),
    [
        ("Authorization", True),
        ("proxy-authorization", True),
        ("Cookie", True),
        ("Set-Cookie", True),
        ("X-API-Key", True),
        ("Mcp-Session-Id", True),
        ("X-Auth-Token", True),
        ("DPoP", True),
        ("X-Given", True),
        ("WWW-Authenticate", False),
        ("Content-Type", False),
        ("Mcp-Protocol-Version", False),
        ("DPoP-Nonce", False),
    ],
)
def test_secret_headers(name: str, is_secret: bool) -> None:
    assert (SECRET not in mask_headers({name: SECRET}, ["x-given"])[name]) == is_secret


def test_the_scheme_of_credentials_is_shown() -> None:
    assert mask_headers({"authorization": f"Bearer {SECRET}"}) == {"authorization": f"Bearer {mask(SECRET)}"}
    assert mask_headers({"authorization": f"{SECRET} x"}) == {"authorization": mask(f"{SECRET} x")}


@cases(
    ("name", "is_secret"),
    [
        ("password", True),
        ("access_token", True),
        ("accessToken", True),
        ("API-Key", True),
        ("client_secret", True),
        ("token", True),
        ("progressToken", False),
        ("nextCursor", False),
        ("tokens", False),
        ("code", False),
    ],
)
def test_secret_members(name: str, is_secret: bool) -> None:
    value = {"list": [{name: SECRET}]}
    assert (SECRET not in json.dumps(mask_members(value))) == is_secret
    # In a message of OAuth a code is a secret; the number of an error never is.
    assert (mask_members({"code": SECRET}, is_oauth=True), mask_members({"code": 7}, is_oauth=True)) == (
        {"code": mask(SECRET)},
        {"code": 7},
    )


def test_forms_and_urls() -> None:
    assert mask_form(f"grant_type=x&code={SECRET}&empty=".encode()) == {
        "grant_type": "x",
        "code": mask(SECRET),
        "empty": "",
    }
    assert SECRET not in mask_url(f"https://example.com/mcp?token={SECRET}&a=1")
    assert mask_url("https://example.com/mcp?a=1") == "https://example.com/mcp?a=1"
    assert mask_url("https://[broken") == "https://[broken"


def test_values_that_the_user_gave_are_hidden_wherever_they_stand() -> None:
    hidden = hide([SECRET, SECRET + "-longer", "abc"])
    assert hidden(f"a {SECRET}-longer b {SECRET} abc") == f"a {MASK} b {MASK} abc"
    assert hide([])("text") == "text"


@given(
    st.recursive(
        st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_the_shape_of_a_value_stays(value: Any) -> None:
    masked = mask_members(value, texts=hide([SECRET]))
    assert type(masked) is type(value)
    if isinstance(value, dict):
        assert masked.keys() == value.keys()
