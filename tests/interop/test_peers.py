"""Are the libraries that we did not write there?"""

from __future__ import annotations

import os

import pytest
from tests.interop import peers


def test_other_libraries_are_installed() -> None:
    if "TOOLWIRE_PEERS" not in os.environ:
        pytest.skip("TOOLWIRE_PEERS names no folder with other libraries: run make interop")
    assert [peer.name for peer in peers.BY_NAME.values() if not peer.ready] == []
    assert peers.node_ready()
