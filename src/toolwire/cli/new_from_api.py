"""`toolwire new NAME --from api.yaml`: a project with typed code for an API."""

from __future__ import annotations

import re
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Final

from toolwire import logs
from toolwire._version import __version__
from toolwire.cli import screen
from toolwire.cli.errors import DONE, FAILED, UsageError
from toolwire.cli.openapi_add import lock_of, secrets_of, show_chosen
from toolwire.cli.openapi_options import reach_of, translate_advice
from toolwire.cli.project_files import read_template
from toolwire.extras import MissingExtra
from toolwire.openapi.code.code_texts import one_line
from toolwire.openapi.code.written_code import written_code
from toolwire.openapi.lock_file.lock import is_lock, name_of, write_lock
from toolwire.openapi.lock_file.locking import LockedApi, read_api
from toolwire.openapi.model import DescriptionError

# What Markdown and HTML would not show as it is.
_MARKDOWN: Final = re.compile(r"[\\`*_\[\]<>&!#|]")
LOCK: Final = "api.lock.json"
_FILES: Final = ("test_server.py", "pyproject.toml", "README.md", ".gitignore")


def main(arguments: Namespace, folder: Path, was_there: bool) -> int:
    """Write the project into an empty folder.

    A folder that did not exist before is removed when something is wrong.
    """
    logs.install("warning")
    try:
        source = _copied(arguments, folder)
        made = lock_of(arguments, source, folder / LOCK)
    except (DescriptionError, MissingExtra, UsageError) as error:
        _clear(folder, was_there)
        if isinstance(error, UsageError):
            raise
        screen.note(f"toolwire: {translate_advice(error)}")
        return FAILED
    written = _files(made, folder.name)
    for name, text in written.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    write_lock(folder / LOCK, made.lock, made.texts)
    out = screen.results()
    show_chosen(out, made, None)
    out.line(f"Made {folder} with {', '.join([*written, LOCK])}. Try it:")
    for line in (f"cd {folder}", *secrets_of(made.lock), "pytest", "toolwire dev server.py"):
        out.line(f"  {line}")
    return DONE


def _copied(arguments: Namespace, folder: Path) -> str:
    """Copy a description into the project; return its place there.

    A URL stays what it is.
    """
    given: str = arguments.source
    if is_lock(given):
        raise UsageError(f"{given} is a lock file: name the description that it was made of")
    if given.startswith(("http://", "https://")):
        return given
    read = read_api(given, overlays=arguments.overlay, reach=reach_of(arguments.reach))
    root = Path(given).resolve().parent
    for uri, text in read.texts.items():
        if not uri.startswith("file://"):
            continue
        inside = name_of(uri, root)
        place = folder / (Path(inside).name if inside.startswith("..") else inside)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text)
    arguments.overlay = [str(folder / _inside(each, root)) for each in arguments.overlay]
    return str(folder / Path(given).name)


def _inside(overlay: str, root: Path) -> str:
    inside = name_of(Path(overlay).resolve().as_uri(), root)
    return Path(inside).name if inside.startswith("..") else inside


def _clear(folder: Path, was_there: bool) -> None:
    """Remove the files that were written. The folder was empty before."""
    for each in folder.iterdir() if folder.is_dir() else ():
        if each.is_dir():
            shutil.rmtree(each)
        else:
            each.unlink()
    if not was_there and folder.is_dir():
        folder.rmdir()


def _files(made: LockedApi, name: str) -> dict[str, str]:
    """Return the files of the project by name."""
    lock = made.lock
    definitions = sorted(made.operations.chosen, key=lambda each: (each.operation.path, each.operation.method))
    code = written_code(made.description, definitions, name=name, lock=LOCK)
    modules = {"server.py": code.server, **({} if code.models is None else {"models.py": code.models})}
    values = {
        "name": name,
        "version": __version__,
        "count": str(len(definitions)),
        "title": _MARKDOWN.sub(r"\\\g<0>", one_line(lock.title)) or "an API",
        "modules": '", "'.join(Path(each).stem for each in modules),  # Between the quotes of the template.
    }
    filled = read_template("api", _FILES, values)
    if secrets := "".join(f"$ {line}\n" for line in secrets_of(lock)):
        filled["README.md"] += f"\nThe API needs secrets:\n\n```console\n{secrets}```\n"
    return {**modules, **filled}
