"""Make the page of all errors and log lines from the source.

    .venv/bin/python scripts/errors_page.py     # print the page

The page is not in the repository: `make docs` makes it as docs/errors.md, because mkdocs.yml names this file as a hook.
docs/guides/errors.md is written by hand; it has causes and remedies of the errors that people meet most, and the page
of all errors links to it. tests/test_errors_page.py checks that the texts of that guide are still in the source.

A text counts when a user can meet it: the text of an exception of the library, of wrong use on the command line, of a
warning, and of a log line. A text that only passes on another one, such as `str(error)`, does not count.
"""

from __future__ import annotations

import ast
import gc
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "src" / "toolwire"
#: The guide that is written by hand, and the page that is made, as paths below docs/.
GUIDE: Final = "guides/errors.md"
PAGE: Final = "errors.md"

#: Exceptions that reach a user although they are no subclasses of `ToolwireError`.
_OTHER_ERRORS: Final = ("ArgumentTypeError", "UsageError", "Unreadable")
#: The class whose second argument is the text of an HTTP response that refuses a request.
_HTTP_REFUSAL: Final = "HttpRefusal"
_LOGGERS: Final = ("log", "_log", "logger", "_logger")
_LEVELS: Final = ("debug", "info", "warning", "error", "exception", "critical")
#: Names of the parameter that takes the text in the `__init__` of an exception.
_TEXT_PARAMETERS: Final = ("message", "text", "description", "problem")
#: The titles of the areas, by the first part of a module's name; in the order of the page.
_AREAS: Final = {
    "cli": "The command line",
    "server": "Servers",
    "client": "Clients",
    "gateway": "Gateways",
    "apps": "Apps",
    "auth": "Authorization and signing in",
    "http": "HTTP",
    "http1": "HTTP",
    "wire": "Connections",
    "stores": "Stores",
    "audit": "The audit log",
    "adapters": "Types and schemas",
    "schemas": "Types and schemas",
    "content": "Types and schemas",
    "protocol": "The protocol",
    "messages": "The protocol",
    "inspector": "The inspector",
    "testing": "Tests",
    "testing_plugin": "Tests",
}
_OTHER_AREA: Final = "Everything else"

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

_WITHOUT_CALLS: Final = (ast.Name, ast.Constant, ast.expr_context, ast.operator, ast.cmpop, ast.alias)


class Message(NamedTuple):
    """A text in the source. `kind` is the name of an exception, `HTTP` for a response, or `log` with the level."""

    area: str
    kind: str
    text: str
    module: str

    @property
    def key(self) -> tuple[str, str]:
        """Identify the text: the names of its placeholders, the area and the module do not matter."""
        return self.kind, unnamed(self.text)


def unnamed(text: str) -> str:
    """Return a text whose placeholders have no names."""
    return re.sub(r"\{\w*\}", "{}", text)


# --- the texts of the source -----------------------------------------------------------------------------------------


class Exceptions:
    """The exception classes of the package that reach users, and the position of the text among their arguments."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self._classes: dict[str, dict[str, ast.ClassDef]] = defaultdict(dict)
        self._imports: dict[str, dict[str, str]] = {}
        self._known: dict[tuple[str, str], bool] = {}
        for module, tree in trees.items():
            statements = list(_statements(tree))
            for node in statements:
                if isinstance(node, ast.ClassDef):
                    self._classes[node.name][module] = node
            froms = [node for node in statements if isinstance(node, ast.ImportFrom)]
            self._imports[module] = {each.name: node.module or "" for node in froms for each in node.names}

    def _find(self, name: str, module: str) -> tuple[str, ast.ClassDef] | None:
        """Return the class that a name means in a module, with the module that defines it."""
        found = self._classes.get(name, {})
        for home in (module, self._imports.get(module, {}).get(name, "")):
            if home in found:
                return home, found[home]
        # A package may pass on a class of one of its modules.
        return next(iter(found.items())) if len(found) == 1 else None

    def reaches_users(self, name: str, module: str) -> bool:
        """Return whether a name means an exception whose text a user can meet."""
        if name == "ToolwireError" or name in _OTHER_ERRORS:
            return True
        if (name, module) not in self._known:
            found = self._find(name, module)
            bases = [] if found is None else [(base, found[0]) for base in _bases(found[1])]
            self._known[name, module] = any(self.reaches_users(*base) for base in bases)
        return self._known[name, module]

    def text_of(self, name: str, module: str, call: ast.Call) -> ast.expr | None:
        """Return the argument with the text; None if the class writes the text itself."""
        at = self._position(name, module)
        if at is None:
            return None
        named = next((each.value for each in call.keywords if each.arg in _TEXT_PARAMETERS), None)
        return call.args[at] if at < len(call.args) else named

    def text_for_base(self, name: str, module: str, call: ast.Call) -> ast.expr | None:
        """Return the text that a class passes to `super().__init__`."""
        found = self._find(name, module)
        bases = [] if found is None else _bases(found[1])
        return self.text_of(bases[0], found[0], call) if found is not None and bases else None

    def _position(self, name: str, module: str) -> int | None:
        found = self._find(name, module)
        if found is None:
            return 0
        home, node = found
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                parameters = [each.arg for each in member.args.args[1:]]
                return next((at for at, each in enumerate(parameters) if each in _TEXT_PARAMETERS), None)
        bases = _bases(node)
        return self._position(bases[0], home) if bases else 0


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a module, also those inside others; they are far fewer than its nodes."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(tree, name, ()):
            yield node
            yield from _statements(node)


def _bases(node: ast.ClassDef) -> list[str]:
    """Name the base classes, without one of the same name from another library."""
    names = [ast.unparse(base).split(".")[-1] for base in node.bases]
    return [name for name in names if name != node.name]


class Module:
    """A module of the package, and the functions around each of its expressions."""

    def __init__(self, name: str, tree: ast.Module, exceptions: Exceptions) -> None:
        self._name = name
        self._area = _AREAS.get([*name.split("."), ""][1], _OTHER_AREA)
        self._exceptions = exceptions
        self._tree = tree
        self._functions = {
            node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }

    def messages(self) -> Iterator[Message]:
        waiting: list[tuple[ast.AST, Function | None, str | None]] = [(self._tree, None, None)]
        while waiting:
            node, function, owner = waiting.pop()
            if isinstance(node, ast.Call):
                for kind, argument in self._sites(node, owner):
                    for text in self._texts(argument, function):
                        if re.search(r"[A-Za-z]{2}", re.sub(r"\{\w*\}", "", text)):
                            yield Message(self._area, kind, " ".join(text.split()), self._name)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                function = node
            elif isinstance(node, ast.ClassDef):
                owner = node.name
            inside = [each for each in ast.iter_child_nodes(node) if not isinstance(each, _WITHOUT_CALLS)]
            waiting += [(each, function, owner) for each in reversed(inside)]

    def _sites(self, call: ast.Call, owner: str | None) -> Iterator[tuple[str, ast.expr]]:
        """Yield the kind and the text of a call that makes an exception or writes to a log."""
        function = call.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        value = function.value if isinstance(function, ast.Attribute) else None
        if name == _HTTP_REFUSAL and len(call.args) > 1:
            yield "HTTP", call.args[1]
        elif self._exceptions.reaches_users(name, self._name):
            if (argument := self._exceptions.text_of(name, self._name, call)) is not None:
                yield name, argument
        elif owner is not None and name == "__init__" and ast.unparse(function) == "super().__init__":
            if self._exceptions.reaches_users(owner, self._name):
                argument = self._exceptions.text_for_base(owner, self._name, call)
                if argument is not None:
                    yield owner, argument
        elif isinstance(value, ast.Name) and value.id in _LOGGERS and name in _LEVELS and call.args:
            level = "error" if name == "exception" else name
            yield f"log {level}", _with_arguments(call)
        elif isinstance(value, ast.Name) and (value.id, name) == ("warnings", "warn"):
            kind = ast.unparse(call.args[1]) if len(call.args) > 1 else "UserWarning"
            yield kind, call.args[0]

    def _texts(self, node: ast.expr, function: Function | None, depth: int = 0) -> list[str]:
        """Return the texts that an expression can have, with `{name}` for the parts that differ."""
        match node:
            case ast.Constant(value=str(text)):
                return [text.replace("{", "(").replace("}", ")") if depth else text]
            case ast.JoinedStr(values=parts):
                return ["".join(_part(part) for part in parts)]
            case ast.IfExp(body=first, orelse=second):
                return self._texts(first, function, depth) + self._texts(second, function, depth)
            case ast.BinOp(op=ast.Add(), left=left, right=right):
                sides = (self._texts(side, function, depth) or [_placeholder(side)] for side in (left, right))
                return [first + second for first, second in product(*sides)]
            case ast.Name(id=name) if function is not None and depth < 2:
                return [text for value in _assigned(function, name) for text in self._texts(value, function, depth + 1)]
            case ast.Call(func=ast.Name(id=name)) if name in self._functions and depth < 2:
                called = self._functions[name]
                return [text for value in _returned(called) for text in self._texts(value, called, depth + 1)]
            case _:
                return []


def _part(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    return _placeholder(part.value if isinstance(part, ast.FormattedValue) else part)


def _placeholder(node: ast.expr) -> str:
    """Name the part of a text that differs, after the variable or the function that it comes from."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return f"{{{name.strip('_')}}}"
        case ast.Call(func=ast.Name(id="counted"), args=[_, ast.Constant(value=str(noun))]):
            return f"{{{noun}s}}"
        case ast.Call(func=ast.Name(id="repr" | "str" | "len" | "sorted"), args=[inner]):
            return _placeholder(inner)
        case ast.Call(func=ast.Attribute(attr="join"), args=[ast.Name() | ast.Attribute() as inner]):
            return _placeholder(inner)
        case ast.Subscript(value=inner):
            return _placeholder(inner)
        case _:
            return "{}"


def _with_arguments(call: ast.Call) -> ast.expr:
    """Turn `log.warning("%s failed", name)` into the f-string that it writes."""
    template = call.args[0]
    if not (isinstance(template, ast.Constant) and isinstance(template.value, str)):
        return template
    pieces = re.split(r"%[-+ #0-9.]*[a-z]", template.value)
    values: list[ast.expr] = [ast.Constant(pieces[0])]
    for piece, argument in zip(pieces[1:], [*call.args[1:], *[ast.Constant(None)] * len(pieces)], strict=False):
        values += [ast.FormattedValue(argument, -1), ast.Constant(piece)]
    return ast.JoinedStr(values)


def _assigned(function: Function, name: str) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and any(
            isinstance(each, ast.Name) and each.id == name for each in node.targets
        ):
            yield node.value


def _returned(function: Function) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            yield node.value


class Source(NamedTuple):
    """What the page needs of the source. Its syntax trees are not kept: they are a million objects."""

    messages: list[Message]
    literals: set[str]
    """Every string, with `{}` for the parts that differ: also those in no exception."""


@cache
def _source() -> Source:
    # The templates of new projects lie in folders that are not packages.
    paths = [path for path in sorted(SOURCE.rglob("*.py")) if (path.parent / "__init__.py").is_file()]
    # Otherwise the collector looks through all nodes again and again.
    gc.disable()
    try:
        trees = {_module(path): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
        return Source(_messages(trees), _literals(trees))
    finally:
        gc.enable()


def collect() -> list[Message]:
    """Return every text of the source once, in the order of the page."""
    return _source().messages


def _messages(trees: Mapping[str, ast.Module]) -> list[Message]:
    exceptions = Exceptions(trees)
    found: dict[tuple[str, str], Message] = {}
    for name, tree in trees.items():
        for message in Module(name, tree, exceptions).messages():
            found.setdefault(message.key, message)
    areas = list(dict.fromkeys([*_AREAS.values(), _OTHER_AREA]))

    def place(message: Message) -> tuple[int, bool, str, str]:
        return areas.index(message.area), _is_log(message.kind), message.text.lower(), message.kind

    return sorted(found.values(), key=place)


def _literals(trees: Mapping[str, ast.Module]) -> set[str]:
    found: set[str] = set()
    for node in (node for tree in trees.values() for node in ast.walk(tree)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value.strip())
        elif isinstance(node, ast.JoinedStr):
            found.add(unnamed("".join(_part(part) for part in node.values)).strip())
    return found


def _module(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_log(kind: str) -> bool:
    return kind.startswith("log ")


# --- the guide -------------------------------------------------------------------------------------------------------


def guide_texts(guide: str) -> dict[str, str]:
    """Return the texts of the guide, and the anchor of the part that each stands in."""
    found, anchor = {}, ""
    for line in guide.splitlines():
        if line.startswith("## "):
            anchor = re.sub(r"\W+", "-", line[3:].strip().lower())
        elif (cell := re.match(r"\| (`+)(.+?)\1 \|", line)) is not None:
            found[cell[2].strip()] = anchor
    return found


def untrue(texts: Iterable[str], messages: Iterable[Message]) -> list[str]:
    """Return the texts that are not in the source. `…` at an end of a text stands for text before or after it."""
    known = {unnamed(message.text) for message in messages} | _source().literals
    return [text for text in texts if unnamed(text.strip("… ")) not in known]


# --- the page --------------------------------------------------------------------------------------------------------

_INTRODUCTION: Final = f"""# Errors and log lines

This page has every error and every line of the log, and the module that it comes from. Search for words of the text.
`{{name}}` stands for a part that differs. [Errors that people meet]({GUIDE}) has causes and remedies,
[troubleshooting](guides/troubleshooting.md) starts from symptoms, and [the reference](reference/errors.md) from the
exceptions. All loggers are below the logger `toolwire` ([logs](reference/wire.md#logs)).
"""


def write_page(messages: Iterable[Message], explained: Mapping[str, str]) -> str:
    """Write the page. `explained`: the texts of the guide, and the anchor of each."""
    anchors = {unnamed(text): anchor for text, anchor in explained.items()}
    tables: dict[str, dict[bool, list[Message]]] = defaultdict(lambda: defaultdict(list))
    for message in messages:
        tables[message.area][_is_log(message.kind)].append(message)
    page = [_INTRODUCTION]
    for area, kinds in tables.items():
        page.append(f"## {area}\n")
        for is_log, rows in sorted(kinds.items()):
            page.append("| log line | level | from |" if is_log else "| text | error | from |")
            page.append("|---|---|---|")
            for row in rows:
                anchor = anchors.get(unnamed(row.text))
                more = "" if anchor is None else f", [cause and remedy]({GUIDE}#{anchor})"
                cells = (_code(row.text), f"`{row.kind}`", f"`{row.module}`{more}")
                page.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
            page.append("")
    return "\n".join(page)


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def made_page() -> str:
    """Return the page of all errors, made from the source and the guide."""
    guide = (ROOT / "docs" / GUIDE).read_text(encoding="utf-8")
    return write_page(collect(), guide_texts(guide))


def on_files(files: Any, config: Any) -> Any:
    """Add the page to the documentation; mkdocs calls this."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=made_page()))
    return files


if __name__ == "__main__":
    sys.stdout.write(made_page())
