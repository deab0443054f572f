"""Run a server file as the main program, over the transport of the command."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from toolwire import platforms
from toolwire.cli import server_file
from toolwire.cli.errors import UsageError
from toolwire.cli.server_source import ServerSource
from toolwire.wire.server_files import hosted

#: How often an orphan is looked for, and how long it may take to end.
_POLL_SECONDS: Final = 1.0
_GRACE_SECONDS: Final = 5.0


def run_main(source: ServerSource, host: server_file.HostingCommand) -> None:
    """Run the file as the main program.

    If it ends without having run a server, serve the server that it defines.
    """
    main = _make_main(source)
    sys.argv = [str(source.path)]
    end_watch = _end_with_parent()
    try:
        with hosted(host):
            loader = SourceFileLoader("__main__", str(source.path))
            exec(loader.get_code("__main__"), vars(main))  # type: ignore[arg-type]
            if not host.served and (server := _find_defined(main, source)) is not None:
                host.run(server, "stdio", {})
    except UsageError:
        raise
    except Exception as error:
        raise server_file.failure_of(error, source) from error
    finally:
        end_watch()


def _make_main(source: ServerSource) -> ModuleType:
    """Make the module of the main program, in its package, as `python -m` does."""
    folder = str(source.path.parent)
    # `python -m toolwire` has put the working directory first; `python FILE` would have put the file's folder there.
    if not sys.flags.safe_path and sys.path and Path(sys.path[0] or ".").resolve() == Path.cwd():
        del sys.path[0]
    if source.module is None:
        main = ModuleType("__main__")
        sys.path.insert(0, folder)
    else:
        spec = spec_from_file_location(source.module, source.path)
        assert spec is not None
        main = module_from_spec(spec)
        main.__name__ = "__main__"
        sys.path.insert(0, str(source.root))
        # Neighbours can be imported without the name of their package too. The folder comes last, so it hides nothing.
        sys.path.append(folder)
    main.__file__ = str(source.path)
    sys.modules["__main__"] = main
    return main


def _find_defined(main: ModuleType, source: ServerSource) -> Any | None:
    """Return the server that the file defines; None for a file of another library."""
    if "toolwire.server.transports" not in sys.modules:
        return None
    from toolwire.server.transports import Serving

    if not any(isinstance(value, Serving) for value in vars(main).values()):
        return None
    return server_file.find_server(vars(main), source)


def _end_with_parent() -> Callable[[], None]:
    """End this process when its parent dies.

    A server on standard input and output ends with its input. A program of another library that listens on a port
    would stay for ever. Return a function that ends the watch.
    """
    pid = platforms.parent()
    ended = threading.Event()
    if pid is None or sys.stdin is None or sys.stdin.isatty():
        return ended.set

    def watch() -> None:
        while not ended.wait(_POLL_SECONDS):
            if platforms.parent() != pid:
                os.kill(os.getpid(), signal.SIGTERM)
                if not ended.wait(_GRACE_SECONDS):
                    os._exit(1)

    threading.Thread(target=watch, name="parent watch", daemon=True).start()
    return ended.set
