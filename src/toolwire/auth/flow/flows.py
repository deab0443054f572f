"""The OAuth flows as generators, which yield requests and receive the answers.

Nothing here opens a connection, looks at the clock or draws a random number, so every flow can be played through in a
test, hostile servers included.
"""

from __future__ import annotations

from typing import Final

from toolwire.auth.errors import SignInFailed, quoted
from toolwire.auth.flow.authorization import Attempt
from toolwire.auth.flow.clients import Credentials
from toolwire.auth.flow.messages import Flow, post_form, refusal
from toolwire.auth.flow.metadata import AuthorizationServer, Discovered
from toolwire.auth.flow.scopes import Scopes
from toolwire.auth.flow.tokens import Prover, Token, TokenResponse, request_token

JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"
ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"
_JWT: Final = "urn:ietf:params:oauth:token-type:jwt"
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"


def exchange_code(
    attempt: Attempt,
    credentials: Credentials,
    code: str,
    *,
    prover: Prover | None = None,
    send_resource: bool = True,
) -> Flow[TokenResponse]:
    """Exchange a code for a token, only at the issuer recorded with the attempt."""
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": attempt.redirect_uri,
        "code_verifier": attempt.verifier,
        **_resource(attempt.found, send_resource),
    }
    return (
        yield from request_token(
            attempt.found.server, credentials, form, prover=prover, step="The exchange of the code"
        )
    )


def refresh(
    found: Discovered,
    credentials: Credentials,
    token: Token,
    *,
    prover: Prover | None = None,
    send_resource: bool = True,
) -> Flow[TokenResponse]:
    """Exchange a refresh token for a new access token."""
    if token.refresh_token is None:
        raise SignInFailed("There is no refresh token")
    form = {
        "grant_type": "refresh_token",
        "refresh_token": token.refresh_token,
        **_resource(found, send_resource),
    }
    return (yield from request_token(found.server, credentials, form, prover=prover, step="The refresh"))


def client_credentials(
    found: Discovered, credentials: Credentials, scopes: Scopes, *, prover: Prover | None = None
) -> Flow[TokenResponse]:
    """Get a token for the client itself (RFC 6749 section 4.4)."""
    form = {"grant_type": "client_credentials", **_resource(found, True), **_scope(scopes)}
    return (yield from request_token(found.server, credentials, form, prover=prover))


def jwt_bearer(
    found: Discovered, credentials: Credentials, assertion: str, scopes: Scopes, *, prover: Prover | None = None
) -> Flow[TokenResponse]:
    """Exchange an assertion of a trusted issuer for a token (RFC 7523 section 2.1)."""
    form = {"grant_type": JWT_BEARER, "assertion": assertion, **_resource(found, True), **_scope(scopes)}
    return (yield from request_token(found.server, credentials, form, prover=prover))


def exchange_token(
    found: Discovered,
    credentials: Credentials,
    subject_token: str,
    scopes: Scopes,
    *,
    subject_token_type: str = ACCESS_TOKEN,
    audience: str | None = None,
    prover: Prover | None = None,
) -> Flow[TokenResponse]:
    """Exchange the token of a caller for one that another service accepts (RFC 8693)."""
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "requested_token_type": ACCESS_TOKEN,
        "subject_token": subject_token,
        "subject_token_type": subject_token_type,
        **({} if audience is None else {"audience": audience}),
        **_resource(found, True),
        **_scope(scopes),
    }
    answer = yield from request_token(found.server, credentials, form, prover=prover, step="The token exchange")
    # RFC 8693 section 2.2.1: the type has to be there. Some servers leave it out, and none of them means another type.
    if answer.issued_token_type not in (None, ACCESS_TOKEN, _JWT):
        raise SignInFailed(f"The authorization server issued {quoted(answer.issued_token_type or '')} instead")
    return answer


def revoke(server: AuthorizationServer, credentials: Credentials, token: str, hint: str) -> Flow[None]:
    """Revoke a token at the authorization server (RFC 7009).

    `hint` is the kind of the token.
    """
    if server.revocation_endpoint is None:
        return
    form, headers = {"token": token, "token_type_hint": hint}, dict[str, str]()
    credentials.prove(server, form, headers)
    sent = post_form(server.revocation_endpoint, form, headers)
    answer = yield sent
    if answer.status != 200:
        raise refusal(answer, "The revocation", sent)


def exchange_for_id_jag(
    identity_provider: AuthorizationServer,
    credentials: Credentials,
    id_token: str,
    found: Discovered,
    scopes: Scopes,
    *,
    subject_token_type: str = ID_TOKEN,
) -> Flow[str]:
    """Exchange an ID token for an identity assertion grant (RFC 8693).

    The resource's authorization server accepts that grant.
    """
    form = {
        "grant_type": TOKEN_EXCHANGE,
        "requested_token_type": ID_JAG,
        "audience": found.issuer,
        "subject_token": id_token,
        "subject_token_type": subject_token_type,
        **_resource(found, True),
        **_scope(scopes),
    }
    step = "The exchange of the ID token"
    answer = yield from request_token(identity_provider, credentials, form, step=step, kinds=("n_a", "bearer"))
    if answer.issued_token_type != ID_JAG:
        raise SignInFailed(f"The identity provider issued {quoted(answer.issued_token_type or 'nothing')} instead")
    return answer.access_token


def _resource(found: Discovered, wanted: bool) -> dict[str, str]:
    # 2025-06-18 and later basic/authorization: sent even if the server does not understand it (RFC 8707).
    # An API that is not an MCP server need not have such a name.
    return {"resource": found.resource} if wanted and found.resource else {}


def _scope(scopes: Scopes) -> dict[str, str]:
    return {"scope": " ".join(scopes)} if scopes else {}
