"""Lint rule on `await`: methods of the context that an async handler calls without it.

The rule reads the source of a Python server and runs nothing. A call is reported where its coroutine is used as if it
were the result, or is not used. A coroutine that is handed to a function or put into a list may be awaited later.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping
from types import CoroutineType
from typing import Final, TypeAlias

from toolwire.cli.lint_rules import LintFinding
from toolwire.cli.lint_source import contexts_of, dotted_name, modules
from toolwire.cli.server_source import ServerSource
from toolwire.server.context.context import Context

RULE: Final = "missing-await"
#: The methods of the context of an `async def` handler that return a coroutine.
METHODS: Final = frozenset(name for name in dir(Context) if inspect.iscoroutinefunction(getattr(Context, name)))
_ASYNC_CONTEXT: Final = frozenset({"Context"})
# Functions that take a value and never await it.
_PLAIN_FUNCTIONS: Final = frozenset(
    {"abs", "bool", "bytes", "dict", "enumerate", "filter", "float", "format", "frozenset", "int", "isinstance", "iter"}
    | {
        "len",
        "max",
        "min",
        "next",
        "print",
        "repr",
        "reversed",
        "round",
        "set",
        "sorted",
        "str",
        "sum",
        "zip",
        "….format",
        "….join",
    }
)
_OF_COROUTINES: Final = frozenset(dir(CoroutineType))
_Scope: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def check(source: ServerSource) -> Iterator[LintFinding]:
    """Check the file of a server, and the modules beside it that it imports."""
    for path, tree in modules(source):
        yield from check_module(tree, path.name)


def check_module(tree: ast.Module, file: str) -> Iterator[LintFinding]:
    """Check all calls of the context in a module."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    for call in sorted(calls, key=lambda each: (each.lineno, each.col_offset)):
        handler = _handler_of(call, parents)
        if handler is not None and _is_never_awaited(call, parents):
            name = dotted_name(call.func)
            message = (
                f"{name}() in {file}, line {call.lineno}, is called without await, so that it does nothing and its "
                f"result is a coroutine: write `await {name}(...)`"
            )
            yield LintFinding("warning", RULE, handler.name, "", message)


def _handler_of(call: ast.Call, parents: Mapping[ast.AST, ast.AST]) -> ast.AsyncFunctionDef | None:
    """Return the async function whose context this call uses without `await`."""
    match call.func:
        case ast.Attribute(value=ast.Name(id=holder), attr=method) if method in METHODS:
            for scope in _scopes(call, parents):
                if holder in _parameters(scope):
                    is_context = isinstance(scope, ast.AsyncFunctionDef) and holder in contexts_of(
                        scope, _ASYNC_CONTEXT
                    )
                    return scope if is_context and isinstance(scope, ast.AsyncFunctionDef) else None
    return None


def _scopes(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> Iterator[_Scope]:
    """Yield the functions around a node, the innermost first."""
    above: ast.AST | None = node
    while above is not None:
        if isinstance(above, _Scope):
            yield above
        above = parents.get(above)


def _parameters(scope: _Scope) -> Iterator[str]:
    taken = scope.args
    for each in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs, taken.vararg, taken.kwarg):
        if each is not None:
            yield each.arg


def _is_never_awaited(node: ast.expr, parents: Mapping[ast.AST, ast.AST], *, is_stored: bool = False) -> bool:
    """Return whether a value is dropped, or used where a coroutine makes no sense.

    `is_stored`: the expression is a variable that has the value.
    """
    match above := parents[node]:
        case ast.Expr() | ast.FormattedValue() | ast.BinOp() | ast.UnaryOp() | ast.Compare() | ast.Subscript():
            return True
        case ast.Assert() | ast.If() | ast.While() | ast.For() | ast.AsyncFor() | ast.comprehension() | ast.withitem():
            return True
        case ast.Attribute(attr=attribute):
            return attribute not in _OF_COROUTINES
        case ast.Return():
            # A plain function hands the coroutine to its caller, who awaits it.
            return isinstance(next(_scopes(node, parents)), ast.AsyncFunctionDef)
        case ast.IfExp(test=test) if test is node:
            return True
        case ast.IfExp() | ast.BoolOp() | ast.NamedExpr():
            return _is_never_awaited(above, parents, is_stored=is_stored)
        case ast.Call(func=function):
            return function is node or dotted_name(function) in _PLAIN_FUNCTIONS
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if not is_stored:
            uses = _uses(name, next(_scopes(node, parents)))
            return all(_is_never_awaited(use, parents, is_stored=True) for use in uses)
    return False


def _uses(name: str, scope: ast.AST) -> Iterable[ast.Name]:
    """Return where a function reads a variable."""
    names = (each for each in ast.walk(scope) if isinstance(each, ast.Name))
    return [each for each in names if each.id == name and isinstance(each.ctx, ast.Load)]
