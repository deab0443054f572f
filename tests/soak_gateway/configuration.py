"""The file of the gateway in `make soak-gateway`, which changes while calls run: rightly, and wrongly in between."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.soak_gateway.processes import Back
from tests.soak_gateway.traffic import KEYS, SECRETS

from toolwire.auth import Principal
from toolwire.auth.vault.records import Owner
from toolwire.auth.verify.keys import PROVIDER
from toolwire.gateway.config import gateway_of


@dataclass
class Change:
    """One change of the file."""

    about: str
    concerns: list[Back] = field(default_factory=list)
    """The servers whose entries change: calls in flight there end where they began."""
    added: Back | None = None
    removed: Back | None = None
    text: str | None = None
    """What stands in the file instead of JSON."""


class Configuration:
    """The file, and what is changed in it, one thing after the other."""

    def __init__(self, file: Path, backs: list[Back], extra: Back, own_url: str) -> None:
        """`extra` is the server that comes and goes. `own_url` is the address of the gateway itself."""
        self._file = file
        self._extra = extra
        self._own_url = own_url
        self._backs = {back.name: back for back in backs}
        self._entries: dict[str, dict[str, Any]] = {back.name: back.entry() for back in backs}
        self._gateway: dict[str, Any] = {
            "name": "soak",
            "limits": LIMITS,
            "auth": {"api_keys": {"keys": {name: {"key": key} for name, key in KEYS.items()}}},
            "secret": "32 bytes that seal the accounts of users",
            "stores": str(file.with_name("stores.db")),
        }
        self._numbers = itertools.count(1)
        self.changes: Iterator[Callable[[], Change]] = itertools.cycle(
            [
                self._add,
                self._half_written,
                self._other_prefix,
                self._other_timeout,
                self._unknown_key,
                self._other_environment,
                self._circle,
                self._rename_a_tool,
                self._other_limits,
                self._remove,
                self._not_a_gateway,
            ]
        )

    async def keep_secrets(self) -> None:
        """Put the secrets of users into the store of the gateway, as its page does."""
        gateway = gateway_of(self._file)
        for user, secret in SECRETS.items():
            owner = Owner.from_principal(Principal(user, provider=PROVIDER))
            await gateway.vault.store("account", owner, secret, identity=gateway.vault.identity("account"))
        gateway.stores.close()

    def write(self, text: str | None = None) -> None:
        content = {"mcpServers": self._entries, "gateway": self._gateway}
        written = json.dumps(content, indent=1) if text is None else text
        # Most editors write another file and rename it. Others write in place, as here in every other change.
        if next(self._numbers) % 2:
            draft = self._file.with_suffix(".draft")
            draft.write_text(written)
            draft.replace(self._file)
        else:
            self._file.write_text(written)

    def _add(self) -> Change:
        self._entries.pop("circle", None)
        self._extra.prefix = self._extra.name
        self._extra.renamed = {}
        self._entries[self._extra.name] = self._extra.entry()
        return Change("a server is added", added=self._extra)

    def _remove(self) -> Change:
        del self._entries[self._extra.name]
        return Change("a server is removed", [self._extra], removed=self._extra)

    def _other_prefix(self) -> Change:
        self._extra.prefix = "renamed"
        self._entries[self._extra.name]["prefix"] = "renamed_"
        return Change("the prefix of a server changes", [self._extra], added=self._extra, removed=self._extra)

    def _rename_a_tool(self) -> Change:
        self._extra.renamed = {"echo": "repeat"}
        self._entries[self._extra.name]["tools"] = {"echo": {"rename": "repeat"}}
        return Change("a tool is renamed", [self._extra], added=self._extra, removed=self._extra)

    def _other_timeout(self) -> Change:
        for name in ("modern", "legacy"):
            self._entries[name]["timeout"] = 60.0 + next(self._numbers)
        return Change("the timeouts of two servers change", [self._backs["modern"], self._backs["legacy"]])

    def _other_environment(self) -> Change:
        for name in ("child", "oldchild"):
            self._entries[name]["env"]["SOAK_NUMBER"] = str(next(self._numbers))
        return Change("the environment of two servers changes", [self._backs["child"], self._backs["oldchild"]])

    def _other_limits(self) -> Change:
        self._entries.pop("circle", None)
        self._gateway["limits"] = {**LIMITS, "in_flight": 256 + next(self._numbers) % 2}
        return Change("the limits of the gateway change", list(self._backs.values()))

    def _circle(self) -> Change:
        self._entries["circle"] = {"url": self._own_url}
        return Change("the gateway is put behind itself")

    def _half_written(self) -> Change:
        whole = json.dumps({"mcpServers": self._entries}, indent=1)
        return Change("the file is written by half", text=whole[: len(whole) // 2])

    def _unknown_key(self) -> Change:
        entries = {name: {**entry, "timeuot": 1} for name, entry in self._entries.items()}
        return Change("the file has an unknown key", text=json.dumps({"mcpServers": entries}))

    def _not_a_gateway(self) -> Change:
        return Change("the file names no server", text="{}")


#: What clients leave behind goes soon, so that a short run sees it go. All clients have one address.
LIMITS = {"session_idle": 20.0, "state": 20.0, "share": 1.0, "task_ttl": 60.0}
