"""The steps of a sign-in at a server, to find its mistakes.

Each step has its request, its answer, what is wrong with it and what to do about that. Secrets are replaced.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from toolwire.auth.errors import SignInFailed
from toolwire.auth.flow.challenges import oauth_challenge, parse_challenges
from toolwire.auth.flow.discovery import OAUTH, OPENID, RESOURCE
from toolwire.auth.flow.messages import Fetch, Fetched
from toolwire.inspector.events import Events
from toolwire.inspector.excerpt import Excerpt
from toolwire.inspector.redaction import mask_form, mask_headers, mask_members

MAX_STEPS: Final = 100
MAX_TEXT: Final = 4_000

_REGISTER: Final = "Registration of the client"
_ASK: Final = "Authorization request"
_ANSWER: Final = "Answer of the authorization server"

# RFC 6749 sections 4.1.2.1 and 5.2, RFC 7591 section 3.2.2, RFC 8707 section 2.
_ADVICE: Final = {
    "access_denied": "The person who signed in, or a rule of the authorization server, refused. Sign in as someone "
    "who may use this server.",
    "invalid_client": "The authorization server does not know this client, or its secret is wrong. Check the client ID "
    "and the secret in the settings, or clear both so that the client registers itself.",
    "invalid_client_metadata": "The authorization server refuses what the client says about itself. Register a client "
    "there by hand, and give its ID in the settings.",
    "invalid_grant": "The code or the refresh token has expired, was used before, or belongs to another client or "
    "redirect URI. Sign in again.",
    "invalid_redirect_uri": "The authorization server does not accept the redirect URI. Register the one that the "
    "authorization request shows.",
    "invalid_request": "The authorization server misses a parameter, or refuses one. Compare the request with its "
    "documentation.",
    "invalid_scope": "The authorization server does not know a scope, or does not give it to this client. Give the "
    "scopes to ask for in the settings.",
    "invalid_target": "The authorization server issues no tokens for this server: the resource indicator (RFC 8707) "
    "names a server that it does not know.",
    "server_error": "The authorization server failed. Try again later, and look into its log.",
    "temporarily_unavailable": "The authorization server is overloaded or being maintained. Try again later.",
    "unauthorized_client": "This client may not use the authorization code flow. Allow it at the authorization server.",
    "unsupported_grant_type": "The token endpoint does not support the authorization code flow. Allow it there.",
    "unsupported_response_type": "The authorization endpoint does not support response_type=code. Allow it there.",
}
_REGISTER_BY_HAND: Final = (
    "Register a client at the authorization server by hand, with the redirect URI of the inspector, and give its ID "
    "in the settings."
)


class Step(Struct, kw_only=True):
    """One step of a sign-in.

    `state` is `done`, `failed`, `waiting` for a person, or `absent` where the next place is tried.
    """

    number: int
    at: float
    name: str
    state: str = "done"
    request: dict[str, Any] | None = None
    answer: dict[str, Any] | None = None
    problem: str | None = None
    advice: str | None = None

    def fail(self, problem: str, advice: str | None = None) -> None:
        self.state, self.problem, self.advice = "failed", problem[:MAX_TEXT], advice


class SignInSteps:
    """The steps since the inspector last connected, the oldest forgotten first."""

    def __init__(self, events: Events) -> None:
        self._events = events
        self._steps: deque[Step] = deque(maxlen=MAX_STEPS)
        self._numbers = itertools.count(1)

    def describe(self) -> list[dict[str, Any]]:
        return [msgspec.to_builtins(step) for step in self._steps]

    def begin(self) -> None:
        self._steps.clear()
        self._events.tell("sign-in", steps=[])

    # --- what happens, in this order ---

    def challenged(self, method: str, url: str, status: int, headers: Mapping[str, str]) -> None:
        """Note that the server refused a request, and what it wants."""
        step = self._add("Challenge of the server", {"method": method, "url": url})
        said = headers.get("www-authenticate", "")
        step.answer = {"status": status, "headers": mask_headers(headers)}
        challenge = oauth_challenge(parse_challenges(said))
        if challenge is None and status == 401:
            # RFC 9110 section 15.5.2, RFC 9728 section 5.1.
            step.problem = "The answer has no WWW-Authenticate header with the scheme Bearer."
            step.advice = "The server has to send one. Without it, clients look in the well-known places."
        elif challenge is not None and challenge.error == "insufficient_scope":
            step.problem = "The token does not have the scopes that this request needs."
            step.advice = "A token with more scopes is asked for."
        self._tell(step)

    def fetched(self, request: Fetch, answer: Fetched | SignInFailed) -> None:
        """Note a request to a metadata document, the registration endpoint or the token endpoint."""
        step = self._add(_name(request), _request(request))
        if isinstance(answer, SignInFailed):
            step.fail(str(answer), "Check that the address is right and can be reached from this machine.")
        else:
            document = _document(answer.body)
            step.answer = {
                "status": answer.status,
                "headers": mask_headers(answer.headers),
                "body": mask_members(Excerpt(document).value, is_oauth=True),
            }
            _judge(step, request, answer.status, document)
        self._tell(step)

    def sent_to_sign_in(self, url: str) -> None:
        """Note that a person is asked to open the authorization endpoint."""
        parts = urlsplit(url)
        address = f"{parts.scheme}://{parts.netloc}{parts.path}"
        request = {"method": "GET", "url": address, "parameters": mask_form(parts.query.encode())}
        step = self._add(_ASK, request)
        step.state = "waiting"
        step.advice = "A person has to sign in, in the browser."
        self._tell(step)

    def came_back(self, address: str) -> None:
        """Note what the browser brought back from the authorization endpoint."""
        self._end_waiting()
        parts = urlsplit(address)
        parameters = mask_form(parts.query.encode())
        step = self._add(_ANSWER, {"method": "GET", "url": f"{parts.scheme}://{parts.netloc}{parts.path}"})
        step.answer = {"parameters": Excerpt(parameters).value}
        error = parameters.get("error")
        if error is not None:
            step.fail(_sentence("The authorization", error, parameters.get("error_description")), _ADVICE.get(error))
        elif "code" not in parameters:
            step.fail("The answer holds no code.", "The authorization server has to send the browser back with a code.")
        self._tell(step)

    def ended(self, problem: str | None) -> None:
        """Record how the sign-in ended; nothing without a sign-in."""
        if not self._steps:
            return
        self._end_waiting()
        advice = self._last_advice()
        step = self._add("Signed in" if problem is None else "Not signed in", None)
        if problem is not None:
            step.fail(problem, advice or "Compare the error with the last steps.")
        self._tell(step)

    def _last_advice(self) -> str | None:
        """Find the advice for the failed step, or else for the last step with advice."""
        advised = [step for step in self._steps if step.advice is not None]
        failed = [step for step in advised if step.state == "failed"]
        return (failed or advised)[-1].advice if advised else None

    def _end_waiting(self) -> None:
        for step in self._steps:
            if step.state == "waiting":
                step.state, step.advice = "done", None
                self._tell(step)

    def _add(self, name: str, request: dict[str, Any] | None) -> Step:
        step = Step(number=next(self._numbers), at=time.time(), name=name, request=request)
        self._steps.append(step)
        return step

    def _tell(self, step: Step) -> None:
        self._events.tell("sign-in-step", step=msgspec.to_builtins(step))


def _name(request: Fetch) -> str:
    if request.method == "GET":
        known = {OAUTH: "Authorization server metadata", OPENID: "Authorization server metadata (OpenID)"}
        found = (name for part, name in known.items() if f"/.well-known/{part}" in request.url)
        return next(found, "Protected resource metadata")
    if "json" in request.headers.get("content-type", ""):
        return _REGISTER
    refreshes = b"grant_type=refresh_token" in request.body
    return "Refresh of the token" if refreshes else "Token request"


def _request(request: Fetch) -> dict[str, Any]:
    shown: dict[str, Any] = {"method": request.method, "url": request.url, "headers": mask_headers(request.headers)}
    if "json" in request.headers.get("content-type", ""):
        shown["body"] = mask_members(Excerpt(_document(request.body)).value, is_oauth=True)
    elif request.body:
        shown["parameters"] = mask_form(request.body)
    return shown


def _document(body: bytes) -> Any:
    """Read a body as JSON; as the beginning of a text where it is none."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body[:MAX_TEXT].decode("utf-8", "replace")


def _judge(step: Step, request: Fetch, status: int, document: Any) -> None:
    """Describe the problem of an answer, as far as the answer itself shows it."""
    if 200 <= status < 300:
        if not isinstance(document, dict):
            step.state = "absent" if request.method == "GET" else "failed"
            step.problem = "The answer is not a JSON object."
        elif request.method == "GET":
            _judge_metadata(step, document)
        return
    if request.method == "GET" and status < 500:
        step.state = "absent"
        step.problem = f"Nothing is published here (status {status})."
        return
    error = document.get("error") if isinstance(document, dict) else None
    if isinstance(error, str):
        step.fail(_sentence(step.name, error, document.get("error_description")), _ADVICE.get(error))
    else:
        step.fail(f"{step.name} failed with status {status}.", _REGISTER_BY_HAND if step.name == _REGISTER else None)


def _judge_metadata(step: Step, document: dict[str, Any]) -> None:
    if f"/.well-known/{RESOURCE}" in step.request["url"] if step.request else False:
        if not document.get("authorization_servers"):
            step.fail("The document names no authorization server.", "Add authorization_servers to it (RFC 9728).")
        return
    if "issuer" not in document:
        return
    methods = document.get("code_challenge_methods_supported")
    if not isinstance(methods, list) or "S256" not in methods:
        step.fail(
            "The document does not say that the authorization server supports PKCE with S256.",
            "Turn PKCE on there, and publish code_challenge_methods_supported. A client must not go on without it.",
        )
    elif "registration_endpoint" not in document and document.get("client_id_metadata_document_supported") is not True:
        step.problem = "Clients cannot register themselves at this authorization server."
        step.advice = _REGISTER_BY_HAND


def _sentence(step: str, error: str, description: Any) -> str:
    told = f" ({description})" if isinstance(description, str) and description else ""
    return f"{step} was refused: {error}{told}"
