"""Secrets do not show in representations, wherever an object of ours holds one."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import msgspec
from tests.cases import cases

import toolwire
from toolwire.redaction import repr_without

SECRET = "kept-to-ourselves"
# What a field is called that holds a secret, or may hold one. Bodies and headers carry tokens and codes.
SECRETIVE = re.compile(r"(^|_)(secret|secrets|password|token|verifier|code|access|refresh|headers|env|body|key|state)$")
# Fields with such a name that hold none.
HARMLESS = {
    ("toolwire.server.limits", "state"),
    ("toolwire.server.observe.outcome", "code"),
    ("toolwire.server.hops", "code"),
    ("toolwire.auth.jose", "key"),
    ("toolwire.auth.client.settings", "key"),
    ("toolwire.auth.client.records", "token"),  # A Token, which hides its own.
    ("toolwire.auth.proxy.sealed", "is_access"),
    ("toolwire.http.responses", "headers"),
    ("toolwire.http.responses", "body"),
    ("toolwire.http.limits", "body"),
    ("toolwire.client.targets", "inherit_env"),  # Names, not values.
    ("toolwire.cli.reloading", "code"),
    ("toolwire.cli.loop_watchdog", "code"),
    ("toolwire.server.tasks.bells", "key"),  # The keys of records in the store.
    ("toolwire.stores.queue", "key"),
    ("toolwire.server.tasks.fleet_tasks", "key"),
    ("toolwire.skills.frontmatter", "body"),  # The Markdown of a skill.
    ("toolwire.gateway.gateway", "state"),  # Whether a server is there.
    ("toolwire.server.shaping.shapes", "key"),  # The place of a mistake.
    ("toolwire.client.extensions", "request_state"),  # A message of the protocol.
    ("toolwire.openapi.model", "headers"),  # Descriptions of headers.
    ("toolwire.openapi.model", "request_body"),
    ("toolwire.openapi.model", "is_secret"),
    ("toolwire.openapi.definition.arguments", "key"),  # The place and the name of a parameter.
    ("toolwire.openapi.definition.arguments", "is_secret"),
    ("toolwire.openapi.api_options", "forward_headers"),  # Names, not values.
    ("toolwire.openapi.description.json_path", "key"),  # A member or an index of a document.
    ("toolwire.apps.bridge", "code"),  # The code of an error.
}
# Messages of the protocol are not credentials, and some modules are for one operating system only.
LEFT_OUT = ("toolwire.protocol.", "toolwire.types", "toolwire.testing", "toolwire.inspector", "toolwire.platforms")


def records() -> Iterator[tuple[type[Any], list[str]]]:
    """Every Struct and NamedTuple of the package whose fields may hold a secret, with these fields."""
    for found in pkgutil.walk_packages(toolwire.__path__, "toolwire."):
        if found.name.startswith(LEFT_OUT) or found.name.endswith("__main__"):
            continue
        for kind in list(vars(importlib.import_module(found.name)).values()):
            if inspect.isclass(kind) and kind.__module__ == found.name:
                fields = getattr(kind, "__struct_fields__", None) or getattr(kind, "_fields", ())
                secret = [each for each in fields if SECRETIVE.search(each) and (kind.__module__, each) not in HARMLESS]
                if secret:
                    yield kind, secret


FOUND = list(records())


def test_there_is_something_to_look_at() -> None:
    names = {kind.__qualname__ for kind, _ in FOUND}
    assert {
        "Upstream",
        "Registration",
        "Tokens",
        "RequestCredentials",
        "Token",
        "SealedAccess",
        "Refresh",
        "Code",
    } <= names


@cases(("kind", "secret"), FOUND, ids=[f"{kind.__module__}.{kind.__name__}" for kind, _ in FOUND])
def test_a_secret_does_not_show(kind: type[Any], secret: list[str]) -> None:
    fields = getattr(kind, "__struct_fields__", None) or kind._fields
    values = {name: _Named("issuer") if name == "found" else "https://shown.example" for name in fields}
    assert SECRET not in repr(kind(**{**values, **dict.fromkeys(secret, SECRET)}))


class _Named:
    def __init__(self, issuer: str) -> None:
        self.issuer = issuer


class _Record(msgspec.Struct):
    name: str
    secret: str | None = None

    def __repr__(self) -> str:
        return repr_without(self, "secret")


def test_a_representation_shows_the_rest() -> None:
    assert repr(_Record("a", SECRET)) == "_Record(name='a', secret=...)"
    assert repr(_Record("a")) == "_Record(name='a', secret=None)"
