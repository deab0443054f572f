"""Parts of `Server` and `Client` from packages above them, loaded when first used.

A module imports its own layer and the layers below. This table is the one way upwards: a method of `Server` or `Client`
asks for its part by name, and the package is imported then. `tests/test_layers.py` lists the entries.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

#: The name of a part -> the module and the name in it.
PARTS: Final[dict[str, tuple[str, str]]] = {
    "verified_body": ("toolwire.skills.verified_body", "verified_body"),
    "server.app": ("toolwire.apps.served", "ServedApps"),
    "server.skills": ("toolwire.skills.served", "ServedSkills"),
    "client.gateway": ("toolwire.gateway.client_gateway", "ClientGateway"),
    "server.from_asgi": ("toolwire.openapi.included", "server_of_application"),
    "server.include": ("toolwire.openapi.included", "IncludedApis"),
    "server.mount": ("toolwire.gateway.upstream", "remote"),
}


def load_part(name: str) -> Any:
    """Return the class or function of a part.

    Its package is imported by the first call.
    """
    module, attribute = PARTS[name]
    return getattr(import_module(module), attribute)
