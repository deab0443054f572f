"""The server of `shop.py` behind a gateway, where the names of its tools start with `b_`."""

from __future__ import annotations

import sys
from pathlib import Path

from toolwire import Gateway

server = Gateway("front").add("b", [sys.executable, "-m", "toolwire", "run", str(Path(__file__).with_name("shop.py"))])
