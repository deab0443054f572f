"""The source of an earlier commit, so that a scene can upgrade a fleet from it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.fleet.replicas import ROOT, FleetError

#: The commit that a fleet is upgraded from; without it, one of the scene, or the newest that is a day older than HEAD.
BEFORE_VARIABLE = "FLEET_BEFORE"
#: The source of the working tree, as an environment for a replica.
PRESENT = {"PYTHONPATH": str(ROOT / "src")}
#: The last commit in which one class was everything that a server behind a gateway is.
OLD_GATEWAY = "3b5177a1aa4fb5b4d7e9cf0fe31d40865ff39558"
_DAY = 24 * 3600


def commit_before(otherwise: str | None = None) -> str:
    """Return the commit that a fleet is upgraded from: `otherwise` where the environment names none."""
    named = os.environ.get(BEFORE_VARIABLE) or otherwise
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
