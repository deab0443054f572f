"""The pure core: every rule of the specification, with no I/O, no `async`, no clock and no randomness."""
