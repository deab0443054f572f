"""A missing extra is missed in one line that names the command which installs it."""

from __future__ import annotations

import asyncio
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolwire import Client, Policy, Server, testing
from toolwire.auth import JWT, PrivateKey, entra, github
from toolwire.auth.jose import _joserfc
from toolwire.cli import screen
from toolwire.extras import MissingExtra
from toolwire.openapi.description.reading import read_description
from toolwire.skills.frontmatter import read_skill_document

EXTRAS = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"][
    "optional-dependencies"
]
PROXY = {"public_url": "https://mcp.example"}


async def reached(server: Any) -> None:
    async with testing.connect(server, over="port"):
        pass


# The package that is missing, the extra that has it, and what a user would write.
NEEDS: list[tuple[str, str, Callable[[], Any]]] = [
    ("uvicorn", "http", lambda: Server("s").run("http")),
    ("httptools", "http", lambda: Server("s").run("http")),
    ("uvicorn", "http", lambda: asyncio.run(reached(Server("s")))),
    ("httptools", "http", lambda: asyncio.run(Client("http://127.0.0.1:1/mcp").connect())),
    ("joserfc", "auth", lambda: JWT("https://login.example", audience="https://mcp.example/mcp")),
    ("joserfc", "auth", lambda: entra("9188040d-6c67-4c5b-b112-36a304b66dad", "client")),
    ("joserfc", "auth", lambda: PrivateKey("{}")),
    ("limits", "policy", lambda: Policy(rate="1/minute")),
    ("limits", "policy", lambda: Policy(quota="1/day")),
    ("redis", "redis", lambda: Server("s", stores="redis://127.0.0.1:1")),
    ("opentelemetry", "otel", lambda: Server("s", tracing=True)),
    ("opentelemetry", "otel", lambda: Client(Server("s"), tracing=True)),
    ("rich", "cli", lambda: screen.results("always")),
    ("pyyaml", "openapi", lambda: read_description(b"openapi: 3.1.0")),
    ("pyyaml", "skills", lambda: read_skill_document(b"---\nname: a\n---\n")),
]
# A package whose module has another name.
MODULES = {"pyyaml": "yaml"}


@pytest.fixture(autouse=True)
def forgetting() -> Iterator[None]:
    _joserfc.cache_clear()
    yield
    _joserfc.cache_clear()


@pytest.mark.parametrize(("package", "extra", "use"), NEEDS, ids=[f"{need[1]}-{at}" for at, need in enumerate(NEEDS)])
def test_one_line_says_what_to_install(
    package: str, extra: str, use: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert any(requirement.startswith(package) for requirement in EXTRAS[extra])
    module = MODULES.get(package, package)
    for name in [module, *(name for name in sys.modules if name.startswith(f"{module}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra) as caught:
        use()
    said = str(caught.value)
    assert said.endswith(f": pip install 'toolwire[{extra}]'")
    assert f" needs {package}" in said
    assert "\n" not in said


def test_no_extra_goes_untried() -> None:
    assert {extra for _, extra, _ in NEEDS} == set(EXTRAS) - {"all"}


def test_the_proxy_needs_to_hide_what_it_hands_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.sealing_aes.find_spec", lambda name: None)
    server = Server("s", auth=github("client", "its secret", proxy=True), secret="a secret of at least sixteen bytes")
    with pytest.raises(MissingExtra, match=r"^Hiding .* needs cryptography: pip install 'toolwire\[auth\]'$"):
        server.http_app(public_url="https://mcp.example")
