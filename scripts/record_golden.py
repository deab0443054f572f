"""Record the golden transcripts of tests/golden from clients that we did not write.

Each revision is recorded from a release of the python `mcp` package that offers it as its own: the client is started in
the environment of that release (`tests/interop/peers.py` installs them) and a tee stands between it and the fixture.

    python scripts/record_golden.py             say which transcripts would change
    python scripts/record_golden.py --update    write them
"""

from __future__ import annotations

import argparse
import difflib
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.golden import transcript  # noqa: E402
from tests.interop import peers  # noqa: E402

# The revision, and the release whose newest revision it is.
CLIENTS = {
    "2024-11-05": "mcp-1.6.0",
    "2025-03-26": "mcp-1.9.4",
    "2025-06-18": "mcp-1.22.0",
    "2025-11-25": "mcp-1.30.0",
    "2026-07-28": "mcp-2.3.0",
}


def record(revision: str, scenario: str) -> transcript.Transcript:
    """Let the client of a revision play a scenario, and return what was said."""
    peer = peers.BY_NAME[CLIENTS[revision]]
    server = [sys.executable, str(transcript.FOLDER / "fixture.py")]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "transcript"
        tee = [sys.executable, str(transcript.FOLDER / "tee.py"), str(target)]
        played = subprocess.run(
            [peer.python, peer.driver, scenario, *tee, *server], capture_output=True, text=True, timeout=120
        )
        if played.returncode != 0:
            sys.exit(f"{revision} {scenario}: {peer.name} failed\n{played.stderr}")
        lines = target.read_text(encoding="utf-8").splitlines()
    placeholders = transcript.Placeholders()
    header = {
        "revision": revision,
        "scenario": scenario,
        "client": f"python {peer.name.replace('-', ' ')}, not ours; recorded on its standard input and output",
        "server": "tests/golden/fixture.py",
    }
    parsed = [transcript.parse(line) for line in lines]
    return transcript.Transcript(header, [(arrow, placeholders.put(message)) for arrow, message in parsed])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--update", action="store_true", help="write the transcripts")
    parser.add_argument("only", nargs="*", help="revisions or scenarios; all of them when left out")
    options = parser.parse_args()
    changed = 0
    for revision, client in CLIENTS.items():
        peers.install(peers.BY_NAME[client])
        for scenario in transcript.SCENARIOS:
            if options.only and revision not in options.only and scenario not in options.only:
                continue
            path = transcript.path_of(revision, scenario)
            before = path.read_text(encoding="utf-8") if path.is_file() else ""
            after = record(revision, scenario).text
            if before == after:
                continue
            changed += 1
            sys.stdout.writelines(
                difflib.unified_diff(before.splitlines(True), after.splitlines(True), path.name, path.name)
            )
            if options.update:
                path.write_text(after, encoding="utf-8")
    print(f"{changed} transcripts {'written' if options.update else 'differ'}")
    return 0 if options.update or not changed else 1


if __name__ == "__main__":
    sys.exit(main())
