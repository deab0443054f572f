"""`toolwire new NAME`: make a small project that runs and passes its own test.

`--template skill` makes a server that offers a skill.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolwire._version import __version__
from toolwire.cli import screen
from toolwire.cli.errors import DONE, UsageError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_NAME: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_-]{0,62}[A-Za-z0-9])?")

_SERVER: Final = '''"""The {name} server. `toolwire dev server.py` serves it with a page to try it on."""

from dataclasses import dataclass

from toolwire import Server, ToolError

server = Server("{name}", version="0.1.0", instructions="Converts amounts of money.")

RATES = {{"EUR": 1.0, "NOK": 11.6, "USD": 1.1}}


@dataclass
class Amount:
    value: float
    currency: str


def rate_of(currency: str) -> float:
    if currency not in RATES:
        raise ToolError(f"{{currency!r}} is not known; use one of {{', '.join(RATES)}}.")
    return RATES[currency]


@server.tool
async def convert_amount(value: float, currency: str, to: str = "EUR") -> Amount:
    """Convert an amount of money into another currency.

    Args:
        value: How much, such as 12.50.
        currency: The currency it is in, such as "NOK".
        to: The currency that is wanted.
    """
    return Amount(round(value / rate_of(currency) * rate_of(to), 2), to)


@server.resource("rates://{{currency}}")
async def rate(currency: str) -> float:
    """How much of a currency one euro is."""
    return rate_of(currency)


@server.prompt
def compare(amount: str) -> str:
    """Ask for an amount in every currency."""
    return f"Show {{amount}} in every currency you can convert to, as a table."


if __name__ == "__main__":
    server.run()
'''

_TEST: Final = '''"""Tests of the {name} server, in memory: no process, no network. `pytest` runs them."""

from collections.abc import Iterator
from typing import Any

import pytest
from toolwire.client.sync import Client

from server import Amount, server


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(server) as client:
        yield client


def test_converting(client: Client) -> None:
    arguments = {{"value": 116, "currency": "NOK"}}
    assert client.call_tool("convert_amount", arguments, returns=Amount) == Amount(10.0, "EUR")


def test_an_unknown_currency_is_explained_to_the_model(client: Client) -> None:
    result = client.call_tool("convert_amount", {{"value": 1, "currency": "GBP"}})
    assert result.is_error
    assert "use one of EUR, NOK, USD" in result.text


def test_the_tools_hold(fuzz: Any) -> None:
    fuzz.check()  # with arguments made from their schemas


def test_nobody_breaks_in(hostile: Any) -> None:
    hostile.check()  # with the texts of callers who mean harm
'''

_PYPROJECT: Final = """[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["toolwire[http]>={version}"]

[dependency-groups]
dev = ["pytest"]

[tool.setuptools]
py-modules = ["server"]

[tool.pytest.ini_options]
toolwire_server = "server.py"
"""

_README: Final = """# {name}

An MCP server. With Toolwire installed:

```console
$ toolwire list server.py                                        # what it offers
$ toolwire call server.py convert_amount value=116 currency=NOK  # call a tool
$ toolwire dev server.py                                         # try it on a page, with reload
$ pytest                                                         # run its tests
$ toolwire run server.py --transport http                        # serve it over HTTP
$ toolwire install server.py --client claude-desktop             # use it from a client
```
"""

_SKILL_SERVER: Final = '''"""The {name} server. It offers the skills in skills/. `toolwire dev server.py` shows them."""

from toolwire import Server

server = Server("{name}", version="0.1.0")
server.skills("skills", instructions=True)

if __name__ == "__main__":
    server.run()
'''

_SKILL: Final = """---
name: {skill}
description: Write release notes from a list of changes. Use it when somebody asks what is new in a version.
---
# Release notes

1. Sort the changes into the groups of [references/groups.md](references/groups.md). Leave out what users do not notice.
2. Write one line for each change: what a user can do now, in the present tense.
3. Put changes that break something first, with what to do about each.
"""

_SKILL_GROUPS: Final = """# Groups

| group | what belongs there |
|---|---|
| Breaking | a user has to change something |
| New | a user can do something that was not possible |
| Fixed | something works now that did not |
"""

_SKILL_TEST: Final = '''"""Tests of the {name} server, in memory: no process, no network. `pytest` runs them."""

from toolwire.client.sync import Client

from server import server


def test_the_skill_is_what_its_entry_says() -> None:
    with Client(server) as client:
        (listed,) = client.skills.list()
        skill = client.skills.load(listed.uri)  # verified: digest, size and frontmatter
        assert skill.name == "{skill}"
        assert "Breaking" in (skill.read("references/groups.md").text or "")
'''

_SKILL_README: Final = """# {name}

An MCP server that offers a skill. With `toolwire[http,skills]` and `pytest` installed:

```console
$ toolwire lint skills                    # check the skills
$ toolwire skills list server.py          # the skills as a client sees them
$ toolwire skills show server.py {skill}  # one of them, verified
$ toolwire skills digest skills           # the entries, to review and to pin
$ toolwire dev server.py                  # a page to look at them, with reload
$ pytest                                  # run its tests
```
"""

FILES: Final = {
    "server.py": _SERVER,
    "test_server.py": _TEST,
    "pyproject.toml": _PYPROJECT,
    "README.md": _README,
    ".gitignore": "__pycache__/\n.pytest_cache/\n.venv/\n",
}
SKILL_FILES: Final = {
    "server.py": _SKILL_SERVER,
    "skills/{skill}/SKILL.md": _SKILL,
    "skills/{skill}/references/groups.md": _SKILL_GROUPS,
    "test_server.py": _SKILL_TEST,
    "pyproject.toml": _PYPROJECT.replace("toolwire[http]", "toolwire[http,skills]"),
    "README.md": _SKILL_README,
    ".gitignore": FILES[".gitignore"],
    # Line endings that git changes would change the digests of the files.
    ".gitattributes": "skills/** -text\n",
}
TEMPLATES: Final = {"tools": FILES, "skill": SKILL_FILES}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the name of the project, and of the folder that is made")
    parser.add_argument(
        "--template", choices=TEMPLATES, default="tools", help="what the server offers (default: %(default)s)"
    )


def main(arguments: Namespace) -> int:
    folder = Path(arguments.name)
    if not _NAME.fullmatch(folder.name):
        raise UsageError(
            f"{folder.name!r} is not a name for a project: use letters, digits, - and _, and begin with a letter"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{str(folder)!r} exists already and is not empty: choose another name")
    skill = re.sub(r"[_-]+", "-", folder.name.lower())
    values = {"name": folder.name, "skill": skill, "version": __version__}
    made = {name.format(**values): text.format(**values) for name, text in TEMPLATES[arguments.template].items()}
    for name, text in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    out = screen.results()
    out.line(f"Made {folder} with {', '.join(made)}. Try it:")
    out.line(f"  cd {folder}")
    if arguments.template == "skill":
        out.line(f"  toolwire skills show server.py {skill}")
    else:
        out.line("  toolwire call server.py convert_amount value=116 currency=NOK")
    out.line("  toolwire dev server.py")
    return DONE
