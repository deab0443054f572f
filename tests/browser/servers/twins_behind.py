"""A published server with a view, twice behind one gateway: both have tools of the same names."""

from __future__ import annotations

import sys
from pathlib import Path

from toolwire import Gateway

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests.interop.peers import view_server

server = Gateway("front")
for name in ("mon", "twin"):
    server.add(name, view_server("server-system-monitor"))
