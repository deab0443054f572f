"""The public names, and that importing the package costs nothing until a name is used."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest
from tests.cases import cases

import toolwire
from toolwire import auth, errors
from toolwire.protocol import errors as protocol_errors

NAMES = {
    "Server",
    "Tasks",
    "Client",
    "Gateway",
    "Context",
    "SyncContext",
    "Depends",
    "Tool",
    "Resource",
    "ResourceTemplate",
    "Progress",
    "Prompt",
    "Argument",
    "Header",
    "Message",
    "Text",
    "Image",
    "Audio",
    "File",
    "ResourceLink",
    "ToolResult",
    "ToolError",
    "ProtocolError",
    "Middleware",
    "Limits",
    "Policy",
    "scan",
    "types",
    "testing",
    "__version__",
}


def loaded_after(statement: str) -> set[str]:
    """The modules a fresh interpreter has loaded after one statement."""
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_public_names_are_exactly_these() -> None:
    assert set(toolwire.__all__) == NAMES
    assert len(toolwire.__all__) == len(NAMES)


@cases("name", sorted(NAMES))
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(toolwire, name) is not None
    assert name in dir(toolwire)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = toolwire.no_such_name


def test_no_name_of_authorization_is_a_module_too() -> None:
    """Importing a module makes it an attribute of its package, where it would stand in the place of the name."""
    assert not [name for name in auth.__all__ if find_spec(f"toolwire.auth.{name}") is not None]


def test_importing_the_package_loads_no_submodule() -> None:
    ours = {name for name in loaded_after("import toolwire") if name.startswith("toolwire.")}
    assert ours <= {"toolwire._version"}


def test_importing_the_server_loads_nothing_heavy() -> None:
    loaded = loaded_after("from toolwire import Server")
    assert "toolwire.server" in loaded
    assert loaded & {"pydantic", "jsonschema_rs", "httptools", "uvicorn", "annotated_types"} == set()
    # The server does not know the client, so a server script does not pay for it.
    assert loaded & {"toolwire.client", "toolwire.gateway"} == set()
    # Nor for what only validates, and for what starts processes.
    assert loaded & {"toolwire.schemas.engine", "toolwire.schemas.faults", "toolwire.wire.subprocess"} == set()


def test_the_home_of_errors_has_all_that_both_sides_raise() -> None:
    raised = {
        name
        for name, value in vars(protocol_errors).items()
        if isinstance(value, type) and issubclass(value, protocol_errors.ToolwireError)
    }
    codes = {name for name, value in vars(protocol_errors).items() if isinstance(value, int) and name.isupper()}
    assert set(errors.__all__) == raised | codes
    assert "toolwire.client" not in loaded_after("from toolwire.errors import ToolError")


def test_names_of_a_package_that_are_resolved_late_can_be_the_first_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from toolwire.gateway import ConfigurationStatus"], capture_output=True, text=True
    )
    assert done.stderr == ""
