"""Finds words and names that a reader has to decode: `make check` fails where a folder has more of them than before.

    python tests/words.py                        compares each folder with tests/words.toml
    python tests/words.py --write                lowers the counts there to what is found
    python tests/words.py --list src/toolwire/http1 docs    prints what is found in folders or files

Four kinds are counted for each folder of the package, and the first for each folder of documentation:

    words     a forbidden word in a docstring, a comment, a text or a page
    names     a function that is named with a vague verb, or with a participle
    lines     a docstring whose first sentence has more than 15 words
    classes   a public class whose name another module has, too; wire types are left out

A docstring that begins like a riddle ("What ...", "Whether ...") is refused everywhere. A new folder has no counts.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
TABLE: Final = ROOT / "tests" / "words.toml"
WIRE_TYPES: Final = "src/toolwire/protocol/types/"

KINDS: Final = ("words", "names", "lines", "classes")
MOST_WORDS: Final = 15
MOST_EXCEPTIONS: Final = 30
#: How many findings a failure prints for each count that rose.
PRINTED: Final = 40

WORDS: Final = re.compile(
    r"(?<![`-])\b(?:somebody|nobody|others|elsewhere|told|heard|goes on|whoever|is there|is away|by which)\b"
    r"|\bthat one(?=$|[,.;:)]| (?:is|was|has|had|can|may|of|that|which)\b)"
    r"|(?<!there )\bis no (?!longer\b|more than\b)",
    re.IGNORECASE,
)
NAMES: Final = re.compile(
    r"_*(?:(?:look|take|keep|settle|of|doubt|meet|heed)(?:_\w+)?|told|made|known|shown|taken)", re.ASCII
)
RIDDLES: Final = re.compile(r"(?:What|Whatever|Who|Whoever|Whom|Whose|Where|Whether|That|How|Of|Which)\b")
#: The end of a sentence. A period inside a name or a number has no blank after it.
SENTENCE: Final = re.compile(r"[.!?:](?=\s|$)")


@dataclass(frozen=True)
class Finding:
    """A word, name or sentence, and its place. `text` is what an exception has to contain."""

    file: str
    line: int
    kind: str
    text: str

    @property
    def folder(self) -> str:
        """The folder that counts it."""
        return self.file.rpartition("/")[0] or "."

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.kind}: {self.text}"


def main() -> int:
    """Run the check, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="lower the counts of the table")
    parser.add_argument("--list", nargs="+", metavar="PATH", help="print what is found in these folders or files")
    options = parser.parse_args()
    table = tomllib.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    exceptions: list[dict[str, str]] = table.pop("exceptions", [])
    findings = find_all()
    faults = [f"{finding}: begin with a verb or a noun" for finding in findings if finding.kind == "riddles"]
    faults += check_exceptions(exceptions, findings)
    findings = [finding for finding in findings if not is_excepted(finding, exceptions)]
    if options.list:
        wanted = tuple(options.list)
        for finding in findings:
            if finding.file.startswith(wanted):
                print(finding)
        return 0
    found = count(findings)
    if options.write:
        TABLE.write_text(write_table(lower(table, found), exceptions), encoding="utf-8")
        return 0
    faults += find_rises(table, found, findings)
    for line in faults:
        print(f"words: {line}", file=sys.stderr)
    if faults:
        print(
            "words: `python tests/words.py --list FOLDER` prints all; CONTRIBUTING.md has the rules.", file=sys.stderr
        )
    else:
        print(f"words: {len(found)} folders, no count above tests/words.toml, {len(exceptions)} exceptions")
    return 1 if faults else 0


def find_all(root: Path = ROOT) -> list[Finding]:
    """Find everything in the package and in the pages."""
    found: list[Finding] = []
    classes: dict[str, list[Finding]] = defaultdict(list)
    for path in sorted((root / "src").rglob("*.py")):
        file = path.relative_to(root).as_posix()
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        found += find_in_source(file, source, tree)
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not file.startswith(WIRE_TYPES):
                classes[node.name].append(Finding(file, node.lineno, "classes", node.name))
    for definitions in classes.values():
        if len({finding.file for finding in definitions}) > 1:
            found += definitions
    for path in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")]):
        found += find_in_page(path.relative_to(root).as_posix(), path.read_text(encoding="utf-8"))
    return found


def find_in_source(file: str, source: str, tree: ast.Module | None = None) -> Iterator[Finding]:
    """Find the forbidden words, vague names and long or unclear first sentences of one module."""
    for node in ast.walk(ast.parse(source) if tree is None else tree):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and " " in node.value:
                yield from _find_words(file, node.lineno, node.value)
            continue
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        line: int = getattr(node, "lineno", 1)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and NAMES.fullmatch(node.name):
            yield Finding(file, line, "names", node.name)
        text = ast.get_docstring(node)
        if not text:
            continue
        first = read_first_sentence(text)
        if len(first.split()) > MOST_WORDS:
            yield Finding(file, line, "lines", first)
        if RIDDLES.match(first):
            yield Finding(file, line, "riddles", first)
    if any("#" in line and WORDS.search(line) for line in source.splitlines()):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield from _find_words(file, token.start[0], token.string)


def find_in_page(file: str, text: str) -> Iterator[Finding]:
    """Find the forbidden words of a page. Blocks of code are left out."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield from _find_words(file, number, line)


def read_first_sentence(text: str) -> str:
    """Return the first line of a docstring, or more of it where the first sentence ends later."""
    first, *more = text.split("\n\n", 1)[0].splitlines()
    for line in more:
        if SENTENCE.search(first):
            break
        first += " " + line.strip()
    return first


def count(findings: Iterable[Finding]) -> dict[str, dict[str, int]]:
    """Count the findings by folder and kind."""
    counts: dict[str, dict[str, int]] = {}
    for (folder, kind), number in sorted(Counter((found.folder, found.kind) for found in findings).items()):
        if kind in KINDS:
            counts.setdefault(folder, {})[kind] = number
    return counts


def find_rises(
    table: Mapping[str, Mapping[str, int]], found: Mapping[str, Mapping[str, int]], findings: Iterable[Finding]
) -> list[str]:
    """Return lines about each count that is above the table."""
    lines: list[str] = []
    for folder, counts in found.items():
        for kind, number in counts.items():
            allowed = table.get(folder, {}).get(kind, 0)
            if number <= allowed:
                continue
            here = [str(finding) for finding in findings if (finding.folder, finding.kind) == (folder, kind)]
            lines += here[:PRINTED]
            lines.append(f"{folder} has {number} {kind}, and tests/words.toml allows {allowed}")
    return lines


def is_excepted(finding: Finding, exceptions: Iterable[Mapping[str, str]]) -> bool:
    """Return whether the list of exceptions has a finding."""
    return any(entry["file"] == finding.file and entry["text"] in finding.text for entry in exceptions)


def check_exceptions(exceptions: list[dict[str, str]], findings: list[Finding]) -> list[str]:
    """Return what is wrong with the list of exceptions: no reason, too many, or one that nothing needs."""
    faults = [
        f"exception {entry['text']!r} of {entry['file']} has no reason"
        for entry in exceptions
        if not entry.get("reason")
    ]
    faults += [
        f"exception {entry['text']!r} of {entry['file']} is not needed: remove it"
        for entry in exceptions
        if not any(is_excepted(finding, [entry]) for finding in findings)
    ]
    if len(exceptions) > MOST_EXCEPTIONS:
        faults.append(f"{len(exceptions)} exceptions, and {MOST_EXCEPTIONS} are allowed")
    return faults


def lower(table: Mapping[str, Mapping[str, int]], found: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, int]]:
    """Return the table with the counts that fell. An empty table is filled."""
    if not table:
        return {folder: dict(counts) for folder, counts in found.items()}
    lowered = {
        folder: {kind: min(number, found.get(folder, {}).get(kind, 0)) for kind, number in counts.items()}
        for folder, counts in table.items()
    }
    return {
        folder: kept for folder, counts in lowered.items() if (kept := {kind: n for kind, n in counts.items() if n})
    }


def write_table(counts: Mapping[str, Mapping[str, int]], exceptions: Iterable[Mapping[str, str]]) -> str:
    """Return the table as TOML."""
    lines = [
        "# Words and names that a reader has to decode, by folder: tests/words.py says what is counted.",
        "# `make check` fails where a count rises. After it fell: `python tests/words.py --write`.",
    ]
    for entry in exceptions:
        members = (f'{member} = "{entry[member]}"' for member in ("file", "text", "reason"))
        lines += ["", "[[exceptions]]", *members]
    for folder, kinds in sorted(counts.items()):
        lines += ["", f'["{folder}"]', *(f"{kind} = {kinds[kind]}" for kind in KINDS if kind in kinds)]
    return "\n".join(lines) + "\n"


def _find_words(file: str, line: int, text: str) -> Iterator[Finding]:
    for offset, row in enumerate(text.splitlines()):
        for found in WORDS.finditer(row):
            yield Finding(file, line + offset, "words", f"{found[0].strip()}: {row.strip()}")


if __name__ == "__main__":
    sys.exit(main())
