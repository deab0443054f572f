"""The source of an earlier commit, so that a scene can upgrade a fleet from it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.fleet.replicas import ROOT, FleetError

#: The commit that a fleet is upgraded from; without it, the newest one that is a day older than the present one.
BEFORE_VARIABLE = "FLEET_BEFORE"
#: The source of the working tree, as an environment for a replica.
PRESENT = {"PYTHONPATH": str(ROOT / "src")}
_DAY = 24 * 3600


def commit_before() -> str:
    """Return the commit that a fleet is upgraded from."""
    named = os.environ.get(BEFORE_VARIABLE)
    if named:
        return _git("rev-parse", "--verify", f"{named}^{{commit}}")
    now = int(_git("show", "--no-patch", "--format=%ct", "HEAD"))
    found = _git("rev-list", "-1", f"--before={now - _DAY}", "HEAD")
    if not found:
        raise FleetError(f"no commit is a day older than HEAD: name one in {BEFORE_VARIABLE}")
    return found


def unpack_source(commit: str, folder: Path) -> dict[str, str]:
    """Write the package of a commit below a folder; return the environment that makes a replica import it."""
    folder.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return {"PYTHONPATH": str(folder / "src")}


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, text=True, capture_output=True)
    if done.returncode != 0:
        raise FleetError(f"git {words[0]} failed, and the earlier source is in its history: {done.stderr.strip()}")
    return done.stdout.strip()
