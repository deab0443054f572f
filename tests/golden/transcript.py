"""Golden transcripts: reading and writing them, and what may differ between two runs.

A transcript is a text file: lines that start with `#` say what it is, then each line is an arrow and a message. "→"
went to the server, "←" came from it. What is random in a message stands there as a placeholder, such as
`<requestState 1>`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

FOLDER = Path(__file__).resolve().parent
SCENARIOS = ("tools", "reading", "reports", "asking", "changes")

Direction = Literal["→", "←"]
Line = tuple[Direction, Any]

# Members whose value is random, or sealed with the time in it.
RANDOM = ("requestState", "elicitationId")
ERROR_ID = re.compile(r"error id [0-9a-f]+")


@dataclass
class Transcript:
    header: dict[str, str]
    lines: list[Line]

    @property
    def revision(self) -> str:
        return self.header["revision"]

    @property
    def text(self) -> str:
        head = [f"# {name}: {value}" for name, value in self.header.items()]
        body = [
            f"{arrow} {json.dumps(message, ensure_ascii=False, separators=(',', ':'))}" for arrow, message in self.lines
        ]
        return "\n".join([*head, *body, ""])


def path_of(revision: str, scenario: str) -> Path:
    return FOLDER / f"{revision}-{scenario}.txt"


def read(path: Path) -> Transcript:
    header: dict[str, str] = {}
    lines: list[Line] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            name, _, value = line[2:].partition(": ")
            header[name] = value
        elif line:
            lines.append(parse(line))
    return Transcript(header, lines)


def parse(line: str) -> Line:
    arrow, _, message = line.partition(" ")
    return cast(Direction, arrow), json.loads(message)


class Placeholders:
    """Exchanges what is random for placeholders, numbered as they appear."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, str] = {}
        self._counts = dict.fromkeys(RANDOM, 0)

    def put(self, value: Any, member: str = "") -> Any:
        """A message with placeholders in it."""
        if isinstance(value, dict):
            return {key: self.put(item, key) for key, item in value.items()}
        if isinstance(value, list):
            return [self.put(item) for item in value]
        if not isinstance(value, str):
            return value
        return self._name(value, member) if member in RANDOM else ERROR_ID.sub("error id <id>", value)

    def _name(self, value: str, member: str) -> str:
        if value not in self._names:
            self._counts[member] += 1
            name = self._names[value] = f"<{member} {self._counts[member]}>"
            self._values[name] = value
        return self._names[value]

    def take(self, value: Any) -> Any:
        """A message with what the placeholders in it stand for."""
        if isinstance(value, dict):
            return {key: self.take(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.take(item) for item in value]
        return self._values.get(value, value) if isinstance(value, str) else value
