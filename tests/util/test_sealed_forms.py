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

import msgspec
import pytest

from toolwire.auth.client.store_storage import StoreStorage
from toolwire.auth.proxy.sealed import Code, Refresh, SealedAccess, SealedRegistration, SealedRequest, Seals
from toolwire.auth.vault.links import AccountForm, Links, PageForm, Pending
from toolwire.auth.vault.records import Owner, RecordKey, SealedRecords, VaultRecord
from toolwire.http.legacy.session_token import SessionToken, SessionTokens, principal_digest
from toolwire.protocol.rounds import State, dump_state
from toolwire.sealing_aes import make_sealer
from toolwire.server.foreign_tasks import ForeignTask
from toolwire.server.tasks.tasks_elsewhere import opened_name, sealed_name
from toolwire.stores import MemoryKV

TEXTS = Path(__file__).with_name("sealed_forms.json")
SECRET = "a secret of these tests, which is long enough"
LATER = 4_000_000_000.0
KEY = RecordKey("github", "settings", "owner")
OWNER = Owner("owner", "sub", "https://id.example")

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
    return of_store(key, value, lambda kv, value: links(kv).keep(state, value), lambda kv: links(kv).take(state))


def links_key(state: str) -> str:
    """Return the key under which a sign-in that began is stored."""

    async def run() -> str:
        kv = MemoryKV()
        await links(kv).keep(state, Pending("", "", False, "", LATER))
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


CALL: Any = SimpleNamespace(host=SimpleNamespace(signer=SEALER), principal=None, outlet=SimpleNamespace(is_local=True))
OWNER_DIGEST = principal_digest("owner")
SESSIONS = SessionTokens(SEALER, "session/server")

FORMS = {
    "proxy registration": of_proxy(SealedRegistration(["https://app.example/callback"], "App")),
    "proxy request": of_proxy(
        SealedRequest(LATER, "id", "client", "https://app.example", "state", "challenge", ["read"], "browser", "v")
    ),
    "proxy code": of_proxy(Code(LATER, "id", "client", "https://app.example", "challenge", ["read"], "v", "code")),
    "proxy access token": of_proxy(SealedAccess(LATER, "client", ["read"], "token")),
    "proxy refresh token": of_proxy(Refresh(LATER, "id", "client", ["read"], "token", False, "user")),
    "vault page": of_page(PageForm("link", "browser", True, LATER)),
    "vault account": of_page(AccountForm(OWNER, "github", True, "browser", LATER)),
    "vault sign-in": of_kept_link("state", Pending("link", "browser", True, "memory", LATER)),
    "vault record": of_store(
        KEY.text,
        VaultRecord(
            "token", 1.0, "sub", "https://id.example", "refresh", LATER, LATER, ("read",), "https://id.example"
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
        SessionToken("AAECAwQFBgcICQoLDA0ODw", "2025-06-18", 3, OWNER_DIGEST, 1, int(LATER), b"12345678"),
        SESSIONS.write,
        lambda text: SESSIONS.read(text, principal=OWNER_DIGEST, now=1.0),
    ),
    "task of another server": Form(
        ForeignTask("task-1", "report", "mark", "made"),
        lambda value: sealed_name(CALL, value),
        lambda text: opened_name(CALL, text),
    ),
    "request state": Form(
        State("id", "digest", "principal", LATER, 1, {}, {}, {"step": msgspec.Raw(b"[1]")}),
        lambda value: SEALER.seal(dump_state(value), b"requestState/server"),
        lambda text: msgspec.json.decode(SEALER.open(text, b"requestState/server"), type=State),
    ),
}


def texts() -> dict[str, str]:
    found: dict[str, str] = json.loads(TEXTS.read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("name", texts() if TEXTS.exists() else [])
def test_text_of_an_earlier_version_opens(name: str) -> None:
    assert FORMS[name].open(texts()[name]) == FORMS[name].value


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
        if other == name:
            continue
        try:
            assert opened(text) is None, other
        except Exception as error:
            assert type(error).__name__ == "BadSeal", other


def seal_missing() -> None:
    known = texts() if TEXTS.exists() else {}
    for name, form in FORMS.items():
        if name not in known:
            known[name] = form.seal(form.value)
    TEXTS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    seal_missing()
