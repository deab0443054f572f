"""Lint rule on replay: calls that run again with the answer to a question (2026-07-28).

The rule reads the source of a Python server and runs nothing. It follows each function that takes the context through
its branches and loops, in the order of evaluation, and remembers the calls that may have run. A question reports them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

from toolwire.cli.lint_rules import LintFinding
from toolwire.cli.lint_source import Function, contexts_of, dotted_name, modules
from toolwire.cli.server_source import ServerSource
from toolwire.openapi.definition.annotations import CHANGING_VERBS

RULE: Final = "replayed-call"
#: Methods of the context that may end the handler, which then runs again from the top.
ASKS: Final = frozenset({"elicit", "elicit_url", "sample", "list_roots", "credential"})
# Calls of these names change nothing that a second run could see, or are meant to be repeated.
_PURE: Final = re.compile(
    r"abs|all|any|bool|bytes|callable|chr|dict|dir|divmod|enumerate|filter|float|format|frozenset|"
    r"getattr|hasattr|hash|id|int|isinstance|issubclass|iter|len|list|map|max|min|next|object|ord|"
    r"partial|pow|print|range|repr|reversed|round|set|slice|sorted|str|sum|super|tuple|type|vars|"
    r"zip|assistant|astimezone|casefold|copy|count|debug|decode|deepcopy|defaultdict|deque|dumps|"
    r"encode|endswith|error|exception|exists|fromisoformat|fullmatch|gather|glob|groupby|index|info|"
    r"is_dir|is_file|isoformat|items|iterdir|join|keys|loads|log|lower|lstrip|match|monotonic|now|"
    r"nullcontext|partition|perf_counter|removeprefix|removesuffix|replace|resolve|rglob|rpartition|"
    r"rsplit|rstrip|sleep|split|splitlines|startswith|strftime|strip|strptime|suppress|time|timeout|"
    r"title|today|upper|user|utcnow|values|wait|wait_for|warn|warning"
)
_PURE_MODULES: Final = re.compile(r"datetime|functools|itertools|json|log|logger|logging|math|os\.path|re|textwrap")
# Methods that change a container, which matters only where the container outlives the call.
_CHANGES_CONTAINER: Final = re.compile(
    r"add|append|appendleft|clear|discard|extend|insert|pop|popleft|remove|reverse|setdefault|sort|"
    r"update"
)
_CONTAINERS: Final = frozenset({"Counter", "OrderedDict", "defaultdict", "deque", "dict", "list", "set", "sorted"})
# Calls whose first argument is the function that runs, or the work that is started.
_RUNNERS: Final = frozenset({"create_task", "ensure_future", "run_in_executor", "run_sync", "to_thread"})
_READING: Final = re.compile(
    r"(?:as|build|calculate|can|check|compute|count|describe|estimate|fetch|find|format|from|get|has|is|list|load|look|"
    r"lookup|make|normalize|parse|price|quote|read|render|require|resolve|search|select|show|summarize|to|validate|verify)"
)
_FIRST_WORD: Final = re.compile(r"_*([A-Z]?[a-z]+|[A-Z]+)")
# More verbs than those of tools: the names of functions are shorter.
_CHANGING: Final = re.compile(
    r"append|book|charge|commit|deploy|insert|mail|notify|order|post|put|save|store|upload|write"
)


class _Made(NamedTuple):
    """A call that may have run, in the words of the source."""

    name: str
    line: int


#: The calls that may have run when a statement begins; None where no path leads there.
_Ran: TypeAlias = frozenset[_Made] | None


def check(source: ServerSource) -> Iterator[LintFinding]:
    """Check the file of a server, and the modules beside it that it imports."""
    for path, tree in modules(source):
        yield from check_module(tree, path.name)


def check_module(tree: ast.Module, file: str) -> Iterator[LintFinding]:
    """Check all functions of a module that take the context."""
    functions = [each for each in ast.walk(tree) if isinstance(each, Function)]
    asking = _asking_functions(functions)
    for function in functions:
        contexts = contexts_of(function)
        if contexts and not _is_never_replayed(function):
            walk = _Walk(contexts, asking, frozenset(_own_containers(function)))
            walk.statements(function.body, frozenset())
            for made, ask in sorted(walk.found.items(), key=lambda item: item[0].line):
                yield _finding(function.name, file, made, ask)


def _finding(function: str, file: str, made: _Made, ask: _Made) -> LintFinding:
    message = (
        f"{made.name}() in {file}, line {made.line}, runs again with the answer to {ask.name}() in line {ask.line} "
        "on 2026-07-28: call it after the question, or in ctx.step"
    )
    return LintFinding("warning" if _changes(made.name) else "hint", RULE, function, "", message)


def _changes(name: str) -> bool:
    word = _first_word(name)
    return CHANGING_VERBS.fullmatch(word) is not None or _CHANGING.fullmatch(word) is not None


def _first_word(name: str) -> str:
    found = _FIRST_WORD.match(name.rpartition(".")[2])
    return "" if found is None else found[1].lower()


# --- the source -------------------------------------------------------------------------------------------------------


def _own_containers(function: Function) -> Iterator[str]:
    """Yield the variables of a function that get a new list, dict or set."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        made = node.value
        is_new = isinstance(made, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp) or (
            isinstance(made, ast.Call) and dotted_name(made.func).rpartition(".")[2] in _CONTAINERS
        )
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if is_new and isinstance(target, ast.Name):
                yield target.id


def _is_never_replayed(function: Function) -> bool:
    """Return whether a decorator says that the handler never runs twice for a request."""
    options = {
        keyword.arg: keyword.value.value
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call)
        for keyword in decorator.keywords
        if isinstance(keyword.value, ast.Constant)
    }
    return options.get("replay") is False or (options.get("task") == "required" and not options.get("detaches"))


def _asking_functions(functions: Iterable[Function]) -> frozenset[str]:
    """Return the names of functions that ask, directly or through another function."""
    by_name = {each.name: each for each in functions if contexts_of(each)}
    asking: set[str] = set()
    size = -1
    while size != len(asking):
        size = len(asking)
        for name, function in by_name.items():
            calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
            if any(_is_ask(call, contexts_of(function), asking) for call in calls):
                asking.add(name)
    return frozenset(asking)


def _is_ask(call: ast.Call, contexts: Iterable[str], asking: Iterable[str]) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name(id=holder), attr=method) if holder in contexts:
            return method in ASKS
    passed = [*call.args, *(keyword.value for keyword in call.keywords)]
    has_context = any(isinstance(each, ast.Name) and each.id in contexts for each in passed)
    return has_context and dotted_name(call.func).rpartition(".")[2] in asking


# --- the order of evaluation ------------------------------------------------------------------------------------------


class _Walk:
    """Follows one function and collects the calls that a question repeats.

    `found` has each call with the first question that repeats it.
    """

    def __init__(self, contexts: frozenset[str], asking: frozenset[str], containers: frozenset[str]) -> None:
        self.found: dict[_Made, _Made] = {}
        self._contexts = contexts
        self._asking = asking
        self._containers = containers
        # The calls that may have run where a loop is left.
        self._left: list[set[_Made]] = []

    def statements(self, body: Sequence[ast.stmt], ran: _Ran) -> _Ran:
        """Follow statements. Return the calls that may have run; None for an unreachable end."""
        for statement in body:
            if ran is None:
                return None
            ran = self._statement(statement, ran)
        return ran

    def _statement(self, node: ast.stmt, ran: frozenset[_Made]) -> _Ran:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return ran  # Its body runs when it is called.
            case ast.Return():
                self._expressions(node, ran)
                return None
            case ast.Raise():
                return None
            case ast.Break() | ast.Continue():
                if self._left:
                    self._left[-1] |= ran
                return None
            case ast.If():
                ran = self._expressions(node.test, ran)
                return _either(self.statements(node.body, ran), self.statements(node.orelse, ran))
            case ast.For() | ast.AsyncFor():
                return self._loop(node, self._expressions(node.iter, ran))
            case ast.While():
                return self._loop(node, ran)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    ran = self._expressions(item.context_expr, ran)
                return self.statements(node.body, ran)
            case ast.Try() | ast.TryStar():
                return self._try(node, ran)
            case ast.Match():
                ran = self._expressions(node.subject, ran)
                ends: _Ran = ran
                for case in node.cases:
                    ends = _either(ends, self.statements(case.body, ran))
                return ends
        return self._expressions(node, ran)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While, ran: frozenset[_Made]) -> _Ran:
        start = ran
        # The second time shows what a question of a later turn repeats.
        for _ in range(2):
            self._left.append(set())
            if isinstance(node, ast.While):
                start = self._expressions(node.test, start)
            end = self.statements(node.body, start)
            start = start | (end or frozenset()) | self._left.pop()
        return self.statements(node.orelse, start) if node.orelse else start

    def _try(self, node: ast.Try | ast.TryStar, ran: frozenset[_Made]) -> _Ran:
        ends = self.statements(node.body, ran)
        # A handler runs after any part of the body. What no path leads to its end has run is not known.
        before = ran if ends is None else ends
        if ends is not None:
            ends = self.statements(node.orelse, ends)
        for handler in node.handlers:
            ends = _either(ends, self.statements(handler.body, before))
        last = self.statements(node.finalbody, before if ends is None else ends)
        return None if ends is None else last

    def _expressions(self, node: ast.AST, ran: frozenset[_Made]) -> frozenset[_Made]:
        """Follow an expression, or a statement without a body, in the order of its evaluation."""
        if isinstance(node, ast.Lambda):
            return ran
        if isinstance(node, ast.Call) and self._is_started(node):
            # The work is named by the first argument: `asyncio.to_thread(send, mail)`.
            ran = self._children(node, ran)
            first = dotted_name(node.args[0])
            return ran if self._is_harmless(first) else ran | {_Made(first, node.lineno)}
        ran = self._children(node, ran)
        if not isinstance(node, ast.Call):
            return ran
        name = dotted_name(node.func)
        if _is_ask(node, self._contexts, self._asking):
            for made in ran:
                self.found.setdefault(made, _Made(name, node.lineno))
            return ran
        return ran if self._is_harmless(name) else ran | {_Made(name, node.lineno)}

    def _children(self, node: ast.AST, ran: frozenset[_Made]) -> frozenset[_Made]:
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) and node.value is not None:
            return self._expressions(node.value, ran)
        for child in ast.iter_child_nodes(node):
            ran = self._expressions(child, ran)
        return ran

    @staticmethod
    def _is_started(call: ast.Call) -> bool:
        return (
            bool(call.args)
            and dotted_name(call.func).rpartition(".")[2] in _RUNNERS
            and bool(dotted_name(call.args[0]))
        )

    def _is_harmless(self, name: str) -> bool:
        """Return whether a call may run twice without harm, judging by its name."""
        holder, _, last = name.rpartition(".")
        return (
            not name
            or name.partition(".")[0] in self._contexts
            or _PURE.fullmatch(last) is not None
            or last in _RUNNERS
            or (holder in self._containers and _CHANGES_CONTAINER.fullmatch(last) is not None)
            or _PURE_MODULES.fullmatch(holder) is not None
            or holder.rpartition(".")[2] in ("log", "logger")
            # A class: making an object changes nothing.
            or last.lstrip("_")[:1].isupper()
            or (not _changes(name) and _READING.fullmatch(_first_word(name)) is not None)
        )


def _either(one: _Ran, other: _Ran) -> _Ran:
    if one is None or other is None:
        return other if one is None else one
    return one | other
