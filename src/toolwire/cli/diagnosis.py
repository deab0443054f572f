"""`Diagnosis`: the outcome of one check of `toolwire doctor`, with advice."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

from toolwire._version import __version__

#: `skipped` says why a check could not be made.
Verdict: TypeAlias = Literal["good", "warning", "bad", "skipped"]

#: The name that the doctor gives to a server.
IDENTITY: Final = {"name": "toolwire-doctor", "version": __version__}
#: Seconds that a call is given to begin, before its client leaves.
HEAD_START: Final = 0.5


class Diagnosis(Struct, frozen=True):
    """The outcome of one check."""

    check: str
    verdict: Verdict
    found: str
    advice: str = ""


def good(check: str, found: str) -> Diagnosis:
    return Diagnosis(check, "good", found)


def warning(check: str, found: str, advice: str) -> Diagnosis:
    return Diagnosis(check, "warning", found, advice)


def bad(check: str, found: str, advice: str) -> Diagnosis:
    return Diagnosis(check, "bad", found, advice)


def skipped(check: str, why: str) -> Diagnosis:
    return Diagnosis(check, "skipped", why)
