"""A view as a component of a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from toolwire.apps.page import LoadedPage
from toolwire.protocol import types as t
from toolwire.protocol.apps import APP_MIME_TYPE
from toolwire.protocol.errors import ServerError
from toolwire.protocol.revisions import is_modern
from toolwire.protocol.shaping import shape
from toolwire.server.call import Call
from toolwire.server.components import Cache, Resource
from toolwire.server.components.resources import with_meta

#: The member of `_meta` that has the digest of a page.
DIGEST_KEY: Final = "io.toolwire/digest"
#: A page changes with a release of its server, and every conversation of a host asks for it.
DEFAULT_CACHE: Final = Cache(ttl_ms=24 * 60 * 60 * 1000, scope="public")

_encode = msgspec.json.encode


class AppView(Resource):
    """The page of an app, under its `ui://` address.

    `_meta.ui` stands in the list and in the answer to `resources/read`, with the same bytes: some hosts look at one of
    them alone. A page is large and the same for everybody, so its JSON is written once.
    """

    def __init__(self, uri: str, page: LoadedPage, *, is_listed: bool, meta: Mapping[str, Any], **options: Any) -> None:
        super().__init__(
            uri,
            content=page.html,
            mime_type=APP_MIME_TYPE,
            size=len(page.html.encode()),
            meta={**meta, DIGEST_KEY: page.digest},
            **options,
        )
        self.is_unlisted: bool = not is_listed
        self.page: LoadedPage = page
        self.digest: str = page.digest
        self.source_files: tuple[str, ...] = page.files
        self._contents: dict[str, bytes] = {}

    async def read(self, call: Call, uri: str) -> Any:
        """Return the contents, or the whole encoded answer if it is sent as it is."""
        host = call.host
        contents = t.ResourceContents(uri=uri, mime_type=self.mime_type, text=self.page.html)
        if host.results_are_read or uri != self.uri:
            return with_meta([contents], self.meta)
        revision = call.request.revision
        encoded = self._contents.get(revision)
        if encoded is None:
            whole = shape(with_meta([contents], self.meta)[0], revision)
            encoded = self._contents[revision] = b'{"contents":[%b]' % _encode(whole)
        if not is_modern(revision):
            return Raw(encoded + b"}")
        hint = self.cache or DEFAULT_CACHE
        scope = b"public" if hint.scope == "public" and host.is_for_everybody(call) else b"private"
        # META-8, CCH-1: what every modern answer has.
        return Raw(
            b'%b,"ttlMs":%d,"cacheScope":"%b","resultType":"complete","_meta":{"%b":%b}}'
            % (encoded, hint.ttl_ms, scope, t.SERVER_INFO_KEY.encode(), host.signature)
        )


def view_meta(
    *,
    csp: Mapping[str, Any] | None,
    permissions: Mapping[str, Any] | None,
    domain: str | None,
    prefers_border: bool | None,
    others: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the `_meta` of a view: what the program gives, and `ui`."""
    given = others.get("ui", {})
    if not isinstance(given, Mapping):
        raise ServerError("meta= of a view has a 'ui' that is not an object")
    members = {"csp": csp, "permissions": permissions, "domain": domain, "prefersBorder": prefers_border}
    for name in given:
        if name in members:
            # The options are checked, and what stands in `meta` is not.
            option = "prefers_border" if name == "prefersBorder" else name
            raise ServerError(f"meta= of a view has {name!r} in 'ui': give {option}= to server.app()")
    ui = {**given, **{name: value for name, value in members.items() if value is not None}}
    return {**others, "ui": ui} if ui else dict(others)
