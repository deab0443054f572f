"""Keep docs/errors.md complete: every error and log line of the library, when it appears and what to do.

    .venv/bin/python scripts/errors_page.py            # write the page again
    .venv/bin/python scripts/errors_page.py --check    # say what is missing, and fail if something is

The page is the only place for these explanations. The script reads them from the page, finds all texts in
`src/toolwire` and writes the page again. A text that was reworded keeps its explanation: the script looks for the
most similar text among those that are gone. A new text gets `?` in both columns, and somebody has to replace it.

A text counts when a user can meet it: the text of an exception of the library, of wrong use on the command line, of a
warning, and of a log line. A text that only passes on another one, such as `str(error)`, does not count.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "src" / "toolwire"
PAGE: Final = ROOT / "docs" / "errors.md"
UNEXPLAINED: Final = "?"
# How alike a new text and one that is gone have to be for the explanation to stay.
SIMILAR: Final = 0.6

#: Exceptions that reach a user although they are no subclasses of `ToolwireError`.
_OTHER_ERRORS: Final = ("ArgumentTypeError", "UsageError", "Unreadable")
#: Functions and classes of `http/` whose second argument is the text of an HTTP response that refuses a request.
_HTTP_REFUSALS: Final = ("Refused", "Refusal", "refused")
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


class Message(NamedTuple):
    """A text in the source. `kind` is the name of an exception, `HTTP` for a response, or `log` with the level."""

    area: str
    kind: str
    text: str

    @property
    def key(self) -> tuple[str, str]:
        """Return what makes two texts the same: the names of placeholders and the area do not matter."""
        return self.kind, re.sub(r"\{\w*\}", "{}", self.text)


class Explanation(NamedTuple):
    """The two columns of the page that people write."""

    when: str = UNEXPLAINED
    remedy: str = UNEXPLAINED


# --- the texts of the source -----------------------------------------------------------------------------------------


class Exceptions:
    """The exception classes of the package that reach users, and the position of the text among their arguments."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self._classes: dict[str, dict[str, ast.ClassDef]] = defaultdict(dict)
        self._imports: dict[str, dict[str, str]] = {}
        self._known: dict[tuple[str, str], bool] = {}
        for module, tree in trees.items():
            nodes = list(ast.walk(tree))
            for node in nodes:
                if isinstance(node, ast.ClassDef):
                    self._classes[node.name][module] = node
            froms = [node for node in nodes if isinstance(node, ast.ImportFrom)]
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
        yield from self._in(self._tree, None, None)

    def _in(self, node: ast.AST, function: Function | None, owner: str | None) -> Iterator[Message]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call):
                for kind, argument in self._sites(child, owner):
                    for text in self._texts(argument, function):
                        if re.search(r"[A-Za-z]{2}", re.sub(r"\{\w*\}", "", text)):
                            yield Message(self._area, kind, " ".join(text.split()))
            inner = child if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
            yield from self._in(child, inner, child.name if isinstance(child, ast.ClassDef) else owner)

    def _sites(self, call: ast.Call, owner: str | None) -> Iterator[tuple[str, ast.expr]]:
        """Yield the kind and the text of a call that makes an exception or writes to a log."""
        function = call.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        value = function.value if isinstance(function, ast.Attribute) else None
        if self._area == "HTTP" and name in _HTTP_REFUSALS and len(call.args) > 1:
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


def collect() -> list[Message]:
    """Return every text of the source once, in the order of the page."""
    # The templates of new projects lie in folders that are not packages.
    paths = [path for path in sorted(SOURCE.rglob("*.py")) if (path.parent / "__init__.py").is_file()]
    trees = {_module(path): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    exceptions = Exceptions(trees)
    found: dict[tuple[str, str], Message] = {}
    for name, tree in trees.items():
        for message in Module(name, tree, exceptions).messages():
            found.setdefault(message.key, message)
    areas = list(dict.fromkeys([*_AREAS.values(), _OTHER_AREA]))

    def place(message: Message) -> tuple[int, bool, str, str]:
        return areas.index(message.area), _is_log(message.kind), message.text.lower(), message.kind

    return sorted(found.values(), key=place)


def _module(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _is_log(kind: str) -> bool:
    return kind.startswith("log ")


# --- the page --------------------------------------------------------------------------------------------------------

_INTRODUCTION: Final = """# Errors and log lines

This page has every error and every line of the log: when it appears, and what to do. Search for the words of the text.
`{name}` stands for a part that differs. [Troubleshooting](guides/troubleshooting.md) starts from symptoms, and
[the reference](reference/errors.md) from the exceptions. All loggers are below the logger `toolwire`
([logs](reference/wire.md#logs)).

<!-- `python scripts/errors_page.py` writes the first two columns from the source and keeps the other two. -->
"""


def read_page(page: str) -> dict[tuple[str, str], Explanation]:
    """Read the explanations of a page."""
    found = {}
    for line in page.splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 4 and cells[0].startswith("`"):
            text, kind = cells[0].strip("`").strip(), cells[1].strip("`")
            found[Message("", kind, text).key] = Explanation(cells[2], cells[3])
    return found


def write_page(messages: Iterable[Message], explanations: dict[tuple[str, str], Explanation]) -> str:
    tables: dict[str, dict[bool, list[Message]]] = defaultdict(lambda: defaultdict(list))
    for message in messages:
        tables[message.area][_is_log(message.kind)].append(message)
    page = [_INTRODUCTION]
    for area, kinds in tables.items():
        page.append(f"## {area}\n")
        for is_log, rows in sorted(kinds.items()):
            page.append(
                f"| {'log line' if is_log else 'text'} | {'level' if is_log else 'error'} | when | what to do |"
            )
            page.append("|---|---|---|---|")
            for row in rows:
                known = explanations.get(row.key, Explanation())
                cells = (_code(row.text), f"`{row.kind}`", known.when, known.remedy)
                page.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
            page.append("")
    return "\n".join(page)


def _code(text: str) -> str:
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def carried_over(
    messages: Iterable[Message], known: dict[tuple[str, str], Explanation]
) -> dict[tuple[str, str], Explanation]:
    """Return the explanation of each text; a reworded text has that of the most similar text that is gone."""
    wanted = [message.key for message in messages]
    found = {key: known[key] for key in wanted if key in known}
    gone = {key: known[key] for key in known.keys() - set(wanted)}
    for key in (key for key in wanted if key not in known):
        alike = [(_likeness(key, other), other) for other in gone]
        likeness, other = max(alike, default=(0.0, key))
        if likeness >= SIMILAR:
            found[key] = gone.pop(other)
    return found


def _likeness(one: tuple[str, str], other: tuple[str, str]) -> float:
    """Compare two texts; the same kind of error counts a little."""
    return SequenceMatcher(None, one[1], other[1], autojunk=False).ratio() - (0.0 if one[0] == other[0] else 0.1)


def problems(page: str) -> list[str]:
    """Say what is wrong with a page: texts that it lacks, texts that are gone, texts without an explanation."""
    messages, known = collect(), read_page(page)
    wanted = {message.key for message in messages}
    found = [f"not on the page: {kind}: {text}" for kind, text in sorted(wanted - known.keys())]
    found += [f"not in the source any more: {kind}: {text}" for kind, text in sorted(known.keys() - wanted)]
    found += [f"without an explanation: {kind}: {text}" for (kind, text), each in known.items() if UNEXPLAINED in each]
    if not found and page != write_page(messages, known):
        found.append("the page is not in order")
    return found


def main(words: list[str]) -> int:
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    if "--check" not in words:
        messages = collect()
        page = write_page(messages, carried_over(messages, read_page(page)))
        PAGE.write_text(page, encoding="utf-8")
    found = problems(page)
    for problem in found:
        sys.stderr.write(f"{problem}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
