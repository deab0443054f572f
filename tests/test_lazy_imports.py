"""What `from toolwire import Server` does not load, and expressions that are compiled when they are first used."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from toolwire.lazy_patterns import _LazyPattern, lazy_pattern

SOURCE = Path(__file__).resolve().parent.parent / "src" / "toolwire"

# Modules of which a server needs nothing before it has a component, a task or a transport that uses them.
UNUSED = [
    "toolwire.apps",
    "toolwire.client",
    "toolwire.gateway",
    "toolwire.http",
    "toolwire.openapi",
    "toolwire.platforms",
    "toolwire.protocol.http",
    "toolwire.protocol.lifecycle.client",
    "toolwire.protocol.lifecycle.negotiation",
    "toolwire.protocol.tasks",
    "toolwire.protocol.uri_template",
    "toolwire.schemas.engine",
    "toolwire.schemas.vendor_schemas",
    "toolwire.server.tasks",
    "toolwire.skills",
    "toolwire.wire.process_workers",
    "toolwire.wire.stdio",
    "jsonschema_rs",
    "hashlib",
    "hmac",
]
# Modules that it does not need over HTTP, either.
UNUSED_OVER_HTTP = [
    "toolwire.client",
    "toolwire.gateway",
    "toolwire.stores.redis",
    "toolwire.stores.sqlite",
    "encodings.idna",
]


SERVED = """
import os, sys
from toolwire import Server

server = Server("s")
print(*sys.modules)

def ready(address):
    print(*sys.modules, flush=True)
    os._exit(0)

server.run("http", port=0, on_ready=ready)
"""


def test_a_server_is_imported_and_served_without_what_it_does_not_use() -> None:
    done = subprocess.run([sys.executable, "-c", SERVED], capture_output=True, text=True, check=True)
    constructed, served = (line.split() for line in done.stdout.splitlines())
    assert [name for name in UNUSED if name in constructed] == []
    assert [name for name in UNUSED_OVER_HTTP if name in served] == []


def test_an_expression_is_compiled_when_it_is_first_used(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_now = re.compile

    def noted(source: str, flags: int = 0) -> re.Pattern[str]:
        compiled.append(source)
        return compile_now(source, flags)

    monkeypatch.setattr(re, "compile", noted)
    pattern = lazy_pattern("a(b+)", re.IGNORECASE)
    assert compiled == []
    found = pattern.fullmatch("ABB")
    assert found is not None and found[1] == "BB"
    assert pattern.sub("-", "xabx") == "x-x"
    assert pattern.groups == 1
    assert compiled == ["a(b+)", "a(b+)"]  # Once for its methods, once for a member that is none of them.


def test_every_expression_of_the_package_can_be_compiled() -> None:
    names = {
        ".".join(("toolwire", *file.relative_to(SOURCE).with_suffix("").parts))
        for file in SOURCE.rglob("*.py")
        if "lazy_pattern(" in file.read_text(encoding="utf-8") and file.stem != "lazy_patterns"
    }
    patterns = [
        value
        for name in names
        for value in vars(__import__(name, fromlist=["_"])).values()
        if isinstance(value, _LazyPattern)
    ]
    assert len(patterns) > 10
    for pattern in patterns:
        pattern.search  # noqa: B018
