"""The `WWW-Authenticate` header (RFC 9110 section 11.6.1): several challenges, quoted strings, one header or many."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from toolwire.auth.flow.scopes import parse_scopes

#: A longer header is read up to here; no honest server needs a tenth of it.
MAX_LENGTH: Final = 16_384

_TOKEN: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_END: Final = r"(?=[ \t]*(?:[,\n]|$))"
_PARAMETER: Final = re.compile(rf'({_TOKEN})[ \t]*=[ \t]*(?:({_TOKEN})|"((?:[^"\\]|\\.)*)"){_END}', re.DOTALL)
_SCHEME: Final = re.compile(rf"({_TOKEN})(?:[ \t]+|{_END})")
_TOKEN68: Final = re.compile(rf"[A-Za-z0-9._~+/-]+=*{_END}")
_GAP: Final = re.compile(r"[ \t,\r\n]*")
_BROKEN: Final = re.compile(r"[^,\n]*")


class Challenge(Struct, frozen=True):
    """One challenge: its scheme and the names of its parameters in lower case."""

    scheme: str
    parameters: dict[str, str]

    @property
    def resource_metadata(self) -> str | None:
        """Return the URL of the protected-resource metadata (RFC 9728 section 5.1)."""
        return self.parameters.get("resource_metadata")

    @property
    def scopes(self) -> tuple[str, ...] | None:
        """The scopes that the request needs; None where the server does not say."""
        scope = self.parameters.get("scope")
        return None if scope is None else parse_scopes(scope)

    @property
    def error(self) -> str | None:
        return self.parameters.get("error")


def parse_challenges(header: str) -> list[Challenge]:
    """Parse the challenges of a header, and skip unreadable parts.

    Several headers are joined by commas or line breaks.
    """
    header = header[:MAX_LENGTH]
    found: list[Challenge] = []
    at = _gap(header, 0)
    while at < len(header):
        parameter = _PARAMETER.match(header, at) if found else None
        scheme = None if parameter else _SCHEME.match(header, at)
        if parameter:
            name, bare, text = parameter.groups()
            # RFC 9110 section 11.2: a parameter occurs once; a second one does not overrule the first.
            found[-1].parameters.setdefault(name.lower(), bare if text is None else re.sub(r"\\(.)", r"\1", text))
            at = parameter.end()
        elif scheme:
            found.append(Challenge(scheme[1].lower(), {}))
            at = scheme.end()
            if not _PARAMETER.match(header, at) and (token68 := _TOKEN68.match(header, at)):
                at = token68.end()
        else:
            broken = _BROKEN.match(header, at)
            at = max(at + 1, broken.end() if broken else 0)
        at = _gap(header, at)
    return found


def oauth_challenge(challenges: Sequence[Challenge]) -> Challenge | None:
    """Return the OAuth challenge, preferably one with metadata; None if there is none."""
    ours = [each for each in challenges if each.scheme in ("bearer", "dpop")]
    return next((each for each in ours if each.resource_metadata), ours[0] if ours else None)


def _gap(header: str, at: int) -> int:
    gap = _GAP.match(header, at)
    return gap.end() if gap else at
