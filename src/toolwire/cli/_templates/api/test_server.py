"""Tests of the template-name server against a stub of its API. `pytest` runs them."""

import asyncio

from toolwire import testing

from server import api, server


def test_every_tool_calls_its_operation() -> None:
    replayed = asyncio.run(testing.replay(server, api))
    assert len(replayed) == template_count
