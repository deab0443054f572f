"""Help for tests of servers.

```python
async with testing.connect(server, revision="2025-11-25") as (client, wire):
    await client.call_tool("add", {"a": 1, "b": 2})
    assert wire.sent[-1]["method"] == "tools/call"
```

* Connecting: `connect`, and `replaced` for the dependencies of handlers.
* Fuzzing: `fuzz`.
* Security: `permissions`, `issuer`, `attack`, `exhaust`; `TamperedSkills` for tests of a host.
* APIs: `replay` for the tools of an API description, `stubbed` for an API in this process.
* Performance: `load`, `time_out`, `no_leaks`; `clock` and `elapse` let time pass.
* Error reporting: `both_sides`.
* Views of MCP Apps: `view`.
* Types of the fixtures of the pytest plugin: `ServerFixture`, `SurfaceFixture`, `FuzzFixture`, `HostileFixture`,
  `ViewFixture`.

A check that fails raises `AssertionError` with the finding, so it works in any test runner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolwire.testing.api_stubs import Replayed, StubApi, StubRequest, replay, stubbed
from toolwire.testing.authorization import Issuer, Permission, Permissions, issuer, permissions
from toolwire.testing.clocks import Clock, clock, elapse
from toolwire.testing.connecting import Over, Serves, Wire, connect
from toolwire.testing.failures import Failure
from toolwire.testing.fuzzing import fuzz
from toolwire.testing.hostile import attack
from toolwire.testing.leaks import no_leaks
from toolwire.testing.loading import Load, Refusal, exhaust, load
from toolwire.testing.outcomes import BothSides, Outcome, both_sides
from toolwire.testing.overrides import replaced
from toolwire.testing.scripted_views import ScriptedView, View
from toolwire.testing.tampered_skills import SkillTampering, TamperedSkills
from toolwire.testing.timeouts import TimedOut, time_out
from toolwire.testing.views import ViewOptions, view

if TYPE_CHECKING:
    from toolwire.testing.pytest_fixtures import FuzzFixture as FuzzFixture
    from toolwire.testing.pytest_fixtures import HostileFixture as HostileFixture
    from toolwire.testing.pytest_fixtures import ServerFixture as ServerFixture
    from toolwire.testing.pytest_fixtures import SurfaceFixture as SurfaceFixture
    from toolwire.testing.pytest_fixtures import ViewFixture as ViewFixture

__all__ = [
    "BothSides",
    "Clock",
    "Failure",
    "FuzzFixture",
    "HostileFixture",
    "Issuer",
    "Load",
    "Outcome",
    "Over",
    "Permission",
    "Permissions",
    "Refusal",
    "Replayed",
    "ScriptedView",
    "ServerFixture",
    "Serves",
    "SkillTampering",
    "StubApi",
    "StubRequest",
    "SurfaceFixture",
    "TamperedSkills",
    "TimedOut",
    "View",
    "ViewFixture",
    "ViewOptions",
    "Wire",
    "attack",
    "both_sides",
    "clock",
    "connect",
    "elapse",
    "exhaust",
    "fuzz",
    "issuer",
    "load",
    "no_leaks",
    "permissions",
    "replaced",
    "replay",
    "stubbed",
    "time_out",
    "view",
]

_FIXTURES = frozenset({"FuzzFixture", "HostileFixture", "ServerFixture", "SurfaceFixture", "ViewFixture"})


def __getattr__(name: str) -> Any:
    if name not in _FIXTURES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # Imported here because it imports pytest, which other test runners do not need.
    from toolwire.testing import pytest_fixtures

    return getattr(pytest_fixtures, name)
