"""Security of an API: schemes, requirements of operations, and signers for them.

OpenAPI 3.2 section 4.30: the requirements of an operation are alternatives, and all schemes of one requirement are
needed together. Which alternative is used is decided when a tool is made: the first one for which the operator gave
credentials. Nothing is decided in a call.
"""

from __future__ import annotations

import base64
import re
import shlex
import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

from msgspec import structs

from toolwire.auth.flow.scopes import Scopes, clean_scopes, union
from toolwire.auth.vault.kinds import WITH_SUBJECT_TOKEN, Passthrough, Provider
from toolwire.auth.vault.vault import Credential
from toolwire.base_errors import ServerError
from toolwire.openapi.access.credentials import (
    AccountOwner,
    CredentialLike,
    CredentialSource,
    Nothing,
    VaultAccount,
    is_authorization,
    missing_scopes,
    source_of,
)
from toolwire.openapi.access.forwarded_headers import add_forwarded
from toolwire.openapi.access.signing import OutgoingRequest, SignedRequest, Signer
from toolwire.openapi.model import (
    ApiDescription,
    DescriptionError,
    Node,
    OAuthFlow,
    OperationObject,
    SecurityRequirement,
    SecuritySchemeObject,
)
from toolwire.printable import printable
from toolwire.protocol.errors import ToolError
from toolwire.server.call import Call
from toolwire.server.forwarded_headers import spell_header
from toolwire.util.json_pointer import escape_token

_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)
# RFC 9110: headers that say how a message is framed, or where it goes. A credential never stands in them.
_NOT_FOR_SECRETS: Final = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade", "te"})
# Schemes of `Authorization` in which each request answers a challenge. A text cannot do that.
_WITH_CHALLENGES: Final = frozenset({"digest", "negotiate", "ntlm", "hoba", "mutual", "scram-sha-1", "scram-sha-256"})
# RFC 6265 section 4.1.1: the octets of the value of a cookie.
_COOKIE: Final = re.compile(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]{0,4096}", re.ASCII)
# Accounts whose credentials are access tokens.
_WITH_TOKENS: Final = (Provider, Passthrough)
_TYPES: Final = ("apiKey", "http", "oauth2", "openIdConnect", "mutualTLS")
_LOCATIONS: Final = ("query", "header", "cookie")
#: How many security schemes a description may have.
MAX_SCHEMES: Final = 200

Put: TypeAlias = Callable[[OutgoingRequest, Credential], None]


# --- reading ---------------------------------------------------------------------------------------------------------


def read_security_schemes(description: ApiDescription) -> dict[str, SecuritySchemeObject]:
    """Return the security schemes of a description by name.

    Raises `DescriptionError` for one that is wrong.
    """
    root = description.root
    components = root.root.get("components")
    found = components.get("securitySchemes") if isinstance(components, dict) else None
    if found is None:
        return {}
    pointer = "/components/securitySchemes"
    if not isinstance(found, dict) or len(found) > MAX_SCHEMES:
        raise DescriptionError(f"{root.place(pointer)}: securitySchemes is an object of at most {MAX_SCHEMES} schemes")
    return {
        name: read_security_scheme(name, description.resolve(Node(value, root, f"{pointer}/{escape_token(name)}")))
        for name, value in found.items()
    }


def read_security_scheme(name: str, node: Node) -> SecuritySchemeObject:
    """Read one security scheme. Raise `DescriptionError` for one that is wrong."""
    value = node.value
    where = node.document.place(node.pointer)
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in _TYPES:
        raise DescriptionError(f"{where}: the type of the security scheme {name!r} is one of {', '.join(_TYPES)}")
    texts = {key: value.get(key) for key in ("in", "name", "scheme", "openIdConnectUrl", "oauth2MetadataUrl")}
    for key, text in texts.items():
        if text is not None and not isinstance(text, str):
            raise DescriptionError(f"{where}: {key!r} of the security scheme {name!r} is a text")
    scheme = SecuritySchemeObject(
        name=name,
        type=kind,
        location=texts["in"] if kind == "apiKey" else None,
        parameter_name=texts["name"] if kind == "apiKey" else None,
        scheme=(texts["scheme"] or "").lower() if kind == "http" else None,
        flows=_flows(value.get("flows"), where) if kind == "oauth2" else {},
        open_id_connect_url=texts["openIdConnectUrl"] if kind == "openIdConnect" else None,
        metadata_url=texts["oauth2MetadataUrl"] if kind == "oauth2" else None,
        description=value["description"] if isinstance(value.get("description"), str) else "",
    )
    if kind == "apiKey" and (scheme.location not in _LOCATIONS or not scheme.parameter_name):
        raise DescriptionError(f"{where}: the API key {name!r} needs a name, and `in` query, header or cookie")
    is_named = scheme.location in ("header", "cookie") or kind == "http"
    sent = scheme.parameter_name if kind == "apiKey" else scheme.scheme
    if is_named and (_HEADER.fullmatch(sent or "") is None or spell_header(sent or "") in _NOT_FOR_SECRETS):
        raise DescriptionError(
            f"{where}: {sent!r:.100} is not a place for the credential of {name!r}. Change it by an overlay"
        )
    return scheme


def _flows(value: Any, where: str) -> dict[str, OAuthFlow]:
    if not isinstance(value, dict):
        raise DescriptionError(f"{where}: an oauth2 scheme has `flows`, an object")
    return {name: _flow(flow) for name, flow in value.items() if isinstance(flow, dict) and not name.startswith("x-")}


def _flow(value: dict[str, Any]) -> OAuthFlow:
    def text(key: str) -> str | None:
        found = value.get(key)
        return found if isinstance(found, str) and found else None

    scopes = value.get("scopes")
    return OAuthFlow(
        authorization_url=text("authorizationUrl"),
        token_url=text("tokenUrl"),
        refresh_url=text("refreshUrl"),
        device_authorization_url=text("deviceAuthorizationUrl"),
        scopes={name: str(text) for name, text in scopes.items()} if isinstance(scopes, dict) else {},
    )


# --- placing ---------------------------------------------------------------------------------------------------------


def _place(scheme: SecuritySchemeObject, source: CredentialSource) -> tuple[str, Put]:
    """Return the place of a credential in requests, and the function that puts it there."""
    is_token = is_authorization(scheme) and isinstance(source, VaultAccount) and isinstance(source.kind, _WITH_TOKENS)
    if scheme.type == "apiKey" and not is_token:
        name = scheme.parameter_name or ""
        if scheme.location == "query":
            return f"query {name}", lambda request, found: _in_query(request, name, found)
        if scheme.location == "cookie":
            return f"cookie {name}", lambda request, found: _in_cookie(request, name, found)
        return f"header {spell_header(name)}", lambda request, found: _in_header(
            request, name.lower(), found.token, found
        )
    if scheme.scheme == "basic":
        return "header authorization", _basic
    if scheme.scheme in _WITH_CHALLENGES:
        raise ServerError(
            f"{scheme.name!r} is the scheme {scheme.scheme}, in which each request answers a challenge: give "
            "http_client= a client that does so, and credentials= NoCredential() for it"
        )
    if scheme.type == "http" and scheme.scheme != "bearer":
        word = scheme.scheme or ""
        return "header authorization", lambda request, found: _in_header(
            request, "authorization", f"{word} {found.token}", found
        )
    return "header authorization", _bearer


def _in_header(request: OutgoingRequest, name: str, value: str, found: Credential) -> None:
    # A line break would begin another header.
    if not value.isascii() or not value.isprintable() or value != value.strip():
        raise _unsendable(found, "a header")
    spelled = spell_header(name)
    for other in [each for each in request.headers if each != name and spell_header(each) == spelled]:
        del request.headers[other]  # A server could read it in place of the credential.
    request.headers[name] = value


def _in_query(request: OutgoingRequest, name: str, found: Credential) -> None:
    url, hash_, fragment = request.url.partition("#")
    joint = "&" if "?" in url else "?"
    request.url = f"{url}{joint}{quote(name, safe='')}={quote(found.token, safe='')}{hash_}{fragment}"


def _in_cookie(request: OutgoingRequest, name: str, found: Credential) -> None:
    if _COOKIE.fullmatch(found.token) is None:
        raise _unsendable(found, "a cookie")
    before = request.headers.get("cookie")
    own = f"{name}={found.token}"
    request.headers["cookie"] = f"{before}; {own}" if before else own


def _basic(request: OutgoingRequest, found: Credential) -> None:
    # RFC 7617 section 2: user-id, a colon, the password, in UTF-8.
    if ":" not in found.token:
        raise ToolError(f"The credential for {found.name!r} is not a user name and password")
    _in_header(request, "authorization", f"Basic {base64.b64encode(found.token.encode()).decode()}", found)


def _bearer(request: OutgoingRequest, found: Credential) -> None:
    bound = found.headers(request.method, request.url) if found.is_bound else None
    for name, value in (bound or {"authorization": f"Bearer {found.token}"}).items():
        _in_header(request, name, value, found)


def _unsendable(found: Credential, place: str) -> ToolError:
    return ToolError(f"The credential for {found.name!r} has characters that {place} cannot carry")


# --- signing ---------------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """One scheme of the requirement that an operation meets."""

    source: CredentialSource
    put: Put
    scopes: Scopes


class _Signed:
    """A request with the credentials of one caller."""

    def __init__(
        self, signer: RequirementSigner, call: Call, plain: OutgoingRequest, found: list[Credential | None], number: int
    ) -> None:
        self._signer = signer
        self._call = call
        self._plain = plain
        self._found = found
        self._number = number
        self.request: OutgoingRequest = signer.filled(call, plain, found)

    def repeated(self) -> SignedRequest:
        is_bound = any(each is not None and each.is_bound for each in self._found)
        return _Signed(self._signer, self._call, self._plain, self._found, self._number) if is_bound else self

    async def again(self, status: int, headers: Mapping[str, str]) -> SignedRequest | None:
        if self._number == 0 and (nonce := headers.get("dpop-nonce")) is not None and self._learned(headers, nonce):
            return _Signed(self._signer, self._call, self._plain, self._found, 1)
        found = await self._signer.replaced(self._call, self._found, status, headers, is_last=self._number > 0)
        return None if found is None else _Signed(self._signer, self._call, self._plain, found, self._number + 1)

    def _learned(self, headers: Mapping[str, str], nonce: str) -> bool:
        """Use a DPoP nonce that the API asks for (RFC 9449 section 9)."""
        if "use_dpop_nonce" not in headers.get("www-authenticate", ""):
            return False
        learned = [each.learn_nonce(self._plain.url, nonce) for each in self._found if each is not None]
        return any(learned)


class RequirementSigner:
    """Puts the credentials of one security requirement, and headers of the caller, into requests."""

    def __init__(self, parts: Iterable[_Part], headers: tuple[str, ...]) -> None:
        self._parts = tuple(parts)
        self._headers = headers

    async def sign(self, call: Call, request: OutgoingRequest) -> SignedRequest:
        found = [await each.source.obtain(call, each.scopes) for each in self._parts]
        return _Signed(self, call, request, found, 0)

    def filled(self, call: Call, plain: OutgoingRequest, found: list[Credential | None]) -> OutgoingRequest:
        """Return a copy of a request with credentials."""
        # What the operation sends wins over headers of the caller, and credentials win over both.
        headers = add_forwarded(call, self._headers, plain.headers) if self._headers else plain.headers.copy()
        request = structs.replace(plain, headers=headers)
        for part, credential in zip(self._parts, found, strict=True):
            if credential is not None:
                part.put(request, credential)
        return request

    async def replaced(
        self, call: Call, found: list[Credential | None], status: int, headers: Mapping[str, str], *, is_last: bool
    ) -> list[Credential | None] | None:
        """Return new credentials after a refusal; None where new ones would not help."""
        lacking = missing_scopes(status, headers)
        if status != 401 and not lacking:
            return None
        renewed: list[Credential | None] = []
        for part, credential in zip(self._parts, found, strict=True):
            if credential is None:
                renewed.append(None)
            elif is_last:
                raise part.source.refusal(call)
            elif lacking:
                renewed.append(await part.source.obtain(call, union(part.scopes, lacking)))
            else:
                renewed.append(await part.source.renewed(call, part.scopes, credential))
        is_other = any(
            each is not None and before is not None and each.token != before.token
            for each, before in zip(renewed, found, strict=True)
        )
        return renewed if is_other else None


# --- the security of one API -----------------------------------------------------------------------------------------


class ApiSecurity:
    """The security schemes of an API, and the credentials that its operator gave.

    `base` is the address against which relative addresses in schemes are read. `is_named`: the operator vouches for
    the description, so that its addresses may lead anywhere. `forward_headers` are the headers of callers that go on.
    """

    def __init__(
        self,
        schemes: Mapping[str, SecuritySchemeObject],
        credentials: Mapping[str, CredentialLike] | None = None,
        *,
        base: str = "",
        is_named: bool = False,
        forward_headers: tuple[str, ...] = (),
    ) -> None:
        given = dict(credentials or {})
        unknown = [name for name in given if name not in schemes]
        if unknown:
            known = ", ".join(map(repr, schemes)) or "none"
            raise ServerError(
                f"credentials= has {unknown[0]!r}, which is not a security scheme of the API; it has: {known}"
            )
        self.schemes: Mapping[str, SecuritySchemeObject] = schemes
        self._headers = forward_headers
        self._sources: dict[str, CredentialSource] = {
            name: source_of(schemes[name], each, base, is_named=is_named) for name, each in given.items()
        }
        self._places: dict[str, tuple[str, Put]] = {
            name: _place(schemes[name], source)
            for name, source in self._sources.items()
            if not isinstance(source, Nothing)
        }
        contexts = list({id(each): each for each in given.values() if isinstance(each, ssl.SSLContext)}.values())
        if len(contexts) > 1:
            raise ServerError("An API has one certificate of the client: give all mutualTLS schemes the same context")
        self.tls: ssl.SSLContext | None = contexts[0] if contexts else None
        """The terms of TLS with the certificate of this server; None for those of the system."""

    def signer(self, operation: OperationObject) -> Signer | None:
        """Return the signer of an operation; None where nothing is added to its requests.

        Raise `DescriptionError` where no alternative of its requirements can be met.
        """
        requirement = self.chosen(operation)
        parts = [
            _Part(self._sources[name], self._places[name][1], self._scopes(name, scopes))
            for name, scopes in requirement.schemes.items()
            if name in self._places
        ]
        return RequirementSigner(parts, self._headers) if parts or self._headers else None

    def chosen(self, operation: OperationObject) -> SecurityRequirement:
        """Return the requirement that the requests of an operation meet."""
        # One without schemes means that a credential is optional: it is sent where there is one.
        alternatives = sorted(operation.security, key=lambda each: not each.schemes)
        for each in alternatives:
            self._check_declared(operation, each)
        found = next((each for each in alternatives if each.schemes.keys() <= self._sources.keys()), None)
        if found is None and alternatives:
            raise DescriptionError(self._missing(operation))
        if found is None:
            return SecurityRequirement({})
        places = [self._places[name][0] for name in found.schemes if name in self._places]
        twice = next((each for each in places if places.count(each) > 1), None)
        if twice is not None:
            raise DescriptionError(
                f"{operation.place}: {operation.label} needs {_listed(found.schemes)} together, and both are sent in "
                f"the {twice}: give NoCredential() for one of them"
            )
        return found

    def _check_declared(self, operation: OperationObject, requirement: SecurityRequirement) -> None:
        for name in requirement.schemes:
            if name not in self.schemes:
                raise DescriptionError(
                    f"{operation.place}: {operation.label} needs the security scheme {name!r}, which the description "
                    "does not have: add it to components.securitySchemes, in the description or by an overlay"
                )

    def _missing(self, operation: OperationObject) -> str:
        ways = " or ".join(_listed(each.schemes) for each in operation.security)
        first = operation.security[0].schemes
        lacking = {name: self.schemes[name] for name in first if name not in self._sources}
        remedy = ", ".join(f"{name!r}: {_remedy(scheme)}" for name, scheme in lacking.items())
        option = shlex.quote(printable(next(iter(lacking))))
        return (
            f"{operation.place}: {operation.label} needs a credential for {ways}: give credentials={{{remedy}}}, or "
            f"NoCredential() where the API does without; on the command line, --credential {option}=$NAME"
        )

    def _scopes(self, name: str, scopes: Iterable[str]) -> Scopes:
        # OpenAPI 3.1 section 4.8.30: other types of schemes have roles there, which no token has.
        return clean_scopes(scopes) if self.schemes[name].type in ("oauth2", "openIdConnect") else ()

    def caller_scopes(self, operation: OperationObject) -> Scopes:
        """Return the scopes that the token of a caller needs for an operation.

        Only a credential that is made of the caller's own token says something about that token. An account that a user
        connects has scopes of its own.
        """
        found: Scopes = ()
        for name, scopes in self.chosen(operation).schemes.items():
            source = self._sources[name]
            if isinstance(source, VaultAccount) and isinstance(source.kind, WITH_SUBJECT_TOKEN):
                found = union(found, self._scopes(name, scopes))
        return found

    @property
    def has_accounts(self) -> bool:
        """Return whether a credential is an account of the caller in the vault."""
        return any(isinstance(each, VaultAccount) and each.is_per_user for each in self._sources.values())

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of the credentials in the vault, for operators."""
        return tuple(type(each.kind).__name__ for each in self._sources.values() if isinstance(each, VaultAccount))

    def bind_to(self, service: str) -> None:
        """Bind the accounts of the API to its origin."""
        for source in self._sources.values():
            if isinstance(source, VaultAccount):
                source.bind_to(service)

    def add_to(self, server: AccountOwner, named: Callable[[str], str] = str) -> None:
        """Add the accounts of the API to the vault of the server that includes it.

        They have the names of their schemes; `named` makes another name of it.
        """
        added: list[VaultAccount] = []
        try:
            for scheme, source in self._sources.items():
                if isinstance(source, VaultAccount):
                    source.add_to(server, named(scheme))
                    added.append(source)
        except BaseException:
            for each in added:
                each.remove_from(server)
            raise

    def remove_from(self, server: AccountOwner) -> None:
        """Take the accounts of the API out of the vault of a server."""
        for source in self._sources.values():
            if isinstance(source, VaultAccount):
                source.remove_from(server)


def _listed(schemes: Iterable[str]) -> str:
    return " and ".join(map(repr, schemes)) or "nothing"


def _remedy(scheme: SecuritySchemeObject) -> str:
    """Return what an operator may write for a scheme."""
    if scheme.type == "mutualTLS":
        return "an ssl.SSLContext with a certificate"
    if scheme.type == "openIdConnect" or "authorizationCode" in scheme.flows:
        return "UserOAuth(client_id=...)"
    if "clientCredentials" in scheme.flows:
        return "ServerOAuth(grant=ClientCredentials(...))"
    return "('user', '$PASSWORD')" if scheme.scheme == "basic" else "'$NAME_OF_A_VARIABLE'"
