"""Runs the `toolwire` command. On SIGUSR2 the process writes down how many tasks and objects it has.

    SOAK_FIGURES=FILE python observed.py gateway gateway.toml

The figures that the kernel knows, such as memory and descriptors, are read from outside.
"""

from __future__ import annotations

import asyncio
import collections
import gc
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from toolwire.cli import main

FIGURES = Path(os.environ["SOAK_FIGURES"])


def write_figures(number: int, frame: Any) -> None:
    gc.collect()
    objects = gc.get_objects()
    kinds = collections.Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in objects)
    # The handler runs in the main thread, which is the one of the loop.
    tasks = asyncio.all_tasks(asyncio.get_running_loop())
    names = collections.Counter(getattr(task.get_coro(), "__qualname__", "?") for task in tasks)
    figures = {"tasks": len(tasks), "objects": len(objects), "names": names, "kinds": dict(kinds.most_common(400))}
    # A file that is there is complete.
    draft = FIGURES.with_suffix(".draft")
    draft.write_text(json.dumps(figures))
    draft.replace(FIGURES)


signal.signal(signal.SIGUSR2, write_figures)

if __name__ == "__main__":
    sys.exit(main())
