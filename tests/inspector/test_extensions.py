"""Extensions on the page: they are listed with their settings, and their methods can be sent."""

from __future__ import annotations

from typing import Any

import pytest
from tests.cases import cases
from tests.inspector.page_client import inspected

from toolwire import Context, Server

NAME = "org.example/jobs"
both_eras = pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])


def jobs() -> Server:
    """A server that mounts one with an extension."""
    server = Server("jobs")

    @server.extension(NAME, {"max": 3}, needs_client=False).method("jobs/get")
    async def get(params: Any, ctx: Context) -> dict[str, Any]:
        await ctx.progress(1, 2)
        return {"got": params.extra}

    return Server("office").mount(server)


@both_eras
async def test_an_extension_is_shown_and_its_method_is_sent(revision: str) -> None:
    async with inspected(jobs(), revision=revision) as page:
        listing = (await page.ask("state"))["catalogue"]["extensions"]
        assert (listing["offered"], [item["key"] for item in listing["items"]]) == (True, [NAME])
        shown = await page.ask("definition", kind="extensions", key=NAME)
        assert shown["definition"] == {"name": NAME, "settings": {"max": 3}}
        started = await page.ask("call", method="jobs/get", params={"job": "7"}, extension=NAME)
        call = await page.ended(started["call"]["id"])
        assert (call["state"], call["extension"]) == ("done", NAME)
        assert (await page.result(call))["got"] == {"job": "7"}
        again = await page.ended((await page.ask("again", call=call["id"]))["call"]["id"])
        assert (await page.result(again))["got"] == {"job": "7"}


async def test_a_server_without_extensions_offers_none() -> None:
    async with inspected(Server("s"), revision="2026-07-28") as page:
        assert (await page.ask("state"))["catalogue"]["extensions"]["offered"] is False


@cases(
    ("method", "extension", "text"),
    [
        ("jobs/none", NAME, "Method not found: jobs/none"),
        ("initialize", NAME, "initialize belongs to the connection"),
        ("jobs/get", "org.example/other", "did not declare the extension org.example/other"),
        ("jobs get", NAME, "is not the name of a method"),
    ],
)
async def test_what_cannot_be_sent_says_why(method: str, extension: str, text: str) -> None:
    async with inspected(jobs(), revision="2026-07-28") as page:
        started = await page.ask("call", method=method, params={}, extension=extension)
        call = await page.ended(started["call"]["id"])
    assert text in str(call["error"])
