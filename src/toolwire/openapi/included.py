"""The APIs that a server offers: their tools, their accounts, their figures."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from toolwire.base_errors import ServerError
from toolwire.http1.asgi_pool import Application
from toolwire.openapi.access.security import ApiSecurity
from toolwire.openapi.answer.answer_drift import AnswerDrift, publish_drift
from toolwire.openapi.api import Api, openapi
from toolwire.openapi.asgi_application import is_application
from toolwire.server.catalog import Catalog, Mount
from toolwire.server.server import Server
from toolwire.server.shaping import Shape

log: logging.Logger = logging.getLogger("toolwire.openapi")

_SHOWN: Final = 5


class IncludedApis:
    """The APIs of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._apis: list[Api] = []
        if server.metrics is not None:
            publish_drift(server.metrics, self._drifts)
            changed = "Differences between an API and its lock file, by severity (`watch=`)."
            server.metrics.gauge("openapi_changes", changed, self._changes, label="severity")

    def _changes(self) -> Mapping[str, float]:
        total: Counter[str] = Counter()
        for each in self._apis:
            if each.watch is not None:
                total.update(each.watch.counts)
        return total

    def _drifts(self) -> list[AnswerDrift]:
        return [each.tools.drift for each in self._apis]

    def add(self, api: Api, prefix: str, shape: Shape | None, account: str | None = None) -> None:
        """Offer the tools of an API. Raise `ServerError`, and change nothing, where that is impossible.

        `prefix` is the beginning of their names. `account` is the name of its account in the vault; otherwise accounts
        have the names of their security schemes.
        """
        if not isinstance(api, Api):
            raise ServerError(f"include() takes what openapi() returns, not {type(api).__name__}")
        if api in self._apis:
            raise ServerError(f"{self._server.name!r} includes the API {api.name!r} already")
        offered = self.check(api)
        security = api.tools.security
        security.add_to(self._server, str if account is None else partial(_account_name, account, security))
        try:
            mount = self._server.mount_catalog(prefix, offered.catalog, shape, account)
        except BaseException:
            security.remove_from(self._server)
            raise
        self._apis.append(api)
        if account is None:  # A gateway tells it of all its servers.
            self._tell_hidden(api, mount)

    def _tell_hidden(self, api: Api, mount: Mount) -> None:
        """Warn about tools and resources that are hidden by equal names."""
        addresses = [*self._hidden(mount, "resources"), *self._hidden(mount, "templates")]
        if addresses:
            log.warning(
                "%r has resources of the same addresses as the API %r, which are used in place of its own (%s): give "
                "the API another title by an overlay",
                self._server.name,
                api.name,
                ", ".join(addresses[:_SHOWN]),
            )
        if hidden := self._hidden(mount, "tools"):
            log.warning(
                "%r has tools of the same names as the API %r, which are used in place of its own (%s): include it "
                "with prefix=",
                self._server.name,
                api.name,
                ", ".join(hidden[:_SHOWN]),
            )

    def _hidden(self, mount: Mount, kind: str) -> list[str]:
        shown = self._server.catalog.all(kind)
        return [
            name
            for name, found in mount.merged(kind, None, ())
            if mount not in shown[name].way and not found.component.is_unlisted
        ]

    def check(self, api: Api) -> Server:
        """Make the tools of an API, and return their server.

        Raises `ServerError` where that fails.
        """
        return api.server

    def catalog(self, api: Api) -> Catalog:
        """Return the catalogue of an API."""
        return api.server.catalog

    def credentials(self, api: Api) -> tuple[str, ...]:
        """Return the kinds of the accounts of an API, for operators."""
        return api.tools.security.kinds

    def remove(self, api: Api) -> None:
        """Offer the tools of an API no longer. Calls in flight end as they began."""
        if api not in self._apis:
            raise ServerError(f"{self._server.name!r} does not include this API")
        self._apis.remove(api)
        self._server.unmount(api.server)
        api.tools.security.remove_from(self._server)


def _account_name(account: str, security: ApiSecurity, scheme: str) -> str:
    return account if len(security.kinds) == 1 else f"{account} ({scheme})"


def server_of_application(
    kind: type[Server], application: Application, name: str | None, options: Mapping[str, Any]
) -> Server:
    """Make a server of an ASGI application. `options` are those of `openapi()`."""
    if not is_application(application):
        raise ServerError(f"from_asgi() takes an ASGI application, not {type(application).__name__}")
    api = openapi(application, **options)
    return kind(name or api.name, version=api.version or "1.0.0").include(api)
