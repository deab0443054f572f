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
from toolwire.cli.project_files import fill_words, read_template

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

_NAME: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_-]{0,62}[A-Za-z0-9])?")

_COMMON: Final = ("test_server.py", "pyproject.toml", "README.md", ".gitignore")
_SKILL: Final = "skills/template-skill"
#: The files of each template, in the order in which they are listed.
TEMPLATES: Final[Mapping[str, tuple[str, ...]]] = {
    "tools": ("server.py", *_COMMON),
    # Line endings that git changes would change the digests of the files, so .gitattributes forbids that.
    "skill": ("server.py", f"{_SKILL}/SKILL.md", f"{_SKILL}/references/groups.md", *_COMMON, ".gitattributes"),
    "app": ("server.py", *_COMMON, "board.html"),
}
#: The command that shows what a template does.
_TRY: Final = {
    "tools": "toolwire call server.py convert_amount value=116 currency=NOK",
    "skill": "toolwire skills show server.py template-skill",
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
    made = read_template(arguments.template, TEMPLATES[arguments.template], values)
    _make(folder)
    for name, text in made.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    out = screen.results()
    out.line(f"Made {folder} with {', '.join(made)}. Try it:")
    out.line(f"  cd {folder}")
    out.line(f"  {fill_words(_TRY[arguments.template], values)}")
    out.line("  toolwire dev server.py")
    return DONE


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{str(folder)!r} cannot be made: {error.strerror}") from None
