"""The apps of a server: `ui://` views and the tools that they show (SEP-1865)."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, Unpack, overload

from msgspec.structs import replace

from toolwire.apps.component import DEFAULT_CACHE, AppView, view_meta
from toolwire.apps.content_security_policy import Csp, permissions_to_wire
from toolwire.apps.page import Library, LoadedPage, Page, load_page
from toolwire.apps.views.ready import ReadyView
from toolwire.content import ToolResult
from toolwire.protocol import types as t
from toolwire.protocol.apps import SCHEME, UI_EXTENSION, audiences
from toolwire.protocol.errors import ServerError
from toolwire.protocol.revisions import CARRY_EXTENSIONS
from toolwire.server.catalog import Catalog
from toolwire.server.component_directory import find_file
from toolwire.server.components import Cache, Icons
from toolwire.server.components.decorating import ToolOptions
from toolwire.server.components.options import ToolOfView
from toolwire.server.components.restriction import VisibleTo
from toolwire.server.extensions import Extension
from toolwire.server.ping import answer_ping, refuse_ping
from toolwire.server.server import Server

log: logging.Logger = logging.getLogger("toolwire.apps")
F = TypeVar("F", bound=Callable[..., Any])

#: The domain under which Claude shows views.
CLAUDE_DOMAIN: Final = "claudemcpcontent.com"
_DOMAIN: Final = re.compile(r"[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*", re.ASCII)


class App:
    """A view of a server, and the tools that belong to it. `server.app()` returns it."""

    def __init__(
        self,
        server: Server,
        uri: str,
        source: Page | Path | ReadyView,
        *,
        bundle: bool,
        library: Library,
        is_openai: bool,
    ) -> None:
        self._server = server
        self._source = source
        self._tools: dict[str, dict[str, Any]] = {}
        self._bundle = bundle
        self._library: Library = library
        self.uri: str = uri
        """The address of the view."""
        self.is_openai: bool = is_openai
        self.page: LoadedPage = self._load()
        """The page as it is served."""
        self._options: dict[str, Any] = {}
        self._changing = threading.Lock()

    def _load(self) -> LoadedPage:
        source = self._source
        if not isinstance(source, ReadyView):
            return load_page(source, bundle=self._bundle, library=self._library)
        page = load_page(source.page(self._tools), bundle=False, library=True)
        return replace(page, reads_structured=source.reads_structured)

    def serve(self, options: dict[str, Any]) -> None:
        """Offer the view with these options of its component."""
        self._options = options
        self._server.add(AppView(self.uri, self.page, **options))

    def reload(self) -> None:
        """Load the page again, and notify subscribers of a change.

        If that fails, the view stays as it was.

        `toolwire dev` does this by itself.
        """
        with self._changing:
            changed = self._replace(self._load())
        if changed:
            self._server.notify_updated(self.uri)

    def _replace(self, page: LoadedPage) -> bool:
        """Serve another page; return whether it is another one."""
        if page.digest == self.page.digest:
            return False
        self.page = page
        self._server.add(AppView(self.uri, page, **self._options))
        return True

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(self, name: str | None = None, /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...

    def tool(self, function: Any = None, /, **options: Any) -> Any:
        """Register a tool for the view alone: models do not see it.

        The options are those of `server.tool`. `visibility` says who may call it. It is an audience and no protection:
        a server cannot see who calls, so that policies and scopes hold for these tools as for all tools.
        """
        options.setdefault("visibility", ("app",))
        return self._server.tool(function, app=self, **options)

    def attach(self, tool: ToolOfView, *, is_structured: bool | None) -> Callable[[Any], t.CallToolResult]:
        """Return the converter for results of a tool that this view shows.

        Raises `ServerError` for results that the view cannot show.

        Only results of calls of models are shown. `is_structured=False`: the program says that there is no structured
        content, or that it makes it by itself.
        """
        is_shown = "model" in audiences(tool.meta)
        if is_shown and self.page.reads_structured and tool.output_schema is None and is_structured is not False:
            raise ServerError(
                f"{self.uri} reads structuredContent, which the tool {tool.name!r} does not declare: "
                "annotate what it returns, give output_schema=, or give structured=False"
            )
        convert = tool.binding.convert
        if not isinstance(self._source, ReadyView):
            return convert
        if is_shown:
            return _presenting(self._source, convert)
        self._tools[tool.name] = tool.input_schema
        self._replace(self._load())
        return convert

    def __repr__(self) -> str:
        return f"App({self.uri!r})"


def _presenting(view: ReadyView, convert: Callable[[Any], t.CallToolResult]) -> Callable[[Any], t.CallToolResult]:
    def present(value: Any) -> t.CallToolResult:
        result = convert(value)
        # A tool that writes its whole result knows what the model has to read.
        is_whole = isinstance(value, ToolResult | t.CallToolResult)
        return result if is_whole or result.is_error is True else view.present(result)

    return present


class AppsExtension(Extension):
    """The apps extension of one server.

    It has no methods between a client and a server, except `ping` on 2026-07-28.
    """

    def __init__(self, catalog: Catalog, *, answers_pings: bool) -> None:
        super().__init__(
            UI_EXTENSION,
            {},
            needs_client=False,
            revisions=CARRY_EXTENSIONS,
            families=("resources",),
            catalog=catalog,
            is_shared=True,
        )
        self.answer_pings(answers_pings)

    def answer_pings(self, answers: bool) -> None:
        """Switch the answer to `ping` on 2026-07-28 on or off; hosts of views need it."""
        if answers:
            answer_ping(self)
        else:
            refuse_ping(self)


class ServedApps:
    """All apps of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def add(
        self,
        page: str | os.PathLike[str] | Page | ReadyView,
        *,
        uri: str | None,
        name: str | None,
        title: str | None,
        description: str | None,
        icons: Icons,
        csp: Csp | Mapping[str, Any] | None,
        permissions: str | Sequence[str] | Mapping[str, Any] | None,
        domain: str | None,
        prefers_border: bool | None,
        bundle: bool,
        view: Library,
        openai: bool,
        listed: bool,
        meta: Mapping[str, Any] | None,
        scopes: str | Iterable[str] | None,
        visible_to: VisibleTo,
        tags: str | Iterable[str] | None,
        cache: Cache | None,
        ping: bool | None,
    ) -> App:
        """Load a page and offer it as a view."""
        source = page if isinstance(page, Page | ReadyView) else find_file(page, "page")
        address = _checked_uri(uri) if uri is not None else f"{SCHEME}{_authority(self._server.name)}/{source.name}"
        if address in self._server.catalog.resources:
            raise ServerError(f"{self._server.name!r} has the view {address} already: give one of them another uri=")
        made = view_meta(
            csp=None if csp is None else Csp.of(csp).to_wire(),
            permissions=None if permissions is None else permissions_to_wire(permissions),
            domain=self._domain(domain),
            prefers_border=prefers_border,
            others=meta or {},
        )
        app = App(self._server, address, source, bundle=bundle, library=view, is_openai=openai)
        self._server.catalog.check_view(address, app.page.digest)
        self._declare(ping)
        app.serve(
            {
                "is_listed": listed,
                "name": name or source.name,
                "title": title,
                "description": description,
                "icons": icons,
                "meta": made,
                "scopes": scopes,
                "visible_to": visible_to,
                "tags": tags,
                "cache": cache or DEFAULT_CACHE,
            }
        )
        return app

    def _declare(self, ping: bool | None) -> None:
        catalog = self._server.catalog
        extension = catalog.extensions.get(UI_EXTENSION)
        if extension is None:
            catalog.add_extension(AppsExtension(catalog, answers_pings=ping is not False))
        elif ping is not None and isinstance(extension, AppsExtension):
            extension.answer_pings(ping)
            catalog.changed("extensions")

    def _domain(self, domain: str | None) -> str | None:
        if domain != "claude":
            if domain is not None and _DOMAIN.fullmatch(domain) is None:
                raise ServerError(f"domain= is a host name, or 'claude', not {domain[:100]!r}")
            return domain
        url = getattr(self._server.auth, "resource", None)
        if not isinstance(url, str):
            # A wrong domain blanks the view, so none is guessed.
            raise ServerError(
                "domain='claude' needs the public address of the endpoint: give domain=claude_domain(URL), "
                "or auth=ResourceServer(resource=URL)"
            )
        return claude_domain(url)


def claude_domain(url: str) -> str:
    """Return the domain under which Claude shows the views of a server.

    `url` is the public address of the server.
    """
    if not url.startswith(("https://", "http://")):
        raise ServerError(f"{url[:100]!r} is not the public address of an endpoint, such as https://shop.example/mcp")
    return f"{hashlib.sha256(url.encode()).hexdigest()[:32]}.{CLAUDE_DOMAIN}"


def _checked_uri(uri: str) -> str:
    # Hosts compare addresses as texts, so that those which look alike, and are not, are refused.
    if not uri.startswith(SCHEME) or len(uri) == len(SCHEME):
        raise ServerError(f"The address of a view starts with {SCHEME}, unlike {uri[:100]!r}")
    authority = uri[len(SCHEME) :].partition("/")[0]
    if uri.endswith("/") or authority != authority.lower():
        raise ServerError(
            f"{uri[:100]!r}: the address of a view has no slash at its end, and its host in small letters"
        )
    return uri


def _authority(name: str) -> str:
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.") or "server"
