"""`Sealed`: what opens, and what does not."""

from __future__ import annotations

import os

import msgspec

from toolwire.protocol.sealing import HmacSealer
from toolwire.util.sealed import Sealed

SECRET = "a secret of these tests, which is long enough"


class Ticket(msgspec.Struct):
    name: str
    expires: float


def test_value_opens_in_its_context_until_it_expires() -> None:
    now = [0.0]
    form = Sealed(HmacSealer([SECRET]), Ticket, clock=lambda: now[0])
    ticket = Ticket("a", 10.0)
    text = form.seal(ticket, b"here")
    assert (form.open(text, b"here"), form.open(text.encode(), b"here")) == (ticket, ticket)
    assert form.open(text, b"there") is None
    now[0] = 10.0
    assert form.open(text, b"here") is None


def test_texts_that_were_not_sealed_here_do_not_open() -> None:
    sealer = HmacSealer([SECRET])
    form = Sealed(sealer, Ticket)
    other = Sealed(HmacSealer([os.urandom(32)]), Ticket).seal(Ticket("a", 1e12), b"")
    damaged = sealer.seal(b"no ticket", b"")
    for text in (None, "", "x", "é", b"\xff", other, damaged, form.seal(Ticket("a", 1e12), b"")[:-1]):
        assert form.open(text, b"") is None, text


def test_texts_over_the_length_do_not_open() -> None:
    form = Sealed(HmacSealer([SECRET]), str, encode=str.encode, decode=bytes.decode, max_length=100)
    assert form.open(form.seal("a", b""), b"") == "a"
    assert form.open(form.seal("a" * 100, b""), b"") is None
