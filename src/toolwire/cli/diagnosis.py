"""What a check of `toolwire doctor` found, and what to do about it."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

#: `skipped` says why a check could not be made.
Verdict: TypeAlias = Literal["good", "warning", "bad", "skipped"]


class Diagnosis(Struct, frozen=True):
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
