"""Which line of standard error tells why a program died."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.wire.exit_reason import reason

GO = """
2026/11/15 12:00:00 listening
panic: runtime error: index out of range [5] with length 3

goroutine 1 [running]:
main.main()
\t/srv/main.go:6 +0x1b
"""
GO_DEEP = """
fatal error: all goroutines are asleep - deadlock!

goroutine 1 [chan receive]:
main.(*Server).serve(0xc000012345, {0x1, 0x2})
\t/srv/main.go:12 +0x25
created by main.start in goroutine 1
\t/srv/main.go:30 +0x8f
exit status 2
"""
GO_SIGNAL = """
panic: runtime error: invalid memory address or nil pointer dereference
[signal SIGSEGV: segmentation violation code=0x1 addr=0x0 pc=0x48]

goroutine 1 [running]:
main.main()
\t/srv/main.go:6 +0x1b
"""
RUST = """
thread 'main' panicked at src/main.rs:2:5:
no key in the configuration
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
"""
RUST_TRACE = """
thread 'main' (4711) panicked at src/main.rs:2:5:
no key in the configuration
stack backtrace:
   0: rust_begin_unwind
             at /rustc/0000/library/std/src/panicking.rs:647:5
   1: main::main
             at ./src/main.rs:2:5
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.
"""
RUST_OLD = "thread 'main' panicked at 'no key', src/main.rs:2:5\nnote: run with `RUST_BACKTRACE=1`"
ANYHOW = "Error: cannot start\n\nCaused by:\n    connection refused"
NODE = """
/srv/index.js:10
    throw new Error("no key");
    ^

Error: no key
    at Object.<anonymous> (/srv/index.js:10:11)
    at node:internal/main/run_main_module:23:47 {
  code: 'ENOKEY',
  path: '/srv'
}

Node.js v20.20.2
"""
NODE_CAUGHT = """
Server error: Error: no key
    at main (file:///srv/index.js:10:11)
    at process.processTicksAndRejections (node:internal/process/task_queues:95:5) {
  code: 'ENOKEY'
}
"""
NODE_DEPRECATED = """
Fatal: no key
(node:42) [DEP0040] DeprecationWarning: The `punycode` module is deprecated.
(Use `node --trace-deprecation ...` to show where the warning was created)
"""
PYTHON = """
Traceback (most recent call last):
  File "server.py", line 3, in <module>
    raise ValueError("no key")
ValueError: no key
"""
PYDANTIC = """
Traceback (most recent call last):
  File "server.py", line 3, in <module>
    Settings()
pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings
api_key
  Field required [type=missing, input_value={}, input_type=dict]
    For further information visit https://errors.example/missing
"""
PYTHON_WARNED = """
cannot open the database
/usr/lib/python3/site-packages/old.py:12: DeprecationWarning: use new instead
  warnings.warn("use new instead", DeprecationWarning)
"""
ONLY_WARNED = """
/usr/lib/python3/site-packages/old.py:12: DeprecationWarning: use new instead
  warnings.warn("use new instead", DeprecationWarning)
"""
JAVA = 'Exception in thread "main" java.lang.IllegalStateException: no key\n\tat Main.main(Main.java:3)\n\t... 5 more'
DOTNET = "Unhandled exception. System.InvalidOperationException: no key\n   at Program.Main() in /srv/Program.cs:line 3"
NPM = "npm error code E404\nnpm error 404 Not Found - GET http://r/x\nnpm error A complete log of this run is"
HANDLED = "thread 'worker' panicked at src/a.rs:1:1:\nlost\nstarting again\nno key"


@cases(
    ("stderr", "expected"),
    [
        (GO, "panic: runtime error: index out of range [5] with length 3"),
        (GO_DEEP, "fatal error: all goroutines are asleep - deadlock!"),
        (GO_SIGNAL, "panic: runtime error: invalid memory address or nil pointer dereference"),
        (RUST, "thread 'main' panicked at src/main.rs:2:5: no key in the configuration"),
        (RUST_TRACE, "thread 'main' (4711) panicked at src/main.rs:2:5: no key in the configuration"),
        (RUST_OLD, "thread 'main' panicked at 'no key', src/main.rs:2:5"),
        (ANYHOW, "Error: cannot start"),
        (NODE, "Error: no key"),
        (NODE_CAUGHT, "Server error: Error: no key"),
        (NODE_DEPRECATED, "Fatal: no key"),
        (PYTHON, "ValueError: no key"),
        (PYDANTIC, "pydantic_core._pydantic_core.ValidationError: 1 validation error for Settings"),
        (PYTHON_WARNED, "cannot open the database"),
        (ONLY_WARNED, ""),
        (JAVA, 'Exception in thread "main" java.lang.IllegalStateException: no key'),
        (DOTNET, "Unhandled exception. System.InvalidOperationException: no key"),
        (NPM, "npm error 404 Not Found - GET http://r/x"),
        (HANDLED, "no key"),
        ("starting\n\x1b[31mno key\x1b[0m\n", "no key"),
        ("   indented only", "indented only"),
        ("", ""),
    ],
)
def test_the_line_that_tells_why(stderr: str, expected: str) -> None:
    assert reason(stderr.split("\n")) == expected


@given(st.lists(st.text(max_size=40), max_size=20))
def test_whatever_was_written_it_is_a_line_of_it_or_two(lines: list[str]) -> None:
    found = reason(lines)
    assert len(found) <= 100
