"""A server for exchanges, and the stage on which its handlers report and wait."""

from __future__ import annotations

import pytest
from tests.http.almanac import Stage, make_server

from toolwire import Server


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def server(stage: Stage) -> Server:
    return make_server(stage)
