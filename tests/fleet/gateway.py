"""The gateway that every replica of the gateway scenes runs: three servers behind it, of both eras."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from toolwire.auth import Anonymous, ApiKeys
from toolwire.gateway import Gateway
from toolwire.stores.redis import RedisStores

REPLICA = os.environ["FLEET_REPLICA"]
HEADER = "x-fleet-replica"

server = Gateway(
    "fleet",
    auth=[ApiKeys({os.environ["FLEET_KEY"]: "fleet"}), Anonymous()],
    stores=RedisStores(os.environ["FLEET_STORES"]),
)
named = {HEADER: REPLICA}
server.add("modern", os.environ["FLEET_MODERN"], headers=named)
server.add("legacy", os.environ["FLEET_LEGACY"], revision="2025-11-25", headers=named)
# Its events are kept by nobody: a call that is held there ends with its gateway.
child = [sys.executable, str(Path(__file__).resolve().parent / "back.py")]
environment = {name: os.environ[name] for name in ("FLEET_FOLDER", "FLEET_REPLICA")} | {"FLEET_BACK": "child"}
server.add("child", child, revision="2025-11-25", env=environment, inherit_env=True)
