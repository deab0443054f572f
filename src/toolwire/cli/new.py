"""`toolwire new NAME`: make a small project that runs and passes its own test.

`--template skill` makes a server that offers a skill, and `--template app` one whose tool has a view.
`--from api.yaml` makes one of an API, with typed code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolwire._version import __version__
from toolwire.cli import screen
from toolwire.cli.errors import DONE, UsageError
from toolwire.cli.openapi_options import add_locking

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_NAME: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_-]{0,62}[A-Za-z0-9])?")

_SERVER: Final = '''"""The {name} server. `toolwire dev server.py` serves it with a page to try it on."""

from dataclasses import dataclass

from toolwire import Server, ToolError

server = Server("{name}", version="0.1.0", instructions="Converts amounts of money.")

RATES = {"EUR": 1.0, "NOK": 11.6, "USD": 1.1}


@dataclass
class Amount:
    value: float
    currency: str


def rate_of(currency: str) -> float:
    if currency not in RATES:
        raise ToolError(f"{currency!r} is not known; use one of {', '.join(RATES)}.")
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


@server.resource("rates://{currency}")
async def rate(currency: str) -> float:
    """How much of a currency one euro is."""
    return rate_of(currency)


@server.prompt
def compare(amount: str) -> str:
    """Ask for an amount in every currency."""
    return f"Show {amount} in every currency you can convert to, as a table."


if __name__ == "__main__":
    server.run()
'''

_TEST: Final = '''"""Tests of the {name} server, in memory: no process, no network. `pytest` runs them."""

from collections.abc import Iterator

import pytest
from toolwire.client.sync import Client
from toolwire.testing import FuzzFixture, HostileFixture

from server import Amount, server


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(server) as client:
        yield client


def test_converting(client: Client) -> None:
    arguments = {"value": 116, "currency": "NOK"}
    assert client.call_tool("convert_amount", arguments, returns=Amount) == Amount(10.0, "EUR")


def test_an_unknown_currency_is_explained_to_the_model(client: Client) -> None:
    result = client.call_tool("convert_amount", {"value": 1, "currency": "GBP"})
    assert result.is_error
    assert "use one of EUR, NOK, USD" in result.text


def test_the_tools_hold(fuzz: FuzzFixture) -> None:
    fuzz.check()  # with arguments made from their schemas


def test_nobody_breaks_in(hostile: HostileFixture) -> None:
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

_APP_SERVER: Final = '''"""The {name} server, whose tool has a view. `toolwire dev server.py` shows it."""

from dataclasses import dataclass

from toolwire import Server, ToolError

server = Server("{name}", version="0.1.0", instructions="Keeps a list of tasks and shows it.")


@dataclass
class Task:
    number: int
    text: str
    done: bool = False


TASKS = [Task(1, "Water the plants"), Task(2, "Write to Ada"), Task(3, "Buy tea")]

board = server.app("board.html")  # The page beside this file, at ui://{name}/board.html.


@server.tool(app=board, annotations={"readOnlyHint": True})
async def show_tasks(open_only: bool = False) -> list[Task]:
    """Show the tasks, in a view where the client has one.

    Args:
        open_only: Leave out the tasks that are done.
    """
    return [task for task in TASKS if not (open_only and task.done)]


@board.tool(annotations={"destructiveHint": False, "idempotentHint": True})
async def finish_task(number: int) -> Task:
    """Mark a task as done. The view calls this; models do not see it."""
    for task in TASKS:
        if task.number == number:
            task.done = True
            return task
    raise ToolError(f"There is no task {number}.")


if __name__ == "__main__":
    server.run()
'''

_APP_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Tasks</title>
<style>
  :root { color-scheme: light dark; }
  body {
    margin: 0; padding: 16px; font: 14px/1.5 var(--font-sans, system-ui, sans-serif);
    background: var(--color-background-primary, light-dark(#fff, #1c1c1f));
    color: var(--color-text-primary, light-dark(#201f1d, #ecebe8));
  }
  h1 { margin: 0 0 8px; font-size: 17px; }
  ul { margin: 0; padding: 0; list-style: none; }
  li { display: flex; gap: 12px; align-items: center; padding: 6px 0; }
  li span { flex: 1; }
  .done span { text-decoration: line-through; }
  button { font: inherit; padding: 4px 12px; }
</style>
</head>
<body>
<main>
  <h1>Tasks</h1>
  <ul id="tasks"></ul>
  <p role="status" id="status">Waiting for the tasks…</p>
</main>
<script>
  // Toolwire puts its view library into the page when it serves it: that is the object `toolwire`.
  const list = document.getElementById("tasks");
  const status = document.getElementById("status");

  function row(task) {
    const item = document.createElement("li");
    const text = document.createElement("span");
    text.textContent = task.text; // Never innerHTML: what a tool returns is not yours.
    item.append(text);
    item.className = task.done ? "done" : "";
    if (!task.done) {
      const button = document.createElement("button");
      button.textContent = "Done";
      button.setAttribute("aria-label", `Done: ${task.text}`);
      button.onclick = () => finish(task, item);
      item.append(button);
    }
    return item;
  }

  async function finish(task, item) {
    const result = await toolwire.callTool("finish_task", { number: task.number });
    if (result.isError) {
      status.textContent = result.content[0].text;
      return;
    }
    item.replaceWith(row({ ...task, done: true }));
    status.textContent = `${task.text}: done.`;
    toolwire.updateModelContext(`The user finished the task "${task.text}".`);
  }

  toolwire.on("result", (result) => {
    const data = toolwire.data(result);
    const tasks = data.result ?? data; // A list arrives in an object: {"result": [...]}.
    list.replaceChildren(...tasks.map(row));
    status.textContent = tasks.length ? "" : "There are no tasks.";
  });
</script>
</body>
</html>
"""

_APP_TEST: Final = '''"""Tests of the {name} server and of its view. `pytest` runs them."""

import pytest
from toolwire.testing import ViewFixture


async def test_the_page_has_no_faults(view: ViewFixture) -> None:
    async with view("show_tasks") as shown:
        shown.check_page()  # what leaves a view blank in some host
        assert "Write to Ada" in shown.result.text  # complete without the view, too
        await shown.initialize()


async def test_the_view_can_finish_a_task(view: ViewFixture) -> None:
    async with view("show_tasks") as shown:
        await shown.initialize()
        assert (await shown.call_tool("finish_task", {"number": 1})).structured["done"] is True
        assert (await shown.call_tool("finish_task", {"number": 9})).is_error


async def test_in_a_browser(view: ViewFixture) -> None:
    pytest.importorskip("playwright", reason="pip install playwright, and have Chromium")
    async with view("show_tasks", browser=True, theme="dark", width=420) as shown:
        await shown.check()  # it paints, reports its size, logs no error and breaks no policy
        await shown.frame.get_by_label("Done: Buy tea").click()
        await shown.frame.get_by_text("Buy tea: done.").wait_for()
        assert [call.name for call in shown.calls] == ["finish_task"]
'''

_APP_README: Final = """# {name}

An MCP server with a view. With `toolwire[http]` and `pytest` installed:

```console
$ toolwire call server.py show_tasks          # what a client without views gets
$ toolwire lint server.py                     # check the tools and the page
$ toolwire dev server.py                      # look at the view, with reload
$ pytest                                      # run its tests
$ toolwire run server.py --transport http     # serve it over HTTP
```

`pip install playwright` and Chromium let the tests open the view in a browser as well.
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
APP_FILES: Final = {
    **FILES,
    "server.py": _APP_SERVER,
    "board.html": _APP_PAGE,
    "test_server.py": _APP_TEST,
    "README.md": _APP_README,
}
TEMPLATES: Final = {"tools": FILES, "skill": SKILL_FILES, "app": APP_FILES}
#: The command that shows what a template does.
_TRY: Final = {
    "tools": "toolwire call server.py convert_amount value=116 currency=NOK",
    "skill": "toolwire skills show server.py {skill}",
    "app": "toolwire call server.py show_tasks",
}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="the name of the project, and of the folder that is made")
    parser.add_argument(
        "--template", choices=TEMPLATES, default="tools", help="what the server offers (default: %(default)s)"
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="an API description, as a file or a URL: write typed code for the operations that are chosen",
    )
    add_locking(parser)


def main(arguments: Namespace) -> int:
    folder = Path(arguments.name)
    if not _NAME.fullmatch(folder.name):
        raise UsageError(
            f"{folder.name!r} is not a name for a project: use letters, digits, - and _, and begin with a letter"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{str(folder)!r} exists already and is not empty: choose another name")
    if arguments.source is not None:
        # Imported here because most projects are not made of an API.
        from toolwire.cli import new_from_api

        was_there = folder.exists()
        _make(folder)
        return new_from_api.main(arguments, folder, was_there)
    if any(getattr(arguments, option) for option in ("tags", "operation", "path", "all")):
        raise UsageError("--tags, --operation, --path and --all are for --from, which names the description of an API")
    skill = re.sub(r"[_-]+", "-", folder.name.lower())
    values = {"name": folder.name, "skill": skill, "version": __version__}
    made = {_filled(name, values): _filled(text, values) for name, text in TEMPLATES[arguments.template].items()}
    _make(folder)
    for name, text in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    out = screen.results()
    out.line(f"Made {folder} with {', '.join(made)}. Try it:")
    out.line(f"  cd {folder}")
    out.line(f"  {_filled(_TRY[arguments.template], values)}")
    out.line("  toolwire dev server.py")
    return DONE


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{str(folder)!r} cannot be made: {error.strerror}") from None


def _filled(text: str, values: Mapping[str, str]) -> str:
    """Put values into the places of a template. All other braces are those of Python, CSS and JavaScript."""
    return re.sub(r"\{(name|skill|version)\}", lambda found: values[found[1]], text)
