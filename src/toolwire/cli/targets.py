"""`TARGET`: a URL, a server file, a command or a configuration entry; and its client."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from toolwire import logs
from toolwire.cli import api_file, client_files, keyboard, options, server_source
from toolwire.cli.errors import FAILED, UNREACHED, UsageError
from toolwire.cli.running import run_command
from toolwire.cli.screen import note, server_note
from toolwire.cli.server_errors import errors_of
from toolwire.cli.start_watch import StartWatch
from toolwire.protocol.errors import ProtocolError, Timeout, ToolwireError, Unauthorized, Unreachable
from toolwire.redaction import repr_without
from toolwire.wire.server_files import TOOLWIRE

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from toolwire.client import Client

HELP: Final = (
    "a URL, a server file (server.py, server.py:OBJECT, server.js) or module (package.module), "
    "the lock file of an API (api.lock.json), "
    "a command in quotes ('npx -y some-server'), or an entry of a configuration "
    "(mcp.json:NAME, claude-desktop:NAME, cursor:NAME; without :NAME all of them)"
)
# The command that serves a Python file or module.
RUN: Final = (*TOOLWIRE, "run")
TOKEN_VARIABLE: Final = "TOOLWIRE_TOKEN"
_ADDRESS: Final = re.compile(r"[A-Za-z0-9][\w.-]*(:\d+(/|$)|\.[A-Za-z]{2,}/)")
FILES: Final = (".py", ".js", ".mjs")


class Place(NamedTuple):
    """A target as a client uses it."""

    target: Any
    env: Mapping[str, str] | None = None
    cwd: str | None = None
    headers: Mapping[str, str] | None = None

    def __repr__(self) -> str:
        return repr_without(self, "target", "env", "headers")


def add_arguments(
    parser: ArgumentParser, timeout: float = 30.0, log_level: str = "critical", also: str | None = None
) -> None:
    """Add `TARGET` and the options of every command that connects to a server.

    `also` names what `TARGET` can be for this command besides a server.
    """
    parser.add_argument("target", metavar="TARGET", help=HELP if also is None else f"{also}, {HELP}")
    parser.add_argument(
        "--revision", help="the revision of the protocol to use (default: the newest that both sides know)"
    )
    parser.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an environment variable for a server that is started; may be repeated",
    )
    parser.add_argument(
        "--inherit-env",
        action="store_true",
        help="give a server that is started the whole environment, not only the variables that every program needs",
    )
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME:VALUE",
        help="an HTTP header for every request to a URL; may be repeated",
    )
    parser.add_argument(
        "--token",
        help=f"a bearer token for a server at a URL (for a typed URL better in the environment, as {TOKEN_VARIABLE})",
    )
    parser.add_argument(
        "--timeout",
        type=options.seconds,
        default=timeout,
        metavar="SECONDS",
        help="how long each request, and each list with all its pages, may take (default: %(default)g)",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="log everything, and show what a started server writes to standard error"
    )
    options.add_log_level(parser, default=log_level)


def add_caller(parser: ArgumentParser) -> None:
    """Add the options that say who calls a server file."""
    options.add_caller(
        parser, "the caller, for a Python server file or module (default: an anonymous one without restrictions)"
    )


def client(arguments: Namespace, on_stderr: Callable[[str], None] | None = None, **settings: Any) -> Client:
    """Return a client of the target that the user named. It is not connected yet.

    `on_stderr` gets each line that a server started for the client writes to its standard error. By default, `run`
    shows the lines that explain an internal error of the server.
    """
    # Imported here because a command that only serves does not need the client.
    from toolwire.client import Client
    from toolwire.client.connection import DEFAULT_SECONDS
    from toolwire.client.targets import CommandTarget, TargetOptions, resolve

    place = chosen(arguments)
    target = place.target
    settings = {
        "revision": arguments.revision,
        # The default of the client, if that is used: then a task may take longer.
        "timeout": UNSET if arguments.timeout == DEFAULT_SECONDS else arguments.timeout,
        "on_stderr": on_stderr or stderr_lines(arguments, place),
        **settings,
    }
    try:
        if is_url(target):
            return Client.remote(target, headers=headers(arguments, place), auth=_sign_in(arguments, place), **settings)
        if place.env is not None or place.cwd is not None or arguments.env or isinstance(target, str | list):
            env = {**(place.env or {}), **pairs(arguments.env)}
            target = resolve(target, TargetOptions(env, place.cwd, inherit_env=arguments.inherit_env or None))
        elif arguments.inherit_env:
            settings["inherit_env"] = True
        if not isinstance(target, CommandTarget):
            return Client(target, **settings)
        watch = StartWatch(target.label, arguments.timeout)
        target.on_start = watch.started
        made = Client(target, **settings)
        watch.until(lambda: made.connected)
        arguments.start_watch = watch
        return made
    except (ValueError, TypeError) as error:
        raise UsageError(str(error)) from None


def stderr_lines(arguments: Namespace, place: Place) -> Callable[[str], None]:
    """Return the function for the lines that a started server writes to its standard error."""
    if arguments.verbose:
        return server_note
    errors = errors_of(arguments)
    return errors.add_named if isinstance(place.target, dict) else errors.add


def chosen(arguments: Namespace) -> Place:
    """Find the target that the user named.

    Raises `UsageError` for an option that does not fit it.
    """
    place = locate(arguments.target)
    if hasattr(arguments, "subject"):
        options.check_caller(arguments)
        if arguments.subject:
            place = _called_by(place, arguments)
    fitting = ("header", "token") if is_url(place.target) else ("env",) if isinstance(place.target, str | list) else ()
    if not is_url(place.target):
        fitting = (*fitting, "inherit_env")
    for option, those in (
        ("header", "at a URL"),
        ("token", "at a URL"),
        ("env", "that is started"),
        ("inherit_env", "that is started"),
    ):
        if getattr(arguments, option) and option not in fitting:
            raise UsageError(f"--{option.replace('_', '-')} is for a server {those}, not for {arguments.target!r}")
    return place


def _called_by(place: Place, arguments: Namespace) -> Place:
    """Return a server file as the command that starts it with `--as`."""
    target = place.target
    words = [*RUN, "--main", target] if isinstance(target, str) and target.endswith(".py") else target
    if not isinstance(words, list) or words[: len(RUN)] != [*RUN]:
        raise UsageError(f"--as is for a Python server file or module, not for {arguments.target!r}")
    return place._replace(
        target=[*words, f"--as={arguments.subject}", *(f"--scope={each}" for each in arguments.scopes)]
    )


def headers(arguments: Namespace, place: Place) -> dict[str, str]:
    """Return the headers for a URL, from the configuration and the user."""
    found = dict(place.headers or {})
    for word in arguments.header:
        name, separator, value = word.partition(":")
        if not separator or not name.strip():
            raise UsageError(f"{word!r} is not a header: write NAME:VALUE")
        found[name.strip()] = value.strip()
    return found


def token(arguments: Namespace, typed: str) -> str | None:
    """Return the bearer token for the target that the user typed.

    The variable is for a typed URL alone: the author of a configuration must not choose where the token is sent.
    """
    given: str | None = arguments.token or (os.environ.get(TOKEN_VARIABLE) if is_url(typed) else None)
    return given


def _sign_in(arguments: Namespace, place: Place) -> Any:
    """Return the given token, or a sign-in in the browser at a terminal."""
    given = token(arguments, arguments.target)
    has_header = any(name.lower() == "authorization" for name in headers(arguments, place))
    if given is not None or has_header or not keyboard.is_there():
        return given
    return browser_sign_in(say_that_it_waits)


def say_that_it_waits(url: str) -> None:
    """Tell the user to sign in, also where no browser opens."""
    note(f"toolwire: waiting for the sign-in in the browser; if none opens: {url}")


def browser_sign_in(announce: Callable[[str], None] | None = None) -> Any:
    """Return a sign-in in the browser, whose tokens are stored.

    `announce` gets the URL to open.
    """
    # Imported here because most servers ask for no token.
    from toolwire.auth import FileStorage, OAuth

    return OAuth(storage=FileStorage(client_files.own_folder() / "tokens"), announce=announce)


def locate(target: str) -> Place:
    """Find the server that `target` names; raise `UsageError` if it names none."""
    if is_url(target):
        # Imported here because most servers are files and commands.
        from toolwire.client.http_target import split_server_url

        try:
            split_server_url(target)
        except ValueError as error:
            raise UsageError(str(error)) from None
        return Place(_lower_scheme(target))
    if target.endswith(FILES) and Path(target).is_file():
        return Place(target)
    words = _words(target)
    if len(words) > 1 and shutil.which(words[0]):
        return Place(words)  # A command such as `python server.py` ends with the name of a file.
    file, _, name = target.rpartition(":")
    if target.endswith(FILES) or file.endswith(".py"):
        server_source.parse(target)
        return Place([*RUN, target])
    if target.endswith(".json") and api_file.is_lock_file(target):
        return Place([*RUN, target])
    entry = _configured(target, file, name)
    if entry is not None:
        return entry
    if words and (len(words) > 1 or shutil.which(words[0])):
        return Place(words)
    if server_source.find_module(target) is not None:
        return Place([*RUN, target])
    if (missing := file if file.endswith(".json") else target).endswith(".json"):
        if Path(missing).exists():
            raise UsageError(f"{missing!r} is not a regular file")
        raise UsageError(f"there is no file {missing!r}")
    if _ADDRESS.match(target):
        raise UsageError(f"{target!r} is not a URL: begin it with http:// or https://")
    raise UsageError(f"{target!r} is not a server: TARGET is {HELP}")


def _words(command: str) -> list[str]:
    try:
        return _windows_words(command) if sys.platform == "win32" else shlex.split(command)
    except ValueError as error:
        raise UsageError(f"{command!r} is not a command: {error}") from None


# The parts of a word of a Windows command line: quotes with the backslashes before them, white space, other text.
_WINDOWS_PART: Final = re.compile(r'(?P<slashes>\\*)(?P<quote>")|(?P<white>\s+)|(?P<text>\\+|[^\s"\\]+)')


def _windows_words(command: str) -> list[str]:
    """Split a command line by the rules of Windows.

    A backslash escapes nothing but a quote.
    """
    words: list[str] = []
    word: str | None = None
    quoted = False
    for part in _WINDOWS_PART.finditer(command):
        if part["quote"]:
            slashes = len(part["slashes"])
            word = (word or "") + "\\" * (slashes // 2)
            if slashes % 2:
                word += '"'
            else:
                quoted = not quoted
        elif part["white"] and not quoted:
            if word is not None:
                words.append(word)
            word = None
        else:
            word = (word or "") + part[0]
    if quoted:
        raise ValueError("No closing quotation")
    return words if word is None else [*words, word]


def is_url(target: Any) -> bool:
    return isinstance(target, str) and target.lower().startswith(("http://", "https://"))


def _lower_scheme(url: str) -> str:
    """Write the scheme of a URL in lower case.

    Its case does not count (RFC 3986, 3.1).
    """
    scheme, colon, rest = url.partition(":")
    return f"{scheme.lower()}{colon}{rest}"


def check_url(url: str) -> None:
    """Raise `UsageError` for a URL that no client can request."""
    # Imported here because it loads the HTTP client.
    from toolwire.client.http_target import HttpTarget

    try:
        HttpTarget(url)
    except ValueError as error:
        raise UsageError(str(error)) from None


def command(place: Place) -> list[str]:
    """Return the command that starts the server of a place that is not a URL."""
    # Imported here because it loads the client.
    from toolwire.client.targets import CommandTarget, resolve

    found = resolve(place.target) if isinstance(place.target, str | list) else None
    if not isinstance(found, CommandTarget):
        raise UsageError("the configuration has several servers: name one, as in mcp.json:NAME")
    return found.command


def _configured(target: str, file: str, name: str) -> Place | None:
    """Find the entry `FILE.json[:NAME]` or `CLIENT[:NAME]`; None if the target has another form."""
    for where, wanted in ((target, None), (file, name)):
        if where in client_files.CLIENTS:
            return _entry(client_files.CLIENTS[where].path(), wanted)
        if where.endswith(".json") and Path(where).is_file():
            return _entry(Path(where), wanted)
    return None


def _entry(path: Path, wanted: str | None) -> Place:
    """Return one server of a configuration, or all if several and none is named."""
    # Imported here because most targets are not in a configuration.
    from toolwire.client.config import ServerEntry, check_keys, expanded

    if not path.exists():
        raise UsageError(f"there is no file {str(path)!r}")
    entries = client_files.entries(path)
    if not entries:
        raise UsageError(f"{path} has no servers")
    if wanted is None and len(entries) > 1:
        return Place({"mcpServers": entries})
    wanted = next(iter(entries)) if wanted is None else wanted
    if wanted not in entries:
        raise UsageError(f"{path} has no server {wanted!r}; it has {', '.join(entries)}")
    try:
        entry = expanded(wanted, msgspec.convert(entries[wanted], ServerEntry))
        check_keys(wanted, entry, entries[wanted])
    except (msgspec.ValidationError, ValueError) as error:
        raise UsageError(f"the entry {wanted!r} of {path} cannot be used: {error}") from None
    if entry.url is not None:
        if not is_url(entry.url):
            raise UsageError(f"the url of the entry {wanted!r} of {path} does not begin with http:// or https://")
        return Place(_lower_scheme(entry.url), headers=entry.headers)
    if entry.command is None:
        raise UsageError(f"the entry {wanted!r} of {path} has neither a command nor a url")
    return Place([entry.command, *entry.args], entry.env, entry.cwd)


def pairs(words: list[str]) -> dict[str, str]:
    """Read the values of several `--env KEY=VALUE`."""
    found = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not separator or not key:
            raise UsageError(f"--env {word!r} is not KEY=VALUE")
        found[key] = value
    return found


def install_logs(arguments: Namespace, default: str = "critical") -> None:
    """Start logging at the level that `--log-level` or `--verbose` asks for."""
    logs.install(arguments.log_level or ("debug" if arguments.verbose else default))


def run(arguments: Namespace, work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run the work of a command that connects to a server.

    A failure becomes one line and an exit status. What a started server wrote about its internal errors comes last.
    """
    install_logs(arguments)
    try:
        return _run(arguments, work)
    finally:
        errors_of(arguments).show()


def _run(arguments: Namespace, work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    try:
        return run_command(work)
    except Unauthorized as error:
        note(f"toolwire: {error.message}")
        further = f", or in the environment variable {TOKEN_VARIABLE}" if is_url(arguments.target) else ""
        note(f"  Give a token with --token{further}.")
        return UNREACHED
    except Timeout as error:
        watch: StartWatch | None = getattr(arguments, "start_watch", None)
        # More time does not help with a server that listens on a port; the error says what does.
        is_listening = watch is not None and watch.advice != ""
        note(f"toolwire: {error}" + ("" if is_listening else "; --timeout SECONDS gives it more time"))
        return UNREACHED
    except Unreachable as error:
        note(f"toolwire: {error}")
        return UNREACHED
    except ProtocolError as error:
        note(f"toolwire: the server answered with an error: {error}")
        errors_of(arguments).note_failure(error)
        return FAILED
    except (ToolwireError, msgspec.MsgspecError) as error:
        note(f"toolwire: {error}")
        return FAILED
