"""Sending the user to a page, on every revision."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases
from tests.server.answering import EVERYTHING, call, converse
from tests.wireclient import LEGACY, MODERN, REVISIONS, Message, connect

from toolwire import Context, Server
from toolwire.protocol.errors import UrlRequired
from toolwire.server.context import SyncContext

PAGE = "https://example.com/link?e=1"
PAGES_EXIST = ("2025-11-25", MODERN)
every_revision_with_pages = pytest.mark.parametrize("revision", PAGES_EXIST)


def linker() -> Server:
    """A server that needs its user to link an account."""
    server = Server("linker", debug=True)
    linked: list[str] = []

    @server.tool
    async def link(ctx: Context) -> str:
        answer = await ctx.elicit_url("Link your account", PAGE)
        linked.append(answer.action)
        told = await ctx.elicitation_complete(answer.id)
        return f"{answer.action} {answer.data} {answer.id is not None} {told}"

    @server.tool
    def link_plainly(ctx: SyncContext) -> str:
        answer = ctx.elicit_url("Link your account", PAGE)
        return f"{answer.action} {ctx.elicitation_complete(answer.id)}"

    @server.tool
    async def needs_link() -> str:
        raise UrlRequired("Link your account first", PAGE)

    @server.prompt("needs_link")
    async def prompt() -> str:
        raise UrlRequired("Link your account first", PAGE)

    @server.resource("account://me")
    async def account() -> str:
        raise UrlRequired("Link your account first", PAGE, id="known-id")

    return server


REQUESTS: list[tuple[str, Message]] = [
    ("tools/call", {"name": "needs_link"}),
    ("prompts/get", {"name": "needs_link"}),
    ("resources/read", {"uri": "account://me"}),
]


def consent(kind: str, params: Message) -> Message:
    return {"action": "accept"}


@every_revision_with_pages
@pytest.mark.covers("1.16.3.1", "1.16.3.2", "T-22", "2.2.13")
async def test_a_page_is_offered_and_accepting_is_not_finishing(revision: str) -> None:
    async with connect(linker(), revision, EVERYTHING) as client:
        done = await call(client, "link", {}, consent)
        ((kind, params),) = done.asked
        assert kind == "elicitation/create"
        identifier = params.pop("elicitationId", None)
        assert params == {"mode": "url", "message": "Link your account", "url": PAGE}
        # 2026-07-28 has no ids and no notice; what came of the page is learned by the next call.
        assert (identifier is not None) == (revision != MODERN)
        assert done.text == f"accept None {revision != MODERN} {revision != MODERN}"
        notices = client.of("notifications/elicitation/complete")
        assert notices == ([{"elicitationId": identifier}] if revision != MODERN else [])
        assert "accept" in (await call(client, "link_plainly", {}, consent)).text


@pytest.mark.covers("1.16.3.1")
async def test_every_page_has_an_id_of_its_own() -> None:
    async with connect(linker(), "2025-11-25", EVERYTHING) as client:
        asked = [(await call(client, "link", {}, consent)).asked[0][1] for _ in range(3)]
        assert len({params["elicitationId"] for params in asked}) == 3


@pytest.mark.covers("1.16.3.3")
async def test_the_completion_notice_goes_to_the_client_that_was_asked() -> None:
    server = linker()
    async with connect(server, "2025-11-25", EVERYTHING) as asked, connect(server, "2025-11-25", EVERYTHING) as other:
        await call(asked, "link", {}, consent)
        await asked.notified("notifications/elicitation/complete")
        await other.request("ping")
        assert other.notifications == []


@every_revision_with_pages
@pytest.mark.covers("ELI-2", "ELI-1")
async def test_a_secret_is_asked_for_by_page_where_a_form_is_refused(revision: str) -> None:
    server = Server("linker", debug=True)
    form = {"type": "object", "properties": {"api_key": {"type": "string"}}}

    @server.tool
    async def sign_in(by_form: bool, ctx: Context) -> str:
        answer: Any = await (ctx.elicit("Key?", form) if by_form else ctx.elicit_url("Key?", PAGE))
        return f"{answer.action} {answer.data}"

    async with connect(server, revision, EVERYTHING) as client:
        refused = await call(client, "sign_in", {"by_form": True}, consent)
        assert refused.asked == []
        assert "send the user to a page with elicit_url" in refused.failure
        # What the user types there stays there: nothing of it comes back through the client.
        assert (await call(client, "sign_in", {"by_form": False}, consent)).text == "accept None"


@every_revision_with_pages
@pytest.mark.covers("ELI-6")
async def test_declining_and_dismissing_a_page(revision: str) -> None:
    async with connect(linker(), revision, EVERYTHING) as client:
        for action in ("decline", "cancel"):
            done = await call(client, "link", {}, lambda *_, action=action: {"action": action})  # type: ignore[misc]
            assert done.text.startswith(action)


@cases("revision", REVISIONS)
@pytest.mark.covers("2.2.13", "ELI-4")
async def test_no_page_for_a_client_that_cannot(revision: str) -> None:
    # Before 2025-11-25 there are no pages, whatever a client declares.
    capabilities = {"elicitation": {}} if revision in PAGES_EXIST else EVERYTHING
    async with connect(linker(), revision, capabilities) as client:
        done = await call(client, "link", {}, consent)
        assert done.asked == []
        if revision == MODERN:
            assert done.error["code"] == -32021
            assert done.error["data"] == {"requiredCapabilities": {"elicitation": {"url": {}}}}
        else:
            assert done.failure == "The client does not support URL elicitation"


@cases("url", ["javascript:alert(1)", "file:///etc/passwd", "example.com", "", "ftp://example.com/"])
@pytest.mark.covers("1.16.3.1", "ELI-8")
async def test_only_web_addresses_are_pages(url: str) -> None:
    server = Server("asks", debug=True)

    @server.tool
    async def open_page(ctx: Context) -> str:
        return (await ctx.elicit_url("Look", url)).action

    async with connect(server, MODERN, EVERYTHING) as client:
        done = await call(client, "open_page", {}, consent)
        assert done.asked == []
        assert "must have an http or https address" in done.failure


@every_revision_with_pages
@pytest.mark.covers("ELI-8", "1.16.3.5")
async def test_no_credentials_in_the_address(revision: str) -> None:
    server = Server("asks", debug=True)

    @server.tool
    async def open_page(ctx: Context) -> str:
        return (await ctx.elicit_url("Look", "https://ada:hunter2@example.com/")).action

    @server.tool
    async def needs_page() -> str:
        raise UrlRequired("Look", "https://ada:hunter2@example.com/")

    @server.tool
    async def mentions(ctx: Context) -> str:
        return (await ctx.elicit_url("Look", "https://example.com/@ada?mail=a@example.com")).action

    async with connect(server, revision, EVERYTHING) as client:
        done = await call(client, "open_page", {}, consent)
        assert done.asked == []
        assert "must not carry a user name or password" in done.failure
        assert "hunter2" not in str(await client.request("tools/call", {"name": "needs_page"}))
        assert (await call(client, "mentions", {}, consent)).text == "accept"


# --- UrlRequired -----------------------------------------------------------------------------------------------------


@cases(("method", "params"), REQUESTS)
@pytest.mark.covers("1.16.3.4", "2.2.14")
async def test_on_2025_11_25_it_is_an_error_of_its_own(method: str, params: Message) -> None:
    async with connect(linker(), "2025-11-25", EVERYTHING) as client:
        error = await client.error(method, params)
        assert error["code"] == -32042
        (entry,) = error["data"]["elicitations"]
        identifier = entry.pop("elicitationId")
        assert identifier == "known-id" if "uri" in params else identifier
        assert entry == {"mode": "url", "url": PAGE, "message": "Link your account first"}
        # Nothing is asked beside it, so there is nothing to answer.
        assert client.requests == []


@cases("revision", LEGACY)
@pytest.mark.covers("2.2.14")
async def test_elsewhere_before_it_is_a_text_with_the_link(revision: str) -> None:
    capabilities: Message = {"elicitation": {}} if revision == "2025-11-25" else EVERYTHING
    async with connect(linker(), revision, capabilities) as client:
        done = await call(client, "needs_link", {}, consent)
        assert done.failure == f"Link your account first\nOpen {PAGE} and try again."
        for method, params in REQUESTS[1:]:
            error = await client.error(method, params)
            assert error["code"] == -32603
            assert PAGE in error["message"]


@cases(("method", "params"), REQUESTS)
async def test_on_2026_07_28_it_is_a_question(method: str, params: Message) -> None:
    async with connect(linker(), MODERN, EVERYTHING) as client:
        done = await converse(client, method, params, consent)
        ((_, asked),) = done.asked
        assert asked == {"mode": "url", "message": "Link your account first", "url": PAGE}
        # Consent was given and the page still is not done: no round after round.
        assert len(done.rounds) == 1
        text = done.failure if method == "tools/call" else done.error["message"]
        assert PAGE in text
    async with connect(linker(), MODERN, {"elicitation": {}}) as client:
        error = await client.error(method, params)
        assert error["code"] == -32021
        assert error["data"] == {"requiredCapabilities": {"elicitation": {"url": {}}}}


async def test_once_the_page_is_done_the_next_round_succeeds() -> None:
    server = Server("linker")
    linked: list[bool] = []

    @server.tool
    async def profile() -> str:
        if not linked:
            raise UrlRequired("Link your account first", PAGE)
        return "profile"

    def visit(kind: str, params: Message) -> Message:
        linked.append(True)
        return {"action": "accept"}

    async with connect(server, MODERN, EVERYTHING) as client:
        assert (await call(client, "profile", {}, visit)).text == "profile"


async def test_without_replay_it_is_a_text() -> None:
    server = Server("linker")

    @server.tool(replay=False)
    async def profile() -> str:
        raise UrlRequired("Link your account first", PAGE)

    async with connect(server, MODERN, EVERYTHING) as client:
        done = await call(client, "profile", {}, consent)
        assert done.asked == []
        assert PAGE in done.failure


@pytest.mark.parametrize("revision", PAGES_EXIST)
@pytest.mark.covers("1.16.3.4")
async def test_a_middleware_demands_a_page_for_any_request(revision: str) -> None:
    server = linker()

    @server.use
    async def gate(ctx: Context, call_next: Any) -> Any:
        raise UrlRequired("Link your account first", PAGE)

    async with connect(server, revision, EVERYTHING) as client:
        if revision == MODERN:
            done = await call(client, "link", {}, consent)
            assert [params["url"] for _, params in done.asked] == [PAGE]
            error = await client.error("tools/list")
            # MRTR-1: this one cannot ask.
            assert error["code"] == -32603
            assert PAGE in error["message"]
        else:
            assert (await client.error("tools/call", {"name": "link"}))["code"] == -32042
            assert (await client.error("tools/list"))["code"] == -32042
