"""References to credentials, for commands and lock files: environment variables and files.

$NAME             the variable NAME has the secret
@path             the file has the secret; a path in a lock file starts at the folder of that file
$ID:$SECRET       a client of OAuth 2.0 (client credentials): variables with its id and its secret
$ID:@path         the same with the secret in a file
"""

from __future__ import annotations

import logging
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from toolwire.auth.vault.kinds import Kind, ServerOAuth, StaticSecret
from toolwire.base_errors import ServerError
from toolwire.openapi.access.credentials import FileSecret

if TYPE_CHECKING:
    from toolwire.auth.client.grants import Runner
    from toolwire.auth.flow.metadata import Discovered
    from toolwire.auth.flow.scopes import Scopes
    from toolwire.auth.flow.tokens import Prover, TokenResponse

log: logging.Logger = logging.getLogger("toolwire.openapi")

_VARIABLE: Final = r"\$[A-Za-z_][A-Za-z0-9_]*"
_REFERENCE: Final = re.compile(rf"(?:(?P<client>{_VARIABLE}):)?(?P<secret>{_VARIABLE}|@.+)", re.ASCII | re.DOTALL)
FORMS: Final = "$NAME, @FILE, or $CLIENT_ID:$CLIENT_SECRET for OAuth"


def is_reference(text: str) -> bool:
    """Return whether a text names a credential and does not contain one."""
    return _REFERENCE.fullmatch(text) is not None


def variables_in(text: str) -> list[str]:
    """Return the variables of the environment that a reference names."""
    return re.findall(r"\$([A-Za-z_][A-Za-z0-9_]*)", text.partition("@")[0])


def rebased(text: str, folder: Path) -> str:
    """Make the path of a file in a reference relative to `folder`."""
    found = _REFERENCE.fullmatch(text)
    if found is None or not found["secret"].startswith("@") or Path(found["secret"][1:]).is_absolute():
        return text
    # Links are not followed: a platform may point them at another file.
    path = Path(found["secret"][1:]).absolute()
    with suppress(ValueError):  # Another drive of Windows.
        path = Path(os.path.relpath(path, folder.resolve()))
    return f"{text[: found.start('secret')]}@{path.as_posix()}"


def referenced(scheme: str, text: str, folder: Path | None = None) -> Kind:
    """Return the credential that a reference names.

    It is read by calls, so that listing tools needs no secret. A relative path starts at `folder`; without one, at the
    working directory.
    """
    found = _REFERENCE.fullmatch(text)
    if found is None:
        raise ServerError(f"The credential of {scheme!r} is named and not written: {FORMS}")
    for variable in variables_in(text):
        if not os.environ.get(variable):
            log.warning("the environment variable %s, which has the credential of %r, is not set", variable, scheme)
    secret = _Reference(scheme, found["secret"], folder)
    if secret.file is not None and not _is_found(secret.file):
        log.warning("the file %s, which has the credential of %r, is not found", secret.file, scheme)
    if found["client"] is None:
        return StaticSecret(secret)
    return ServerOAuth(grant=ReferencedClient(_Reference(scheme, found["client"]), secret))


def _is_found(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


class _Reference:
    """One secret by its name."""

    def __init__(self, scheme: str, text: str, folder: Path | None = None) -> None:
        self.text: str = text
        self._scheme = scheme
        self.file: Path | None = (folder or Path()) / text[1:] if text.startswith("@") else None
        self._read = None if self.file is None else FileSecret(scheme, self.file)

    def __call__(self) -> str:
        if self._read is not None:
            return self._read()
        found = os.environ.get(self.text[1:])
        if not found:
            raise ServerError(
                f"The credential of {self._scheme!r} is in the environment variable {self.text[1:]}, which is not set"
            )
        return found


class ReferencedClient:
    """A grant whose client id and secret are read whenever a token is needed."""

    hosts: tuple[str, ...] = ()
    issuer: str | None = None

    def __init__(self, client: _Reference, secret: _Reference) -> None:
        self._client = client
        self._secret = secret
        # The name stands for the id, which may not be known yet: it tells accounts apart.
        self.client_id: str = client.text

    async def token(self, found: Discovered, scopes: Scopes, runner: Runner, prover: Prover | None) -> TokenResponse:
        """Get a token (RFC 6749 section 4.4)."""
        from toolwire.auth.client.grants import ClientCredentials

        return await ClientCredentials(self._client(), self._secret()).token(found, scopes, runner, prover)
