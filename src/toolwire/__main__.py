"""`python -m toolwire`: the same as the `toolwire` command."""

from __future__ import annotations

import sys

from toolwire.cli import start

if __name__ == "__main__":
    sys.exit(start())
