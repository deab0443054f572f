"""The inspector: a web page to explore a server, call it, and see all messages.

`Inspector` holds the client and what it knows of the server. `InspectorApp` serves that to a page in a browser on the
same machine.
"""

from __future__ import annotations

from toolwire.inspector.app import InspectorApp
from toolwire.inspector.inspector import Inspector

__all__ = ["Inspector", "InspectorApp"]
