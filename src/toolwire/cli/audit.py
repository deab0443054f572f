"""`toolwire audit verify FILE...`: check that an audit log was not changed."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from toolwire.audit.chain import MAX_LINE, Anchor, ChainVerifier, audit_key
from toolwire.audit.log import KEY_VARIABLE
from toolwire.cli import screen
from toolwire.cli.errors import UsageError
from toolwire.protocol.errors import BAD_JSON, counted

_MAX_SHOWN: Final = 100


def add_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    verify = actions.add_parser("verify", help="find lines that were changed, removed, moved or cut off")
    verify.add_argument(
        "files", metavar="FILE", nargs="+", help="the log; several files in the order in which they were written"
    )
    verify.add_argument(
        "--key-file", metavar="FILE", help=f"a file with the key (default: the variable {KEY_VARIABLE})"
    )
    verify.add_argument("--anchors", metavar="FILE", help="a file with the anchors of the log")
    verify.add_argument("--open", action="store_true", help="the log is still being written: it may have no end")


def main(arguments: Namespace) -> int:
    try:
        verifier = ChainVerifier(audit_key(_key(arguments.key_file)), _anchors(arguments.anchors))
        for name in arguments.files:
            for line in _lines(name):
                verifier.read(line)
    except ValueError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from None
    findings = verifier.end(may_be_open=arguments.open)
    out = screen.results("never")
    for finding in findings[:_MAX_SHOWN]:
        out.line(f"line {finding.line} {finding.text}" if finding.line else finding.text)
    if len(findings) > _MAX_SHOWN:
        out.line(f"... and {len(findings) - _MAX_SHOWN} more")
    size = f"{counted(verifier.lines, 'line')} in {counted(verifier.chains, 'chain')}"
    found = counted(len(findings), "finding") if findings else "as they were written"
    screen.note(f"toolwire: {size}: {found}")
    return 1 if findings else 0


def _key(path: str | None) -> str | bytes:
    # There is no option for the key itself, because everybody on the machine sees the arguments of a process.
    if path is not None:
        return Path(path).read_bytes().strip()
    key = os.environ.get(KEY_VARIABLE)
    if not key:
        raise UsageError(f"give the key of the log with --key-file or in the variable {KEY_VARIABLE}")
    return key


def _anchors(name: str | None) -> list[Anchor]:
    if name is None:
        return []
    try:
        anchors = [msgspec.json.decode(line, type=_AnchorLine).anchor() for line in _lines(name)]
    except BAD_JSON:
        raise UsageError(
            f"{name} has lines that are not anchors: give the file that anchor= of the audit log wrote"
        ) from None
    if not anchors:
        raise UsageError(f"{name} has no anchors: give the file that anchor= of the audit log wrote")
    return anchors


class _AnchorLine(msgspec.Struct):
    chain: str
    n: int
    mac: str

    def anchor(self) -> Anchor:
        return Anchor(self.chain, self.n, self.mac)


def _lines(name: str) -> Iterator[bytes]:
    with Path(name).open("rb") as file:
        while line := file.readline(MAX_LINE + 2):
            yield line.removesuffix(b"\n")
