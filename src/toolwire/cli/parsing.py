"""The parser of a command's words. An error proposes what was probably meant."""

from __future__ import annotations

from argparse import Action, ArgumentError, ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from toolwire.cli.errors import UsageError


class CommandParser(ArgumentParser):
    """An `ArgumentParser` that raises `UsageError` instead of printing its usage."""

    def parse_words(self, words: Sequence[str], *, intermixed: bool) -> Any:
        """Parse the words of a command; raise `UsageError` for an unknown word."""
        parse = self.parse_known_intermixed_args if intermixed else self.parse_known_args
        arguments, unknown = parse(words)
        if unknown:
            option = next((word for word in unknown if word.startswith("-") and word != "-"), None)
            if option is None:
                self.error(f"unexpected argument {unknown[0]!r}")
            name = option.partition("=")[0]
            self.error(f"unknown option {name}{suggest(name, self._option_string_actions)}")
        return arguments

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (`{self.prog} --help` explains the command)")

    def _check_value(self, action: Action, value: Any) -> None:
        # The parser of Python lists the choices and proposes none of them.
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            text = f"{value!r} is not one of {', '.join(known)}{suggest(str(value), known)}"
            raise ArgumentError(action if action.option_strings else None, text)


def file_beside_words(words: Iterable[str]) -> Callable[[str], str]:
    """Make the argument type of a file that may also be one of these words."""

    def check(name: str) -> str:
        # A text with a dot or a slash is meant as a file, which the command looks for itself.
        if "." not in name and Path(name).name == name and not Path(name).exists():
            known = list(words)
            if meant := suggest(name, known):
                raise ArgumentTypeError(f"{name!r} is neither a file nor one of {', '.join(known)}{meant}")
        return name

    return check


def suggest(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean …?` if a word resembles a known one; otherwise ""."""
    # Imported here because mistakes are rare.
    from toolwire.schemas.wording import nearest

    # The dashes of options are left out, because they make any two of them alike.
    names = {each.lstrip("-"): each for each in known}
    meant = nearest(word.lstrip("-"), list(names))
    return "" if meant is None else f"; did you mean {names[meant]}?"
