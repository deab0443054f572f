"""What was seen of each pair, and the table of it."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.interop import peers
from tests.pairs.differences import ALLOWED
from tests.pairs.plans import PAIRS, PROBES, SERVERS, Pair

FOLDER = peers.ROOT / ".bench" / "pairs"
KINDS = ("equal", "differ as allowed", "not offered", "wrong")


def note(pair: Pair, verdicts: dict[str, str], direct: dict[str, Any], through: dict[str, Any]) -> None:
    """Keep what was seen of a pair."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    seen = {"server": pair.server.name, "verdicts": verdicts, "direct": direct, "through": through}
    (FOLDER / f"{pair.name}.json").write_text(json.dumps(seen, indent=1), encoding="utf-8")


def read_notes() -> list[dict[str, Any]]:
    """Return what was seen of each pair that was played."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(FOLDER.glob("*.json"))]


def kind_of(verdict: str) -> str:
    if verdict in ("equal", "wrong"):
        return verdict
    return "not offered" if verdict.startswith("not offered") else "differ as allowed"


def find_unused() -> list[str]:
    """Return the differences that are allowed and were not seen in any pair; none unless all pairs were played."""
    notes = read_notes()
    if len(notes) < len(PAIRS):
        return []
    seen = {name for each in notes for verdict in each["verdicts"].values() for name in verdict.split("; ")}
    return sorted({each.name for each in ALLOWED} - seen)


def write(notes: list[dict[str, Any]]) -> str:
    """Write the table: for each server and probe, how many values are equal, differ as allowed, or are not offered."""
    servers = [server.name for server in SERVERS]
    lines = [
        "Equal + different as allowed / pairs. `-`: not offered, with the reasons below.",
        "",
        "| probe | " + " | ".join(servers) + " |",
        "|---" * (len(servers) + 1) + "|",
    ]
    reasons = set()
    for probe in PROBES:
        cells = []
        for server in servers:
            verdicts = [each["verdicts"][probe] for each in notes if each["server"] == server]
            kinds = Counter(kind_of(verdict) for verdict in verdicts)
            made = len(verdicts) - kinds["not offered"]
            wrong = f", {kinds['wrong']} wrong" if kinds["wrong"] else ""
            cells.append(f"{kinds['equal']}+{kinds['differ as allowed']}/{made}{wrong}" if made else "-")
            reasons |= {f"{probe}: {verdict}" for verdict in verdicts if kind_of(verdict) == "not offered"}
        lines.append(f"| {probe} | " + " | ".join(cells) + " |")
    lines += ["", *(f"- {reason}" for reason in sorted(reasons)), ""]
    lines += [f"- {each.name} ({', '.join(each.probes)}): {each.reason}" for each in ALLOWED]
    file = FOLDER / "table.md"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(file.relative_to(peers.ROOT))
