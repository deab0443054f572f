"""Gateways from tables."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import Any, Final, cast

import msgspec

from toolwire.audit import AuditLog
from toolwire.auth.principal import Principal
from toolwire.client.config import check_transport
from toolwire.client.http_target import HttpTarget
from toolwire.client.target import Target
from toolwire.client.targets import CommandTarget
from toolwire.gateway.back_urls import SeveralUrls
from toolwire.gateway.config.api_entries import api_of, check_keys
from toolwire.gateway.config.authorization import auth_of
from toolwire.gateway.config.configuration import Configuration
from toolwire.gateway.config.credentials import credential_of
from toolwire.gateway.config.file_content import Source
from toolwire.gateway.config.policies import policy_of
from toolwire.gateway.config.positions import KeyPath
from toolwire.gateway.config.reading import GatewayFile, read_gateway_file
from toolwire.gateway.config.shapes import SHAPE_KEYS, shape_of
from toolwire.gateway.config.tables import AuditTable, BackEntry, IconTable, MetricsTable, PrincipalTable, TlsTable
from toolwire.gateway.file_types import given
from toolwire.gateway.gateway import Coming, ComingApi, Gateway
from toolwire.gateway.upstream_options import UpstreamSettings
from toolwire.protocol.errors import ServerError
from toolwire.protocol.sealing import secret_bytes
from toolwire.server.described_api import DescribedApi
from toolwire.server.metrics import Metrics
from toolwire.stores.by_address import open_stores


def gateway_of(source: Source, **options: Any) -> Gateway:
    """Make the gateway that a file describes. `options` are those of `Gateway`, and win over the file.

    Raise `ServerError`, with the line and the key of the mistake, for a file that describes none.
    """
    return make_gateway(read_gateway_file(source), **options)


def make_gateway(file: GatewayFile, **options: Any) -> Gateway:
    """Make the gateway that the tables of a file describe. Nothing is opened or started yet."""
    gateway = _gateway_with(file, file.backs, options)
    parts = (gateway_without_apis, read_api, add_back, prepare_back)
    gateway.configuration = Configuration(gateway, file, options, *parts)
    return gateway


def gateway_without_apis(file: GatewayFile, **options: Any) -> Gateway:
    """Make the gateway that a file describes, without its APIs: their descriptions may have to be fetched."""
    return _gateway_with(file, [name for name, entry in file.backs.items() if not entry.is_api], options)


def _gateway_with(file: GatewayFile, names: Iterable[str], options: Mapping[str, Any]) -> Gateway:
    if not file.backs:
        raise file.error(ServerError("it names no server: a gateway needs mcpServers"), ())
    described = gateway_options(file, without=options)
    try:
        gateway = Gateway(**{**described, **options})
    except (ServerError, ValueError) as error:
        raise file.error(error, ("gateway",)) from None
    for name in names:
        add_back(gateway, file, name)
    return gateway


def gateway_options(file: GatewayFile, *, without: Container[str] = ()) -> dict[str, Any]:
    """Return the options of `Gateway` that the table `gateway` gives, as objects; `without` are those not to make."""
    options = {name: gateway_option(file, name) for name in given(file.gateway) if name not in without}
    return {**options, "name": file.gateway.name}


def gateway_option(file: GatewayFile, name: str) -> Any:
    """Return one option of `Gateway`, as an object."""
    return _made(file, ("gateway", name), _MAKERS.get(name), getattr(file.gateway, name))


def read_api(file: GatewayFile, name: str) -> DescribedApi:
    """Read an API of a file. This may take its time: the description may be large, or has to be fetched."""
    return cast("DescribedApi", _made(file, file.back_key(name), partial(target_of, name), file.backs[name]))


def add_back(gateway: Gateway, file: GatewayFile, name: str, api: DescribedApi | None = None) -> None:
    """Put a server of a file behind a gateway. Raise `GatewayFileError`, and change nothing, if that is impossible.

    `api` is the API of the entry, where it was read already.
    """
    key = file.back_key(name)
    options = back_options(file, name, api)
    try:
        gateway.add(name, options.pop("target"), **options)
    except (ServerError, ValueError) as error:
        raise file.error(error, key) from None


def prepare_back(gateway: Gateway, file: GatewayFile, name: str, api: DescribedApi | None = None) -> Coming | ComingApi:
    """Make a server of a file, and connect to it, without offering it. `api` and mistakes are as in `add_back`."""
    options = back_options(file, name, api)
    try:
        return gateway.prepare(name, options.pop("target"), **options)
    except (ServerError, ValueError) as error:
        raise file.error(error, file.back_key(name)) from None


def back_options(file: GatewayFile, name: str, api: DescribedApi | None = None) -> dict[str, Any]:
    """Return the arguments of `Gateway.add` that the entry of a server gives, as objects. `api` is as in `add_back`."""
    entry, key = file.backs[name], file.back_key(name)
    _made(file, key, lambda each: check_keys(name, each, SHAPE_KEYS), entry)
    written = given(entry)
    taken = _OF_API if entry.is_api else _OPTIONS
    options = {
        option: _made(file, (*key, option), _BACK_MAKERS.get(option), value)
        for option, value in written.items()
        if option in taken
    }
    shaping = {option: value for option, value in written.items() if option in SHAPE_KEYS}
    if shaping:
        options["shape"] = _made(file, key, shape_of, shaping)
    return {**options, "target": api or _made(file, key, partial(target_of, name), entry)}


def _made(file: GatewayFile, key: KeyPath, make: Callable[[Any], Any] | None, value: Any) -> Any:
    try:
        return value if make is None else make(value)
    except (ServerError, ValueError, TypeError, OSError) as error:
        raise file.error(error, key) from None


# --- the table `gateway` ---------------------------------------------------------------------------------------------


def _audit(table: AuditTable) -> AuditLog:
    options = given(table)
    path, logger = options.pop("path", None), options.pop("logger", None)
    if (path is None) == (logger is None):
        raise ServerError("an audit log has a path or a logger")
    return AuditLog(logging.getLogger(logger) if path is None else path, **options)


def _metrics(given_: bool | MetricsTable) -> Metrics | bool:
    return Metrics(**given(given_)) if isinstance(given_, MetricsTable) else given_


def _icons(tables: list[IconTable]) -> list[Any]:
    return [{name: value for name, value in msgspec.to_builtins(each).items() if value is not None} for each in tables]


def _principal(table: PrincipalTable) -> Principal:
    return Principal(**{**given(table), "scopes": frozenset(table.scopes)})


def _secrets(secret: str | list[str]) -> list[str]:
    several = [secret] if isinstance(secret, str) else secret
    for each in several:
        secret_bytes(each)
    return several


_MAKERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "auth": auth_of,
    "policy": policy_of,
    "audit": _audit,
    "metrics": _metrics,
    "icons": _icons,
    "secret": _secrets,
    "stores": open_stores,
    "local_principal": _principal,
    "credentials": lambda tables: {name: credential_of(each) for name, each in tables.items()},
}


# --- a server --------------------------------------------------------------------------------------------------------


def target_of(name: str, entry: BackEntry) -> Target | DescribedApi:
    """Return the server that an entry describes. Raise `ServerError` or `ValueError` for an entry that is wrong."""
    if entry.is_api:
        return api_of(name, entry, None if entry.tls is None else _tls(entry.tls))
    if (entry.command is None) == (entry.url is None and not entry.urls):
        raise ServerError(f"The server {name!r} needs either a command or a url")
    if entry.command is not None:
        for member in ("headers", "tls", "proxy"):
            if getattr(entry, member) is not None:
                raise ServerError(f"The server {name!r} is a command, which has no {member}")
        return CommandTarget([entry.command, *entry.args], name, entry.env, entry.cwd, None, bool(entry.inherit_env))
    check_transport(name, entry.type or entry.transport)
    tls = None if entry.tls is None else _tls(entry.tls)
    urls = [*([] if entry.url is None else [entry.url]), *entry.urls]
    if len(urls) > 1:
        return SeveralUrls(urls, headers=entry.headers, tls=tls, proxy=entry.proxy)
    return HttpTarget(urls[0], headers=entry.headers, tls=tls, proxy=entry.proxy)


def _tls(table: TlsTable) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=table.ca)
    if table.certificate is not None:
        context.load_cert_chain(table.certificate, table.key)
    return context


#: The options of a server that say how it is reached: its target has them.
_OF_TARGET: Final = frozenset({"env", "cwd", "inherit_env", "urls", "headers", "tls", "proxy"})
_OF_API: Final = frozenset({"prefix", "policy"})
_OPTIONS: Final = frozenset(UpstreamSettings.__struct_fields__) - _OF_TARGET
_BACK_MAKERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "credentials": credential_of,
    "list_credentials": credential_of,
    "policy": policy_of,
}
