"""Stand between a client and a stdio server, pass every line on, and write down both directions in order.

`python tee.py TRANSCRIPT COMMAND...` is started in the server's place. A line is written down before it is passed on,
so that nothing appears before what caused it. Only the standard library is used: any client may start this.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import IO


def main(target: str, command: list[str]) -> int:
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None and server.stdout is not None
    lock = threading.Lock()
    with Path(target).open("ab") as transcript:

        def pump(arrow: str, source: IO[bytes], sink: IO[bytes]) -> None:
            for line in source:
                with lock:
                    transcript.write(arrow.encode() + b" " + line)
                    transcript.flush()
                sink.write(line)
                sink.flush()

        answers = threading.Thread(target=pump, args=("←", server.stdout, sys.stdout.buffer))
        answers.start()
        pump("→", sys.stdin.buffer, server.stdin)
        server.stdin.close()
        answers.join()
    return server.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
