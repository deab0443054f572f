"""Counts and shows what Toolwire runs for one call, on eight ways through the code.

A walk is one call in a process that counts the bytecode instructions (opcodes) and the function calls in frames of
`toolwire`. Opcodes do not depend on the machine or its load, so that CI can compare them with `counts.toml`.
"""
