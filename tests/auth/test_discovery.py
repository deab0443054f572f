"""From a challenge to the authorization server, with servers that do not tell the truth."""

from __future__ import annotations

import pytest
from tests.auth.playing import ISSUER, SERVER, Site, answer, server_document
from tests.cases import cases

from toolwire.auth.errors import SignInFailed
from toolwire.auth.flow.challenges import Challenge
from toolwire.auth.flow.discovery import discover, find_resource, find_server, server_candidates
from toolwire.auth.flow.messages import Fetched

PATH = "https://api.example.org/.well-known/oauth-protected-resource/mcp"
ROOT = "https://api.example.org/.well-known/oauth-protected-resource"
SERVER_METADATA = f"{ISSUER}/.well-known/oauth-authorization-server"

RESOURCE = {"resource": SERVER, "authorization_servers": [ISSUER], "scopes_supported": ["a", "b"]}


def challenge(**parameters: str) -> Challenge:
    return Challenge("bearer", parameters)


@pytest.mark.covers("6.2.2", "6.2.3", "4.3.C1")
def test_the_challenge_says_where() -> None:
    site = Site({"https://api.example.org/elsewhere": RESOURCE, PATH: {}, SERVER_METADATA: server_document()})
    found = site.play(discover(SERVER, challenge(resource_metadata="https://api.example.org/elsewhere")))
    assert site.urls == ["https://api.example.org/elsewhere", SERVER_METADATA]
    assert found.issuer == ISSUER
    assert found.resource == SERVER
    assert found.scopes_supported == ["a", "b"]


@pytest.mark.covers("6.2.2", "4.3.C1", "T-44")
def test_well_known_places_in_order() -> None:
    root = {**RESOURCE, "resource": "https://api.example.org"}
    site = Site({ROOT: root, SERVER_METADATA: server_document()})
    found = site.play(discover(SERVER, challenge()))
    assert site.urls == [PATH, ROOT, SERVER_METADATA]
    # Sent exactly as it was published, with no slash added.
    assert found.resource == "https://api.example.org"


def test_a_server_at_the_root_is_asked_once() -> None:
    site = Site({})
    assert site.play(find_resource("https://api.example.org/", None)) is None
    assert site.urls == [ROOT]


def test_a_named_place_is_final() -> None:
    site = Site({PATH: RESOURCE})
    with pytest.raises(SignInFailed, match="status 404"):
        site.play(discover(SERVER, challenge(resource_metadata="https://api.example.org/gone")))
    assert len(site.asked) == 1


@pytest.mark.covers("6.2.3")
@cases("resource", ["https://evil.example.com/mcp", "https://api.example.org/other", "x", ""])
def test_metadata_of_another_resource_is_not_used(resource: str) -> None:
    site = Site({PATH: {**RESOURCE, "resource": resource}, ROOT: RESOURCE, SERVER_METADATA: server_document()})
    with pytest.raises(SignInFailed):
        site.play(discover(SERVER, None))
    assert site.urls == [PATH]


@cases(
    "page",
    [
        {"resource": SERVER},
        {"resource": SERVER, "authorization_servers": []},
        {"resource": SERVER, "authorization_servers": "x"},
        {"resource": 7},
        {"resource": SERVER, "authorization_servers": ["file:///etc/passwd"]},
        {"resource": SERVER, "authorization_servers": [f"{ISSUER}?x=1"]},
        Fetched(200, {}, b"{" + b'"a":{' * 5000),
    ],
)
def test_broken_resource_metadata(page: Fetched | dict[str, object]) -> None:
    with pytest.raises(SignInFailed):
        Site({PATH: page}).play(discover(SERVER, challenge(resource_metadata=PATH)))


@cases(
    ("issuer", "known", "chosen"),
    [
        (None, None, "https://one"),
        (None, "https://two", "https://two"),
        (None, "https://three", "https://one"),
        ("https://two", "https://one", "https://two"),
    ],
)
def test_one_of_several_authorization_servers(issuer: str | None, known: str | None, chosen: str) -> None:
    offered = ["https://one", "https://two"]
    pages = {f"{each}/.well-known/oauth-authorization-server": server_document(each) for each in offered}
    site = Site({PATH: {**RESOURCE, "authorization_servers": offered}, **pages})
    assert site.play(discover(SERVER, None, issuer=issuer, known=known)).issuer == chosen


@pytest.mark.covers("6.2.11")
def test_credentials_of_one_issuer_are_not_for_another() -> None:
    site = Site({PATH: RESOURCE, SERVER_METADATA: server_document()})
    with pytest.raises(SignInFailed, match="credentials of this client are for https://mine"):
        site.play(discover(SERVER, None, issuer="https://mine"))
    assert site.urls == [PATH]


def test_a_configured_issuer_serves_where_nothing_is_published() -> None:
    site = Site({SERVER_METADATA: server_document()})
    assert site.play(discover(SERVER, None, issuer=ISSUER)).issuer == ISSUER


@pytest.mark.covers("6.2.4", "4.3.C2")
@cases(
    ("issuer", "candidates"),
    [
        (
            "https://h/t",
            [
                "https://h/.well-known/oauth-authorization-server/t",
                "https://h/.well-known/openid-configuration/t",
                "https://h/t/.well-known/openid-configuration",
            ],
        ),
        (
            "https://h",
            ["https://h/.well-known/oauth-authorization-server", "https://h/.well-known/openid-configuration"],
        ),
        (
            "https://h/",
            ["https://h/.well-known/oauth-authorization-server", "https://h/.well-known/openid-configuration"],
        ),
    ],
)
def test_where_an_issuer_publishes(issuer: str, candidates: list[str]) -> None:
    assert server_candidates(issuer) == candidates
    site = Site({candidates[-1]: server_document(issuer)})
    found = site.play(find_server(issuer))
    assert site.urls == candidates
    assert found is not None
    assert found.issuer == issuer


@pytest.mark.covers("6.2.5")
@cases("other", ["https://evil.example", f"{ISSUER}/", "https://LOGIN.example.org", f"{ISSUER}:443"])
def test_metadata_of_another_issuer_is_never_used(other: str) -> None:
    site = Site({PATH: RESOURCE, SERVER_METADATA: server_document(other)})
    with pytest.raises(SignInFailed, match="so it is refused"):
        site.play(discover(SERVER, None))
    assert {each.method for each in site.asked} == {"GET"}


# --- an issuer that the operator accepts ---

OTHER = "https://tenant.login.example.org"
ACCEPTED = {ISSUER: OTHER}


def test_accepted_issuer_is_used_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    site = Site({PATH: RESOURCE, SERVER_METADATA: server_document(OTHER)})
    assert site.play(discover(SERVER, None, accept_issuer=ACCEPTED)).issuer == OTHER
    assert f"the metadata of {ISSUER} is that of {OTHER}, which accept_issuer= allows" in caplog.text


@cases("accepted", [{ISSUER: "https://evil.example"}, {"https://evil.example": OTHER}, {OTHER: ISSUER}])
def test_accepted_issuer_holds_for_its_own_pair_alone(accepted: dict[str, str]) -> None:
    site = Site({PATH: RESOURCE, SERVER_METADATA: server_document(OTHER)})
    with pytest.raises(SignInFailed, match="so it is refused") as caught:
        site.play(discover(SERVER, None, accept_issuer=accepted))
    assert "accept_issuer=" in str(caught.value)


def test_matching_issuer_is_used_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    site = Site({PATH: RESOURCE, SERVER_METADATA: server_document()})
    assert site.play(discover(SERVER, None, accept_issuer=ACCEPTED)).issuer == ISSUER
    assert caplog.text == ""


def test_credentials_for_an_accepted_issuer_are_used_where_it_is_found() -> None:
    site = Site({PATH: RESOURCE, SERVER_METADATA: server_document(OTHER)})
    assert site.play(discover(SERVER, None, issuer=OTHER, accept_issuer=ACCEPTED)).issuer == OTHER
    with pytest.raises(SignInFailed, match="credentials of this client are for"):
        site.play(discover(SERVER, None, issuer="https://third.example", accept_issuer=ACCEPTED))


def test_accepted_issuer_of_a_server_without_resource_metadata() -> None:
    base = "https://api.example.org"
    site = Site({f"{base}/.well-known/oauth-authorization-server": server_document(OTHER)})
    assert site.play(discover(SERVER, None, accept_issuer={base: OTHER})).issuer == OTHER


def test_the_right_document_may_be_the_second() -> None:
    site = Site(
        {
            SERVER_METADATA: server_document("https://other"),
            f"{ISSUER}/.well-known/openid-configuration": server_document(),
        }
    )
    found = site.play(find_server(ISSUER))
    assert found is not None
    assert found.issuer == ISSUER


def test_an_authorization_server_without_metadata() -> None:
    with pytest.raises(SignInFailed, match="publishes no metadata"):
        Site({PATH: RESOURCE}).play(discover(SERVER, None, default_endpoints=True))


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_in_trouble_is_no_reason_to_look_elsewhere(status: int) -> None:
    site = Site({PATH: answer({}, status), ROOT: RESOURCE})
    with pytest.raises(SignInFailed, match=f"status {status}"):
        site.play(discover(SERVER, None, default_endpoints=True))
    assert site.urls == [PATH]


def test_a_page_for_people_is_no_document() -> None:
    page = Fetched(200, {"content-type": "text/html"}, b"<html>")
    site = Site(
        {PATH: page, ROOT: {**RESOURCE, "resource": "https://api.example.org"}, SERVER_METADATA: server_document()}
    )
    assert site.play(discover(SERVER, None)).issuer == ISSUER


# --- 2025-03-26: the server is its own authorization server ---


@pytest.mark.covers("4.1.C1", "2.1.23")
@pytest.mark.parametrize("slash", ["", "/"])
def test_a_server_of_2025_03_26_with_metadata(slash: str) -> None:
    origin = "https://api.example.org"
    document = server_document(
        origin + slash, authorization_endpoint=f"{origin}/oauth/authorize", scopes_supported=["user"]
    )
    site = Site({f"{origin}/.well-known/oauth-authorization-server": document})
    found = site.play(discover(SERVER, None))
    assert found.server.authorization_endpoint == f"{origin}/oauth/authorize"
    assert found.issuer == origin + slash
    assert found.scopes_supported == ["user"]
    assert found.resource == SERVER


def test_a_server_of_2025_03_26_with_the_metadata_of_another() -> None:
    document = server_document("https://evil.example")
    site = Site({"https://api.example.org/.well-known/oauth-authorization-server": document})
    with pytest.raises(SignInFailed, match="so it is refused"):
        site.play(discover(SERVER, None, default_endpoints=True))


@pytest.mark.covers("4.1.C1")
def test_the_default_endpoints_of_2025_03_26() -> None:
    found = Site({}).play(discover(SERVER, None, default_endpoints=True))
    assert found.server.authorization_endpoint == "https://api.example.org/authorize"
    assert found.server.token_endpoint == "https://api.example.org/token"
    assert found.server.registration_endpoint == "https://api.example.org/register"


def test_the_default_endpoints_are_for_the_user_to_allow() -> None:
    with pytest.raises(SignInFailed, match="publishes neither"):
        Site({}).play(discover(SERVER, None))
