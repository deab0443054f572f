"""The command that starts this library in another process."""

from __future__ import annotations

import sys
from typing import Final

# `-m` alone searches the working directory first, so a file such as toolwire.py or typing.py of any folder that a
# server is started in would run. `-P` leaves that folder out. `run` adds the folder of the server's own file.
TOOLWIRE: Final = (sys.executable, "-P", "-m", "toolwire")
