"""Gateways from tables."""

from __future__ import annotations

from typing import Any

import msgspec

from toolwire.client.config import expanded_target
from toolwire.gateway.config.file_content import Source
from toolwire.gateway.config.reading import GatewayFile, read_gateway_file
from toolwire.gateway.gateway import Gateway
from toolwire.protocol.errors import ServerError


def gateway_of(source: Source, **options: Any) -> Gateway:
    """Make the gateway that a file describes. `options` are those of `Gateway`, and win over the file.

    Raise `ServerError`, with the line and the key of the mistake, for a file that describes none.
    """
    return make_gateway(read_gateway_file(source), **options)


def make_gateway(file: GatewayFile, **options: Any) -> Gateway:
    """Make the gateway that the tables of a file describe. Nothing is opened or started yet."""
    if not file.backs:
        raise file.error(ServerError("it names no server: a gateway needs mcpServers"), ())
    try:
        gateway = Gateway(**{**msgspec.structs.asdict(file.gateway), **options})
    except ServerError as error:
        raise file.error(error, ("gateway",)) from None
    for name in file.backs:
        add_back(gateway, file, name)
    return gateway


def add_back(gateway: Gateway, file: GatewayFile, name: str) -> None:
    """Put a server of a file behind a gateway. Raise `GatewayFileError`, and change nothing, if that is impossible."""
    entry = file.backs[name]
    try:
        gateway.add(
            name,
            expanded_target(name, entry),
            prefix=entry.prefix,
            timeout=entry.timeout,
            revision=entry.revision,
            list_timeout=entry.list_timeout,
            trust=entry.trust,
            breaker=entry.breaker,
            health=entry.health,
            max_calls=entry.max_calls,
            max_calls_per_caller=entry.max_calls_per_caller,
            queue=entry.queue,
            queue_seconds=entry.queue_seconds,
        )
    except (ServerError, ValueError) as error:
        raise file.error(error, file.back_key(name)) from None
