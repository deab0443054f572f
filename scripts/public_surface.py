"""Writes down the public surface: every stable name with its signature, and every option of the command line.

    python scripts/public_surface.py           rewrite tests/public_surface.txt
    python scripts/public_surface.py --check   print the difference and fail when the file is out of date

tests/test_public_surface.py compares the file with the code, so that a public name changes only on purpose.
"""

from __future__ import annotations

import difflib
import enum
import functools
import inspect
import re
import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests" / "public_surface.txt"
#: The modules that docs/stability.md calls stable.
MODULES = (
    "toolwire",
    "toolwire.agents",
    "toolwire.apps",
    "toolwire.apps.views",
    "toolwire.audit",
    "toolwire.auth",
    "toolwire.client",
    "toolwire.client.skills",
    "toolwire.client.sync",
    "toolwire.errors",
    "toolwire.gateway",
    "toolwire.logs",
    "toolwire.messages",
    "toolwire.openapi",
    "toolwire.search",
    "toolwire.shape",
    "toolwire.stores",
    "toolwire.testing",
    "toolwire.testing.stores",
    "toolwire.transports",
    "toolwire.types",
)
_QUOTED = re.compile(r"""(: |-> )(?:'([^']*)'|"([^"]*)")""")
HEADER = "# The public surface. `python scripts/public_surface.py` writes this file; review what it changes.\n"


def describe_surface() -> str:
    """Return the whole surface as text, one line for each name."""
    described: dict[type[Any], str] = {}
    lines = [line for module in MODULES for line in _module_lines(module, described)]
    return "\n".join([HEADER, *lines, *_command_lines()]) + "\n"


def _module_lines(name: str, described: dict[type[Any], str]) -> Iterator[str]:
    module = import_module(name)
    listed = getattr(module, "__all__", None)
    names = listed if listed is not None else [each for each in vars(module) if not each.startswith("_")]
    yield f"\n[{name}]"
    for each in sorted(names):
        value = getattr(module, each)
        if inspect.ismodule(value) or getattr(value, "__module__", "toolwire").partition(".")[0] != "toolwire":
            yield each
        elif inspect.isclass(value) and value in described:
            yield f"{each} = {described[value]}"
        elif inspect.isclass(value):
            described[value] = f"{name}.{each}"
            yield from _class_lines(each, value)
        elif callable(value) and not _is_alias(value):
            yield f"{each}{_signature(value)}"
        else:
            yield each


def _class_lines(name: str, cls: type[Any]) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in cls.__bases__ if base is not object)
    yield f"class {name}({bases})"
    if issubclass(cls, enum.Enum):
        yield from (f"    {member.name} = {member.value!r}" for member in cls)
        return
    fields = _fields(cls)
    if not fields and not issubclass(cls, BaseException):
        yield f"    __init__{_signature(cls)}"
    yield from (f"    {line}" for line in fields)
    members: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.partition(".")[0] == "toolwire":
            # The tests of a contract are not called by name.
            members |= {each: value for each, value in vars(base).items() if not each.startswith(("_", "test_"))}
    given = set(getattr(cls, "__struct_fields__", ()))
    for each in sorted(members.keys() - given):
        yield f"    {_member(each, members[each])}"


def _fields(cls: type[Any]) -> list[str]:
    """Return the fields of a Struct with their types, in their order."""
    return [f"{name}: {_annotation(cls, name)}" for name in getattr(cls, "__struct_fields__", ())]


def _annotation(cls: type[Any], name: str) -> str:
    for base in cls.__mro__:
        annotation = inspect.get_annotations(base).get(name)
        if annotation is not None:
            return str(annotation)
    return "?"


def _member(name: str, value: Any) -> str:
    if isinstance(value, property | functools.cached_property):
        return f"{name} (property)"
    kind = (
        "classmethod " if isinstance(value, classmethod) else "staticmethod " if isinstance(value, staticmethod) else ""
    )
    function = value.__func__ if kind else value
    return f"{kind}{name}{_signature(function)}" if inspect.isfunction(function) else name


def _signature(value: Any) -> str:
    """Return a signature that is the same text on every supported Python."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    text = re.sub(r" at 0x[0-9a-f]+", "", str(signature))
    text = re.sub(r"ForwardRef\('([^']*)'[^)]*\)", r"\1", text)
    text = re.sub(r"\{('[^{}]*')\}", lambda match: "{" + ", ".join(sorted(match[1].split(", "))) + "}", text)
    return _QUOTED.sub(lambda match: match[1] + (match[2] or match[3]), text)


def _is_alias(value: Any) -> bool:
    return hasattr(value, "__origin__")


# --- the command line ---


def _command_lines() -> Iterator[str]:
    commands = import_module("toolwire.cli").COMMANDS
    for command, (home, _) in sorted(commands.items()):
        module = import_module(f"toolwire.cli.{home}")
        yield from _options(command, module)
        for word, (further, _) in sorted(getattr(module, "WORDS", {}).items()):
            yield from _options(f"{command} {word}", import_module(f"toolwire.cli.{further}"))


def _options(command: str, module: Any) -> Iterator[str]:
    parser = ArgumentParser(prog=command, add_help=False)
    module.add_arguments(parser)
    yield f"\n[toolwire {command}]"
    for action in parser._actions:
        if action.help != SUPPRESS:
            yield ", ".join(action.option_strings) or action.dest


def main() -> int:
    surface = describe_surface()
    if "--check" not in sys.argv[1:]:
        FILE.write_text(surface, encoding="utf-8")
        return 0
    written = FILE.read_text(encoding="utf-8")
    sys.stdout.writelines(difflib.unified_diff(written.splitlines(True), surface.splitlines(True), "file", "code"))
    return int(written != surface)


if __name__ == "__main__":
    sys.exit(main())
