"""Are the libraries that we did not write there, and does it show when one is missing?"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.interop import peers


def test_other_libraries_are_installed() -> None:
    if "TOOLWIRE_PEERS" not in os.environ:
        pytest.skip("TOOLWIRE_PEERS names no folder with other libraries: run make interop")
    assert [peer.name for peer in peers.BY_NAME.values() if not peer.ready] == []
    assert peers.node_ready()
    assert peers.needed_view_hosts().is_dir()
    assert peers.view_server("server-system-monitor")


@pytest.mark.parametrize("name", peers.BY_NAME)
def test_a_missing_library_fails_the_test_that_needs_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "FOLDER", tmp_path)
    with pytest.raises(AssertionError, match=f"{name} is not installed: run make interop"):
        peers.needed(name)
    # Another release than the one that is pinned does not count.
    (tmp_path / name).mkdir()
    (tmp_path / name / ".ready").write_text("mcp==0.1", encoding="utf-8")
    with pytest.raises(AssertionError, match="is not installed"):
        peers.needed(name)


def test_a_failed_installation_is_no_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = peers.Peer("missing", ("--no-index", "there-is-no-such-package==1"), "2026-07-28")
    monkeypatch.setattr(peers, "FOLDER", tmp_path)
    monkeypatch.setattr(peers, "BY_NAME", {"missing": missing})
    with pytest.raises(subprocess.CalledProcessError):
        peers.main(["missing"])
    assert not missing.ready


def test_a_peer_that_nobody_knows_is_refused() -> None:
    with pytest.raises(SystemExit, match="there is no peer mpc-2"):
        peers.main(["mpc-2"])
