"""Tests of the template-name server, in memory: no process, no network. `pytest` runs them."""

from collections.abc import Iterator

import pytest
from toolwire.client.sync import Client
from toolwire.testing import FuzzFixture, HostileFixture

from server import Amount, server


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(server) as client:
        yield client


def test_converting(client: Client) -> None:
    arguments = {"value": 116, "currency": "NOK"}
    assert client.call_tool("convert_amount", arguments, returns=Amount) == Amount(10.0, "EUR")


def test_an_unknown_currency_is_explained_to_the_model(client: Client) -> None:
    result = client.call_tool("convert_amount", {"value": 1, "currency": "GBP"})
    assert result.is_error
    assert "use one of EUR, NOK, USD" in result.text


def test_the_tools_hold(fuzz: FuzzFixture) -> None:
    fuzz.check()  # with arguments made from their schemas


def test_nobody_breaks_in(hostile: HostileFixture) -> None:
    hostile.check()  # with the texts of callers who mean harm
