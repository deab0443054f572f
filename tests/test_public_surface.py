"""The public surface is the one that was written down, so that it changes only on purpose."""

from __future__ import annotations

import subprocess
import sys

from tests.blocks import ROOT

SCRIPT = ROOT / "scripts" / "public_surface.py"


def test_public_surface_is_the_one_written_down() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, (
        f"the public surface changed; if that is meant, run scripts/public_surface.py and commit its file:\n"
        f"{done.stdout}{done.stderr}"
    )
