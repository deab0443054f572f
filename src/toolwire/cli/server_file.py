"""Load the `Server` object that a Python file defines, or its function makes."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType, ModuleType, TracebackType
from typing import Any, Final, TypeAlias

from toolwire.cli import api_file
from toolwire.cli.errors import UsageError
from toolwire.cli.server_source import ServerSource, parse
from toolwire.extras import MissingExtra
from toolwire.protocol.errors import ServerError
from toolwire.wire.server_files import hosted
from toolwire.wire.stdio import claim

#: The folder of this library.
OURS: Final = str(Path(__file__).resolve().parents[1])
_USUAL_NAMES: Final = ("server", "mcp", "app")

#: Serves a server; the mapping has the options of HTTP that its file chose.
Serve: TypeAlias = Callable[[Any, Mapping[str, Any]], None]


class FileFailed(Exception):
    """The user's file raised while it was imported.

    The text is the traceback, or one line that says what to do.
    """


class HostingCommand:
    """Serves the server whose `run()` a file calls, over the transport of the command."""

    def __init__(self, serve: Serve, *, over_stdio: bool) -> None:
        self._serve = serve
        self._over_stdio = over_stdio
        self.served: bool = False
        """Whether the file has run a server."""

    def server_created(self) -> None:
        # A file of another library writes its messages to standard output, so the output is claimed for ours alone.
        if self._over_stdio:
            claim()

    def run(self, server: Any, transport: str, options: Mapping[str, Any]) -> None:
        """Serve, with the file's own options of HTTP where the command leaves them out."""
        self.served = True
        with hosted(None):
            self._serve(server, options if transport == "http" else {})


class _RunReached(BaseException):
    """The imported file runs a server. Not an `Exception`, which the file may handle."""

    def __init__(self, server: Any) -> None:
        super().__init__("run() was called while the file was loaded")
        self.server = server


class _StopAtRun:
    """Ends the import of a file at `run()`: the loading program serves it."""

    def server_created(self) -> None:
        """Do nothing: the program that loads the file has claimed the output."""

    def run(self, server: Any, transport: str, options: Mapping[str, Any]) -> None:
        raise _RunReached(server)


def load(spec: str, *, anew: bool = True, host: HostingCommand | None = None) -> Any:
    """Load the server that `spec` names.

    Raise `UsageError` if there is none, `FileFailed` if the file is broken.

    With `anew=False`, a module that was imported from the file before is used as it is. A file that calls `run()` while
    it is imported is served by `host`, and then None is returned; without a host its import ends there.
    """
    source = parse(spec)
    if api_file.is_api_file(source.path):
        return _load_api(source)
    try:
        with hosted(_StopAtRun() if host is None or source.name is not None else host):
            module = (None if anew else _imported(source.path)) or _import(source)
            return None if host is not None and host.served else find_server(vars(module), source)
    except UsageError:
        raise
    except _RunReached as reached:
        return reached.server if source.name is None else find_server(_members_at(reached, source), source)
    except Exception as error:
        raise failure_of(error, source) from error


def _members_at(reached: _RunReached, source: ServerSource) -> dict[str, Any]:
    """Return the members of the file's module at the line that runs a server."""
    trace = reached.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == "<module>" and code.co_filename == str(source.path):
            return trace.tb_frame.f_globals
        trace = trace.tb_next
    return {}


def failure_of(error: BaseException, source: ServerSource) -> FileFailed:
    """Return the failure to show to the user: their traceback, or one line."""
    if isinstance(error, MissingExtra):
        # Nothing is wrong with the file, so a traceback would not help.
        return FileFailed(f"toolwire: {source.label}: {error}\n")
    return FileFailed(_format_error(error, source))


def _load_api(source: ServerSource, **options: Any) -> Any:
    try:
        return api_file.make_server(source.path, **options)
    except ServerError as error:
        # Imported here because most servers are Python files.
        from toolwire.cli.openapi_options import translate_advice

        raise FileFailed(f"toolwire: {translate_advice(error)}\n") from error


def load_api(spec: str, **options: Any) -> Any:
    """Load the server of an API description or of a lock file; see `api_file.make_server`."""
    return _load_api(parse(spec), **options)


def _imported(path: Path) -> ModuleType | None:
    file = str(path)
    return next((module for module in tuple(sys.modules.values()) if getattr(module, "__file__", None) == file), None)


def _import(source: ServerSource) -> ModuleType:
    return _import_file(source.path) if source.module is None else _import_module(source, source.module)


def _import_file(path: Path) -> ModuleType:
    # The file finds its neighbours, as with `python FILE`.
    sys.path.insert(0, str(path.parent))
    # The module gets the name of the file if that is free, so that its objects can be pickled for worker processes.
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"toolwire_server_{id(path)}"
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise UsageError(f"{path.name!r} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def _import_module(source: ServerSource, name: str) -> ModuleType:
    if str(source.root) not in sys.path:
        sys.path.insert(0, str(source.root))
    # Neighbours can be imported without the name of their package too. The folder comes last, so it hides nothing.
    sys.path.append(str(source.path.parent))
    sys.modules.pop(name, None)
    module = importlib.import_module(name)
    if Path(module.__file__ or "").resolve() != source.path:
        raise UsageError(f"{source.path} cannot be imported: {name!r} is {module.__file__}")
    return module


def _is_server(value: Any) -> bool:
    kind = type(value)
    return callable(getattr(kind, "serve", None)) and callable(getattr(kind, "run", None))


def find_server(members: dict[str, Any], source: ServerSource) -> Any:
    """Return the only server of a module; raise `UsageError` for none or several."""
    label = repr(source.label)
    if source.name is not None:
        return _named(members, source.name, label)
    for usual in _USUAL_NAMES:
        if _is_server(members.get(usual)):
            return members[usual]
    found = {id(value): key for key, value in members.items() if _is_server(value)}
    if not found:
        if (module := _module_with_server(members)) is not None:
            raise UsageError(f"{label} imports the module {module} and no server from it: name the module instead")
        raise UsageError(f'{label} defines no Server: write server = Server("name") at its top level{_maker(members)}')
    if len(found) > 1:
        names = ", ".join(sorted(found.values()))
        raise UsageError(f"{label} defines several servers ({names}): say which, as {source.label}:NAME")
    return members[next(iter(found.values()))]


def _named(members: dict[str, Any], name: str, label: str) -> Any:
    """Return the server of that name, or the one that a function makes."""
    if name not in members:
        raise UsageError(f"{label} has no {name!r}")
    value, is_a = members[name], "is a"
    if callable(value) and not _is_server(value):
        value, is_a = _call_factory(value, f"{name!r} in {label}"), "made a"
    if not _is_server(value):
        raise UsageError(f"{name!r} in {label} {is_a} {type(value).__name__}, not a Server")
    return value


def _call_factory(factory: Callable[[], Any], what: str) -> Any:
    # Imported here because most files define their server without a function.
    import inspect

    from toolwire.loops import finish

    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise UsageError(f"{what} must be callable without arguments to make the server: {error}") from None
    made = factory()
    return finish(made) if inspect.iscoroutine(made) else made


def _module_with_server(members: dict[str, Any]) -> str | None:
    """Return the name of an imported module that has a server.

    `from shop import server` may import a module called server.
    """
    modules = (value for value in members.values() if isinstance(value, ModuleType))
    return next((each.__name__ for each in modules if any(map(_is_server, vars(each).values()))), None)


def _maker(members: dict[str, Any]) -> str:
    """Write how to name a function of the file that seems to make a server."""
    own = (name for name, value in members.items() if getattr(value, "__module__", None) == members["__name__"])
    found = next((name for name in own if "server" in name.lower() and isinstance(members[name], FunctionType)), None)
    return "" if found is None else f", or name the function that makes it by adding :{found}"


def _format_error(error: BaseException, source: ServerSource) -> str:
    """Format the user's traceback from their file on, without the frames that loaded it."""
    # Imported here because only a failure needs it.
    import traceback

    own = str(source.path)
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != own:
        trace = trace.tb_next
    shown = traceback.TracebackException(type(error), error, trace)
    if isinstance(error, ServerError | TypeError):
        # A component cannot be registered: the line of the user matters, not our frames that noticed it.
        while len(shown.stack) > 1 and shown.stack[-1].filename.startswith(OURS):
            shown.stack.pop()
    text = "".join(shown.format())
    if source.module is None and isinstance(error, ImportError) and "relative import" in str(error):
        text += (
            f"toolwire: {source.label} is not in a package: put an __init__.py beside it, or import without the dot\n"
        )
    return text
