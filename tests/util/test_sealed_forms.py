"""Texts that earlier versions sealed: clients and stores hold them while a fleet is upgraded, so they still open.

`python -m tests.util.test_sealed_forms` seals the values that have no text yet. An existing text is never replaced.
Where a form changes, the old text stays and a new name is added.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import AsyncMock, Mock, patch

import msgspec
import pytest
from msgspec import UNSET

from toolwire.auth.client.store_storage import StoreStorage
from toolwire.auth.principal import Principal
from toolwire.auth.proxy.sealed import Code, Refresh, SealedAccess, SealedRegistration, SealedRequest, Seals
from toolwire.auth.vault.links import LINK_SECONDS, AccountForm, Link, Links, PageForm, Pending
from toolwire.auth.vault.records import Owner, RecordKey, SealedRecords, VaultRecord
from toolwire.gateway.asked_questions import AskedQuestions
from toolwire.gateway.relaying import Relay, _State
from toolwire.http.legacy.session_token import SessionToken, SessionTokens, principal_digest
from toolwire.protocol import types as t
from toolwire.protocol.rounds import Answered, Rounds, State, dump_state, request_digest
from toolwire.sealing_aes import make_sealer
from toolwire.server.foreign_tasks import ForeignTask
from toolwire.server.limits import Limits
from toolwire.server.replay_state import Questions, principal_key
from toolwire.server.tasks.tasks_elsewhere import opened_name, sealed_name
from toolwire.stores import MemoryBus, MemoryKV, MemoryLog, Stores

TEXTS = Path(__file__).with_name("sealed_forms.json")
SECRET = "a secret of these tests, which is long enough"
LATER = 4_000_000_000.0
KEY = RecordKey(name="github", identity="settings", owner="owner")
OWNER = Owner(id="owner", subject="sub", provider="https://id.example")

SEALER = make_sealer([SECRET], random=os.urandom, purpose="state")
SEALS = Seals(SEALER, "https://mcp.example", "https://mcp.example/mcp", "upstream", lambda: 0.0)


def links(kv: MemoryKV) -> Links:
    return Links(kv, SEALER, lambda: 0.0)


class Form(NamedTuple):
    """A value, and the two functions that make a text of it and of the text the value."""

    value: Any
    seal: Callable[[Any], str]
    open: Callable[[str], Any]


def of_proxy(value: Any) -> Form:
    return Form(value, SEALS.seal, lambda text: SEALS.open(text, type(value)))


def of_page(value: Any) -> Form:
    made = links(MemoryKV())
    return Form(value, made.write_form, lambda text: made.read_form(text, type(value)))


def of_store(key: str, value: Any, write: Callable[[MemoryKV, Any], Any], read: Callable[[MemoryKV], Any]) -> Form:
    """Return the form of a value that a store keeps under a key."""

    def seal(value: Any) -> str:
        async def run() -> str:
            kv = MemoryKV()
            await write(kv, value)
            stored = await kv.get(key)
            assert stored is not None
            return stored.decode()

        return asyncio.run(run())

    def opened(text: str) -> Any:
        async def run() -> Any:
            kv = MemoryKV()
            await kv.put(key, text.encode())
            return await read(kv)

        return asyncio.run(run())

    return Form(value, seal, opened)


def of_kept_link(state: str, value: Pending) -> Form:
    key = links_key(state)
    return of_store(
        key, value, lambda kv, value: links(kv).put_sign_in(state, value), lambda kv: links(kv).pop_sign_in(state)
    )


def links_key(state: str) -> str:
    """Return the key under which a sign-in that began is stored."""

    async def run() -> str:
        kv = MemoryKV()
        await links(kv).put_sign_in(state, Pending("", "", False, "", LATER))
        (key,) = await kv.keys("")
        return key

    return asyncio.run(run())


async def read_record(kv: MemoryKV) -> Any:
    found = await SealedRecords(kv, SEALER).get(KEY)
    return None if found is None else found[0]


def storage_key() -> str:
    async def run() -> str:
        kv = MemoryKV()
        await StoreStorage(kv, SECRET).save("https://mcp.example", "")
        (key,) = await kv.keys("")
        return key

    return asyncio.run(run())


def of_link(value: Link) -> Form:
    """Return the form of a link that is open, as the store has it."""

    def seal(value: Link) -> str:
        kv = asyncio.run(open_link(value))
        (key,) = [key for key in asyncio.run(kv.keys("")) if ":link:" in key]
        return dump_store(kv, key)

    return Form(value, seal, lambda text: asyncio.run(links(load_store(text)).get(value.id)))


def of_open_link(value: str) -> Form:
    """Return the form of the id under which a link is found again, as the store has it with the link."""
    link = msgspec.structs.replace(LINK, id=value)

    async def open_again(kv: MemoryKV) -> str | None:
        again = await links(kv).open(link.owner, link.name, link.identity, link.scopes, link.session)
        return again if again == value else None

    def seal(value: str) -> str:
        kv = asyncio.run(open_link(link))
        return dump_store(kv, *asyncio.run(kv.keys("")))

    return Form(value, seal, lambda text: asyncio.run(open_again(load_store(text))))


async def open_link(link: Link) -> MemoryKV:
    kv = MemoryKV()
    with patch("secrets.token_urlsafe", return_value=link.id):
        await links(kv).open(link.owner, link.name, link.identity, link.scopes, link.session)
    return kv


def dump_store(kv: MemoryKV, *keys: str) -> str:
    async def run() -> dict[str, str]:
        return {key: (await kv.get(key) or b"").decode() for key in keys}

    return json.dumps(asyncio.run(run()))


def load_store(text: str) -> MemoryKV:
    """Return a store with what `dump_store` wrote; an empty one for other texts."""
    kv = MemoryKV()

    async def run() -> None:
        for key, value in json.loads(text).items():
            await kv.put(key, value.encode())

    if text.startswith("{"):
        asyncio.run(run())
    return kv


def questions(kv: MemoryKV) -> Questions:
    return Questions("server", SEALER, Stores(kv, MemoryLog(), MemoryBus()), 0.25)


def of_state(value: State) -> Form:
    def opened(text: str) -> State:
        made = questions(MemoryKV())
        return resume(asyncio.run(made.unsealed(text, made._context)))

    return Form(value, lambda value: asyncio.run(questions(MemoryKV())._sealed(CALL, value)), opened)


def of_stored_state(value: State) -> Form:
    """Return the form of a state that stays in the store, and of the text that names it."""

    def seal(value: State) -> str:
        kv = MemoryKV()
        made = questions(kv)
        text = asyncio.run(made.sealed(CALL, dump_state(value), made._context, 60.0, stays=True))
        asyncio.run(kv.put("text", text.encode()))
        return dump_store(kv, *asyncio.run(kv.keys("")))

    def opened(text: str) -> State | None:
        kv = load_store(text)
        made, named = questions(kv), asyncio.run(kv.get("text"))
        return None if named is None else resume(asyncio.run(made.unsealed(named.decode(), made._context)))

    return Form(value, seal, opened)


def resume(payload: bytes) -> State:
    return Rounds("digest", "principal").resume(payload, {}, 1.0)


def relay() -> Any:
    """Return the way to a server behind a gateway, as far as it seals."""
    made: Any = Relay.__new__(Relay)
    made.name, made.connections = "back", SimpleNamespace(take_up=None)
    made.asked = Mock(spec=AskedQuestions)
    made.asked.sign.return_value = "the server that asked"
    made.asked.has_asked.side_effect = lambda call, signed: signed in ("", "the server that asked")
    return made


def relayed_call(text: str | None = None) -> Any:
    async def seal_state(call: Any, payload: bytes, context: bytes) -> str:
        return await questions(MemoryKV()).sealed(call, payload, context, 60.0)

    async def open_state(text: str, context: bytes) -> bytes:
        return await questions(MemoryKV()).unsealed(text, context)

    return SimpleNamespace(
        method="tools/call",
        params=t.CallToolRequestParams(name="tool", request_state=UNSET if text is None else text),
        principal=Principal("ann"),
        host=SimpleNamespace(seal_state=seal_state, open_state=open_state),
        settings=SimpleNamespace(limits=Limits()),
        request=SimpleNamespace(caller=None, log_level=UNSET, capabilities={}),
        progress_token=None,
        outlet=None,
    )


def of_relayed_state(value: str) -> Form:
    """Return the form of the state of a modern server behind a gateway."""

    def seal(value: str) -> str:
        result = {"requestState": msgspec.Raw(msgspec.json.encode(value))}
        with patch("toolwire.gateway.relaying.keep_judgement", AsyncMock(return_value="judged")):
            sealed = asyncio.run(relay()._wrapped(relayed_call(), result))
        wrapped: dict[str, str] = msgspec.json.decode(sealed)
        return wrapped["requestState"]

    return Form(value, seal, lambda text: asyncio.run(relay()._taken_up(relayed_call(text), {}))[0]["requestState"])


def of_held_call(value: tuple[str, int]) -> Form:
    """Return the form of a call that a gateway holds: its id and the number of the round."""

    def seal(value: tuple[str, int]) -> str:
        call = relayed_call()
        state = _State(
            back="back",
            request=request_digest(call.method, call.params),
            principal=principal_key(call.principal),
            state=None,
            held=value[0],
            round=value[1],
        )
        return str(asyncio.run(call.host.seal_state(call, msgspec.json.encode(state), relay()._context)))

    def opened(text: str) -> tuple[str, int]:
        call = relayed_call(text)
        found = asyncio.run(relay()._opened(call, call.params, principal_key(call.principal)))
        return found.held, found.round

    return Form(value, seal, opened)


CALL: Any = SimpleNamespace(
    host=SimpleNamespace(signer=SEALER),
    principal=None,
    outlet=SimpleNamespace(is_local=True),
    request=SimpleNamespace(caller=None),
    settings=SimpleNamespace(limits=Limits()),
)
STATE = State(
    id="id",
    request="digest",
    principal="principal",
    expires=LATER,
    round=1,
    asked={},
    answers={"named": Answered(digest="asked", result=msgspec.Raw(b"{}"))},
    steps={"step": msgspec.Raw(b"[1]")},
)
LINK = Link(
    id="link",
    owner=OWNER,
    name="github",
    scopes=("read",),
    expires=LINK_SECONDS,  # The clock of the tests stands at zero.
    session="session",
    identity="settings",
)
OWNER_DIGEST = principal_digest("owner")
SESSIONS = SessionTokens(SEALER, "session/server")

# By keyword: where two fields of one type change places, the text of an earlier version opens as another value.
FORMS = {
    "proxy registration": of_proxy(SealedRegistration(redirect_uris=["https://app.example/callback"], name="App")),
    "proxy request": of_proxy(
        SealedRequest(
            expires=LATER,
            id="id",
            client="client",
            redirect_uri="https://app.example",
            state="state",
            challenge="challenge",
            scopes=["read"],
            browser="browser",
            verifier="v",
        )
    ),
    "proxy code": of_proxy(
        Code(
            expires=LATER,
            id="id",
            client="client",
            redirect_uri="https://app.example",
            challenge="challenge",
            scopes=["read"],
            verifier="v",
            code="code",
        )
    ),
    "proxy access token": of_proxy(SealedAccess(expires=LATER, client="client", scopes=["read"], token="token")),
    "proxy refresh token": of_proxy(
        Refresh(expires=LATER, id="id", client="client", scopes=["read"], token="token", is_access=False, user="user")
    ),
    "vault page": of_page(PageForm(link="link", browser="browser", is_proven=True, expires=LATER)),
    "vault account": of_page(AccountForm(owner=OWNER, name="github", connects=True, browser="browser", expires=LATER)),
    "vault link": of_link(LINK),
    "vault link of a purpose": of_open_link("found again"),
    "vault sign-in": of_kept_link(
        "state", Pending(link="link", browser="browser", is_proven=True, memory="memory", expires=LATER)
    ),
    "vault record": of_store(
        KEY.text,
        VaultRecord(
            secret="token",
            created=1.0,
            subject="sub",
            provider="https://id.example",
            refresh_token="refresh",
            expires_at=LATER,
            renew_at=LATER,
            scopes=("read",),
            issuer="https://id.example",
        ),
        lambda kv, value: SealedRecords(kv, SEALER).put(KEY, value),
        read_record,
    ),
    "stored sign-in": of_store(
        storage_key(),
        '{"token": 1}',
        lambda kv, value: StoreStorage(kv, SECRET).save("https://mcp.example", value),
        lambda kv: StoreStorage(kv, SECRET).load("https://mcp.example"),
    ),
    "session id": Form(
        SessionToken(
            id="AAECAwQFBgcICQoLDA0ODw",
            revision="2025-06-18",
            capabilities=3,
            principal=OWNER_DIGEST,
            issued=1,
            expires=int(LATER),
            home=b"12345678",
        ),
        SESSIONS.write,
        lambda text: SESSIONS.read(text, principal=OWNER_DIGEST, now=1.0),
    ),
    "task of another server": Form(
        ForeignTask(id="task-1", tool="report", server="mark", made="made"),
        lambda value: sealed_name(CALL, value),
        lambda text: opened_name(CALL, text),
    ),
    "judged task of another server": Form(
        ForeignTask(id="task-1", tool="report", server="mark", made="made", judged="judged"),
        lambda value: sealed_name(CALL, value),
        lambda text: opened_name(CALL, text),
    ),
    "state of a request": of_state(STATE),
    "state of a request in the store": of_stored_state(STATE),
    "state of an upstream": of_relayed_state("state"),
    "held call of an upstream": of_held_call(("held", 2)),
}


def texts() -> dict[str, str]:
    found: dict[str, str] = json.loads(TEXTS.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", texts() if TEXTS.exists() else [])
def test_text_of_an_earlier_version_opens(name: str) -> None:
    assert FORMS[name].open(texts()[name]) == FORMS[name].value


@pytest.mark.parametrize("name", FORMS)
def test_new_text_opens(name: str) -> None:
    form = FORMS[name]
    assert form.open(form.seal(form.value)) == form.value


#: Sealed before the values of the proxy were bound to its provider.
UNBOUND = {
    "proxy request": (
        "v1.V2hIjeHbs9ux.uJYHz06MvTgW28_zxhZJ3mm41wJp69t1_IFrqOsZLKrbsZdRGNqYdnwvRepuqlsIv_qgSsQzpF"
        "SPyl__ZcEMhxJ98En2_GnBuxHi-HUqAPrkbQ-T8TYz1pZvmsIqQmb5RL3t8E5gfRxKsMnHLOoIlhKg350"
    ),
    "proxy code": (
        "v1.V2hIjeHbs9ux.TgaxIXpuPH1P2gZlGc-BaPg26cVZa1aWw8xm5JfQ92VrxozZkM6fw1yiUhvsUYVtPjP_9gbCiq"
        "hkjmeXSjOi4UqHd1CVQwX1OQZQO6yZLzh2iu88eanYkV77MiO1uiXvdulMynzx4V6h5q0"
    ),
    "proxy access token": (
        "v1.V2hIjeHbs9ux.zdFaTp3SOQR5a4wLXAazly9lgeRU9o1Hf_EmyJeqhXTDjGEv4Q52gV7Db6R_tUKxR3qkje29jM"
        "d0irQt2Uinqac03lagVm7m0A"
    ),
    "proxy refresh token": (
        "v1.V2hIjeHbs9ux.sZCl34bLlfmmvxBFw_8gk4ocPvcCt2z3myJfh4b3dSKFg3Gde7Q7_RqkFOusIk8nbJ5Qr5GT1C"
        "ehYhnDQS9I5WPNsA-dVLfeSjuQia3aCjVu4A"
    ),
}


@pytest.mark.parametrize("name", UNBOUND)
def test_text_that_names_no_provider_is_refused(name: str) -> None:
    assert FORMS[name].open(UNBOUND[name]) is None


@pytest.mark.parametrize("name", FORMS)
def test_each_form_has_a_text_of_an_earlier_version(name: str) -> None:
    assert name in texts(), "run python -m tests.util.test_sealed_forms"


@pytest.mark.parametrize("name", FORMS)
def test_text_of_another_form_does_not_open(name: str) -> None:
    opened = FORMS[name].open
    for other, text in texts().items():
        if other.removeprefix("judged ") == name.removeprefix("judged "):
            continue  # A later version added a member to the form.
        try:
            assert opened(text) is None, other
        except Exception as error:
            assert type(error).__name__ in ("BadSeal", "ProtocolError"), other


def seal_missing() -> None:
    known = texts() if TEXTS.exists() else {}
    for name, form in FORMS.items():
        if name not in known:
            known[name] = form.seal(form.value)
    TEXTS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    seal_missing()
