"""Reproduce a message as a shell command, or a server as a client's file entry."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from toolwire.protocol import types as t
from toolwire.protocol.http import METHOD, NAME, SESSION, VERSION, encode_value
from toolwire.protocol.revisions import is_modern

MAX_BYTES: Final = 128 * 1024
_HEADER: Final = re.compile("[A-Za-z0-9-]{1,100}")


def as_command(
    message: bytes,
    *,
    revision: str | None,
    url: str | None,
    command: list[str] | None,
    headers: Iterable[str] = (),
) -> str:
    """Write a message as curl, or as a pipe into the server's command.

    Raises `ValueError` without a URL and a command.

    Sessions are not written out, nor are the values of `headers`, which may be secrets: variables stand for them.
    """
    if len(message) > MAX_BYTES:
        raise ValueError(f"The message is over {MAX_BYTES} bytes, too long for a command line")
    members = msgspec.json.decode(message)
    # ASCII only, so that no control character of a name reaches the terminal it is pasted into.
    body = shlex.quote(json.dumps(members, ensure_ascii=True))
    if url is not None:
        own = [f'-H "{name}: ${_variable(name)}"' for name in headers if _HEADER.fullmatch(name)]
        return " \\\n  ".join([f"curl -sS {shlex.quote(url)}", *_headers(members, revision), *own, f"-d {body}"])
    if command:
        return f"printf '%s\\n' {body} | {shlex.join(command)}"
    raise ValueError("The server has no address and no command: it runs inside this program")


def as_entry(
    name: str,
    *,
    url: str | None,
    command: list[str] | None,
    headers: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> str:
    """Write a server as JSON for a client's file (`mcpServers`).

    Raises `ValueError` when no client can reach it.

    Values of headers and of the environment may be secrets: variables stand for them.
    """
    entry: dict[str, Any]
    if url is not None:
        entry = {"type": "http", "url": url}
        sent = {header: _placeholder(header) for header in headers if _HEADER.fullmatch(header)}
        if sent:
            entry["headers"] = sent
    elif command:
        entry = {"command": command[0], "args": [_absolute(word, cwd) for word in command[1:]]}
        if env:
            entry["env"] = {variable: f"${{{variable}}}" for variable in env}
        if cwd is not None:
            entry["cwd"] = cwd
    else:
        raise ValueError("The server has no address and no command: it runs inside this program")
    return json.dumps({"mcpServers": {_entry_name(name): entry}}, indent=2, ensure_ascii=True)


def _absolute(word: str, cwd: str | None) -> str:
    """Make the name of a file absolute.

    The client that reads the entry runs in another folder.
    """
    file = Path(cwd or ".", word)
    return str(file.absolute()) if file.is_file() else word


def _placeholder(header: str) -> str:
    scheme = "Bearer " if header.lower() == "authorization" else ""
    return f"{scheme}${{{_variable(header)}}}"


def _entry_name(name: str) -> str:
    """Make a name that every client takes out of what the server calls itself."""
    return re.sub("[^a-z0-9]+", "-", name.lower()).strip("-")[:50] or "server"


def _variable(header: str) -> str:
    return re.sub("[^A-Z0-9]", "_", header.upper())


def _headers(members: Any, revision: str | None) -> list[str]:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    params = members.get("params") if isinstance(members, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    version = meta.get(t.PROTOCOL_VERSION_KEY) if isinstance(meta, dict) else None
    method = members.get("method") if isinstance(members, dict) else None
    quoted = []
    if isinstance(version, str) or (revision is not None and is_modern(revision)):
        headers[VERSION] = version if isinstance(version, str) else str(revision)
        if isinstance(method, str):
            headers[METHOD] = encode_value(method)
        subject = params.get("name", params.get("uri")) if isinstance(params, dict) else None
        if isinstance(subject, str):
            headers[NAME] = encode_value(subject)
    elif method != "initialize" and revision is not None:
        headers[VERSION] = revision
        quoted.append(f'-H "{SESSION}: $SESSION"')
    return [*(f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items()), *quoted]
