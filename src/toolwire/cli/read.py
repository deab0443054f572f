"""`toolwire read TARGET URI`: read a resource and show its contents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolwire.cli import catalogue, request, screen, show_content, targets
from toolwire.cli.errors import DONE, UsageError
from toolwire.protocol.errors import ResourceNotFound

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from toolwire.client import Client

OPTIONS_ANYWHERE: Final = True


def add_arguments(parser: ArgumentParser) -> None:
    request.add_arguments(parser)
    parser.add_argument("uri", nargs="?", metavar="URI", help="the URI of the resource")


def main(arguments: Namespace) -> int:
    return targets.run(arguments, lambda: _read(arguments))


async def _read(arguments: Namespace) -> int:
    out = screen.results(arguments.color)
    async with request.opened(arguments) as asked:
        if arguments.uri is None:
            raise request.unknown("resource", None, await _list_uris(asked.client))
        try:
            contents = await asked.send(asked.client.read_resource(arguments.uri, on_progress=asked.progress))
        except ResourceNotFound as error:
            raise await _not_found(asked.client, arguments.uri, error) from None
    if arguments.json:
        out.json({"contents": [one.to_dict() for one in contents]})
    else:
        show_content.show_resource(out, contents)
    return DONE


async def _not_found(client: Client, uri: str, error: ResourceNotFound) -> UsageError:
    known = await _list_uris(client)
    if uri in known:
        return UsageError(f"the server lists the resource {uri!r} and does not find it: {error.message}")
    return request.unknown("resource", uri, known)


async def _list_uris(client: Client) -> list[str]:
    found = await catalogue.fetch(client, ("resources", "templates"))
    return [*(one.uri for one in found.resources), *(one.uri_template for one in found.templates)]
