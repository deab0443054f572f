"""What a run of the benchmark collects: the samples, and who could not be measured and why."""

from __future__ import annotations

import sys
from collections import defaultdict

Samples = dict[str, dict[str, list[float]]]  # what -> who -> one number a round


class Notes:
    """The samples of one run, and its failures."""

    def __init__(self) -> None:
        self.samples: Samples = defaultdict(lambda: defaultdict(list))
        self.failures: dict[str, str] = {}
        self.placement = ""
        self.counts = ""

    def note(self, what: str, who: str, value: float) -> None:
        self.samples[what][who].append(value)

    def failed(self, what: str, who: str, error: Exception) -> None:
        """Report a contender that cannot be measured, and leave it out; the others go on."""
        reason = str(error).strip() or type(error).__name__
        self.failures.setdefault(f"{what}, {who}", reason)
        say(f"    {who}: not measured ({reason})")


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
