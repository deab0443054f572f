"""Names in rules that nothing answers to: tags, arguments, prompts and templates.

A rule under a wrong name protects nothing, and nobody notices. A name that can be checked when it is given is refused
at once. The rules of a whole server may be meant for components that come later, or that only some servers have. So
those names are checked when the server starts, and a warning names each rule that applies to nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import Any

from toolwire.protocol.errors import ServerError
from toolwire.schemas.wording import nearest
from toolwire.server.catalog import Catalog, Found, Owner
from toolwire.server.components import Resource

log: logging.Logger = logging.getLogger("toolwire.server")


def warn_of_unknown_names(server: Owner) -> None:
    """Warn of names in the rules of a server, and of its mounted servers, that none of their components has."""
    for each in (server, *(catalog.owner for catalog in server.catalog.family())):
        for warning in _unknown(each):
            log.warning("the server %r %s", each.name, warning)


def _unknown(server: Owner) -> Iterator[str]:
    found = list(server.catalog.each())
    if not found or server.kernel.has_list_handler:
        return  # The components come later, or a list handler makes them.
    tags = {tag for each in found for tag in each.component.tags}
    for tag in server.kernel.access.rules:
        if tag not in tags:
            yield f"restricts the tag {tag!r}, which no component has{_meant(tag, tags)}"
    if server.policy is not None and server.policy.rules:
        arguments = {name for each in found for name in each.component.argument_names}
        for name in server.policy.rules:
            if name not in arguments:
                yield f"has a rule for the argument {name!r}, which no component takes{_meant(name, arguments)}"
    for reference, name, _ in server.catalog.completions:
        if _completed(server.catalog, reference, name) is None:
            kind = "prompt" if reference == "ref/prompt" else "template"
            yield f"has a completion for the {kind} {name!r}, which does not exist"


def check_completed(catalog: Catalog, reference: str, name: str, argument: str) -> None:
    """Refuse a completion for an argument that its prompt or template does not have, if that is known already."""
    found = _completed(catalog, reference, name)
    if found is None or isinstance(found.component, Resource):
        return
    if argument not in (known := found.component.completable):
        raise ServerError(f"{name!r} has no argument {argument!r} to complete{_meant(argument, known)}")


def _completed(catalog: Catalog, reference: str, name: str) -> Found[Any] | None:
    if reference == "ref/prompt":
        return catalog.prompt(name)
    return catalog.all("templates").get(name) or catalog.resource(name)


def _meant(name: str, known: Collection[str]) -> str:
    close = nearest(name, known)
    return "" if close is None else f"; did you mean {close!r}?"
