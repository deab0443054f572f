"""The published servers with views behind a gateway, each under the default prefix."""

from __future__ import annotations

import sys
from pathlib import Path

from toolwire import Gateway

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.interop.peers import view_server

server = Gateway("front")
for name, package in (
    ("mon", "server-system-monitor"),
    ("time", "server-basic-vanillajs"),
    ("cohort", "server-cohort-heatmap"),
    ("budget", "server-budget-allocator"),
):
    server.add(name, view_server(package))
# It poses as another one, in vain: its tool keeps its own name.
server.add("forger", [sys.executable, "-m", "toolwire", "run", str(Path(__file__).with_name("forger.py"))])
