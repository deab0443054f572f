"""Bindings: the schemas, the argument reader and the result converter of a function.

All of it is worked out once, when the function is registered, so that a call does no more than it has to. `signature`
and `docstrings` say what the author wrote, `arguments` reads what callers send, `results` turns values into answers.
"""

from __future__ import annotations

from toolwire.server.binding.arguments import InvalidArguments
from toolwire.server.binding.binding import Binding, BoundFunction, bind
from toolwire.server.binding.results import ResultError
from toolwire.server.binding.signature import is_lambda
from toolwire.server.header_arguments import Header

__all__ = ["Binding", "BoundFunction", "Header", "InvalidArguments", "ResultError", "bind", "is_lambda"]
