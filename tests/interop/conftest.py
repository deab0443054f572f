"""Everything here needs other libraries, which `make interop` installs; without them only test_peers.py says so."""

from __future__ import annotations

import os

collect_ignore_glob = [] if "TOOLWIRE_PEERS" in os.environ else ["test_foreign_*.py"]
