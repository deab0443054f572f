"""The open views of the page: opening, finding, closing, and browser reports."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET

from toolwire.apps.bridge import FLOOD, MAX_BURST, MAX_MESSAGE_BYTES, MAX_MESSAGES_PER_SECOND, TOO_LONG
from toolwire.apps.profiles import CHATGPT, CLAUDE, PLAIN, HostProfile
from toolwire.client import Client
from toolwire.client.apps import View
from toolwire.http.origin_check import is_loopback
from toolwire.inspector.calls import PageCall, PageCalls
from toolwire.inspector.catalogue import CatalogueListing, ServerCatalogue
from toolwire.inspector.events import Events
from toolwire.inspector.input_requests import InputRequests
from toolwire.inspector.views.pages import SANDBOX, ViewPage, ViewPages, choose_nested_policy
from toolwire.inspector.views.reading import ViewSource, ViewUnreadable, read_view
from toolwire.inspector.views.settings import ViewSettings
from toolwire.inspector.views.view import OpenView
from toolwire.inspector.wire_log import WireLog
from toolwire.protocol import types as t
from toolwire.protocol.errors import ToolwireError
from toolwire.protocol.upstreams import UPSTREAM_KEY
from toolwire.util.expiring import Expiring

#: The oldest view is closed when more are opened.
MAX_OPEN: Final = 20
#: A page that lost its connection has so many seconds to connect again. Then its views are closed: it may have crashed.
ABSENT_SECONDS: Final = 5.0
#: The user may read the messages of a view that was stopped.
MAX_ENDED: Final = 5
#: For how many calls the refusals are kept.
MAX_CALLS_REFUSED: Final = 200
#: The limits that the page and the sandbox page keep, too, so that a flood ends in the process of the view.
LIMITS: Final = {"bytes": MAX_MESSAGE_BYTES, "perSecond": MAX_MESSAGES_PER_SECOND, "burst": MAX_BURST}


#: The hosts that the inspector can play.
PROFILES: Final = {each.name: each for each in (PLAIN, CLAUDE, CHATGPT)}


class Inspected(Protocol):
    """An inspector, as views need it."""

    url: str | None
    events: Events
    calls: PageCalls
    catalogue: ServerCatalogue
    input_requests: InputRequests

    @property
    def client(self) -> Client: ...


class PageViews:
    """The open views of one inspector."""

    def __init__(self, inspector: Inspected) -> None:
        self.pages: ViewPages = ViewPages()
        self._inspector = inspector
        self._open: dict[str, OpenView] = {}
        self._ended: Expiring[str, OpenView] = Expiring(MAX_ENDED)
        # By call: a server that has its view shown anew gets no more questions by that.
        self._refusals: Expiring[str, int] = Expiring(MAX_CALLS_REFUSED)
        self._served: dict[str, ViewPage] = {}
        # The names of the pages that opened the views.
        self._shown_by: dict[str, str] = {}
        self._numbers = itertools.count(1)

    def find(self, identifier: str) -> OpenView | None:
        """Return an open view; None for one that is closed."""
        return self._open.get(identifier)

    def log(self, identifier: str) -> WireLog:
        """Return the messages of a view, also of one that closed lately."""
        view = self._open.get(identifier) or self._ended.get(identifier)
        if view is None:
            raise LookupError("The messages of the view are no longer kept")
        return view.log

    async def open(self, asked: Mapping[str, Any], host: str) -> dict[str, Any]:
        """Open the view of a call.

        `host` is the origin of the page that shows it.

        `asked` has the `call`, the name of the `profile`, the `settings` of the host, and the permissions that are
        `granted`. `fresh` says that the person asked to show it anew, so that it may ask questions again. `page` is the
        name under which the page reads the events: without it the view stays open when the page is gone. The answer has
        the view and how to show it; or a `problem`, if there is nothing to show.
        """
        if self.pages.port is None:
            raise ToolwireError("Views are not served here")
        profile = PROFILES[str(asked.get("profile", PLAIN.name))]
        settings = msgspec.convert(asked.get("settings", {}), ViewSettings)
        inspector = self._inspector
        call = inspector.calls.find(str(asked["call"]))
        tool = None if call is None else inspector.catalogue.find("tools", call.subject)
        if call is None or tool is None:
            raise LookupError("The call, or its tool, is not there any more")
        try:
            source = await self._read(tool, profile, urlsplit(host).port or 80)
        except ViewUnreadable as error:
            return {"problem": str(error)}
        except ToolwireError as error:
            return {"problem": f"The view cannot be read: {error}"}
        if source.blank is not None:
            return {"problem": source.blank}
        self._close_old()
        granted = [str(each) for each in asked.get("granted", ())]
        shown = self._show(source, call, tool, profile, settings, granted, host, asked.get("fresh") is True)
        if page := str(asked.get("page", "")):
            self._shown_by[shown["view"]["id"]] = page
            self.watch_page(page)
        return shown

    async def _read(self, tool: Mapping[str, Any], profile: HostProfile, own_port: int) -> ViewSource:
        inspector = self._inspector
        uri = profile.address(tool.get("_meta"))
        listed = None if uri is None else inspector.catalogue.find("resources", uri)
        ports, endpoint = (own_port, self.pages.port), _public(inspector.url)
        return await read_view(inspector.client, tool, listed, profile, endpoint=endpoint, own_ports=ports)

    def _show(
        self,
        source: ViewSource,
        call: PageCall,
        tool: Mapping[str, Any],
        profile: HostProfile,
        settings: ViewSettings,
        granted: list[str],
        host: str,
        is_fresh: bool,
    ) -> dict[str, Any]:
        allowed = {name: feature for name, feature in source.permissions.items() if name in granted}
        view = OpenView(
            str(next(self._numbers)),
            source,
            call,
            tool,
            profile,
            settings,
            allowed,
            _Server(self._inspector, self._inspector.client.apps.view(_tool(tool), source.uri, source.text, {})),
            self._inspector.events,
            self._closed,
        )
        page = ViewPage(
            source.text,
            source.policy,
            permissions=tuple(allowed.values()),
            host=host,
            globals=view.globals if profile.has_openai else None,
            asked=view.loaded,
            blocked=lambda report: view.find("policy", violation(report)),
        )
        if page.sandbox == SANDBOX:
            view.find(
                "remark",
                f"The view may use {page.allow.replace('; ', ', ')}, and has an origin for that. A page that it"
                " writes into a frame can send data to any address",
            )
        view.refusals = 0 if is_fresh else self._refusals.get(call.identifier) or 0
        self._open[view.identifier] = view
        self._served[view.identifier] = page
        self.pages.add(page)
        return {
            "view": view.describe(),
            "findings": list(view.findings),
            "frame": {
                "sandbox": SANDBOX,
                "src": self.pages.sandbox_address(page),
                "origin": self.pages.origin,
                "allow": page.allow,
                "view": {
                    "url": self.pages.address(page),
                    "origin": self.pages.message_origin(page),
                    "sandbox": page.sandbox,
                    "csp": choose_nested_policy(source.policy),
                    "allow": page.allow,
                    "limits": LIMITS,
                },
            },
        }

    def watch_page(self, page: str) -> None:
        """Close the views of a page that is gone, unless it comes back soon."""
        if page in self._shown_by.values() and not self._inspector.events.is_read_by(page):
            asyncio.get_running_loop().call_later(ABSENT_SECONDS, self._close_those_of, page)

    def _close_those_of(self, page: str) -> None:
        if not self._inspector.events.is_read_by(page):
            for identifier in [each for each, name in self._shown_by.items() if name == page]:
                self._open[identifier].drop()

    def _close_old(self) -> None:
        """Close the oldest views. Their page was probably left, so that they are not asked."""
        # Not `Expiring`: a view that is dropped removes itself, whatever ends it.
        while len(self._open) >= MAX_OPEN:
            next(iter(self._open.values())).drop()

    def _closed(self, view: OpenView) -> None:
        self._open.pop(view.identifier, None)
        self._shown_by.pop(view.identifier, None)
        self._ended.put(view.identifier, view)
        self._refusals.put(view.call.identifier, view.refusals)
        page = self._served.pop(view.identifier, None)
        if page is not None:
            self.pages.remove(page)

    def close_all(self) -> None:
        """Close every view at once, because the connection to their server ends."""
        for view in list(self._open.values()):
            view.stop("the connection to its server ended")

    def report(self, asked: Mapping[str, Any]) -> None:
        """Take what the page, or the sandbox page, noticed about a view."""
        view = self.find(str(asked["view"]))
        kind, text = str(asked["kind"]), str(asked.get("text", ""))[:500]
        if view is None:
            return  # Two of us noticed the same.
        if kind == "flooded":
            view.stop(FLOOD)
        elif kind == "large":
            view.stop(TOO_LONG)
        elif kind == "navigated":
            view.stop(f"it tried to go to another page{f' ({text})' if text else ''}")
        elif kind == "hung":
            view.stop("it does not respond: a script of it runs without an end, or the browser ended its process")
        elif kind == "unguarded":
            view.stop("this browser does not keep it from sending data to any address, as Chromium 152 and later do")
        elif kind == "outside":
            view.find("refused", "The view wrote to the inspector past its sandbox page. It was not read")
        elif kind == "console":
            view.find("console", text)
        else:
            raise ValueError("There is no such report")


class _Server:
    """The inspected server, for one view."""

    def __init__(self, inspector: Inspected, view: View) -> None:
        self._inspector = inspector
        self._view = view
        self._listed: tuple[CatalogueListing, list[dict[str, Any]]] | None = None

    async def tools(self) -> list[dict[str, Any]]:
        listing = self._inspector.catalogue.listings["tools"]
        # Another listing means that the tools changed. A view may ask often.
        if self._listed is None or self._listed[0] is not listing:
            found = await self._inspector.client.apps.tools_for_view(self._view)
            self._listed = listing, [each.to_dict() for each in found]
        return self._listed[1]

    async def is_destructive(self, tool: str) -> bool:
        return await self._inspector.client.apps.is_destructive(self._view, tool)

    async def resources(self) -> list[dict[str, Any]]:
        return [each.to_dict() for each in await self._inspector.client.apps.resources_for_view(self._view)]

    async def templates(self) -> list[dict[str, Any]]:
        return [each.to_dict() for each in await self._inspector.client.apps.templates_for_view(self._view)]

    def start(self, method: str, params: Mapping[str, Any]) -> PageCall:
        return self._inspector.calls.start(self._inspector.client, method, params, {}, view=self._view)

    async def consent(self, kind: str, params: Mapping[str, Any]) -> bool:
        return await self._inspector.input_requests.consent(kind, params)


def _tool(definition: Mapping[str, Any]) -> t.Tool:
    # Only its name and its upstream count here. The definition of a foreign server may be broken.
    meta = definition.get("_meta")
    upstream = {UPSTREAM_KEY: meta[UPSTREAM_KEY]} if isinstance(meta, Mapping) and UPSTREAM_KEY in meta else UNSET
    return t.Tool(name=str(definition["name"]), input_schema={"type": "object"}, meta=upstream)


def has_view(tool: Mapping[str, Any]) -> bool:
    """Return whether a tool names a view that some host shows."""
    return any(each.address(tool.get("_meta")) is not None for each in PROFILES.values())


def shown_profiles() -> list[dict[str, str]]:
    """Return the hosts that the inspector can play, for the page."""
    return [{"name": each.name, "label": each.label, "about": each.about} for each in PROFILES.values()]


def _public(url: str | None) -> str | None:
    """Return the address of a server that is not on this machine, or None."""
    return None if url is None or is_loopback(urlsplit(url).hostname or "localhost") else url


def violation(report: Mapping[str, Any]) -> str:
    """Say what the policy of a view blocked, from the report of the browser."""
    directive = str(report.get("effective-directive") or report.get("violated-directive") or "").partition(" ")[0]
    blocked = str(report.get("blocked-uri") or "")
    what = {
        "inline": "an inline script or style",
        "eval": "the evaluation of a text as code",
        "trusted-types-sink": "a javascript: address",
        "": "something",
    }
    line = report.get("line-number")
    place = f", line {line} of the page" if isinstance(line, int) and line > 0 else ""
    return f"{directive[:50] or 'the policy'} blocked {what.get(blocked, blocked)[:300]}{place}"
