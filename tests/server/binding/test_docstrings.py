"""Docstrings in the three common layouts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.server.binding.docstrings import Docstring, parse

GOOGLE = """Forecast for a city.

    Longer text: with a colon.

    Args:
        city: Name of the city.
        days (int, optional): How many days ahead,
            one to ten.
        **extra: Whatever else.

    Returns:
        A list.
    """

NUMPY = """Forecast for a city.

    Longer text: with a colon.

    Parameters
    ----------
    city : str
        Name of the city.
    days : int, optional
        How many days ahead,
        one to ten.
    **extra
        Whatever else.

    Returns
    -------
    list
        A list.
    """

REST = """Forecast for a city.

    Longer text: with a colon.

    :param city: Name of the city.
    :type city: str
    :param int days: How many days ahead,
        one to ten.
    :param extra: Whatever else.
    :returns: A list.
    """


@cases("text", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_parameters_are_found_and_leave_the_description(text: str) -> None:
    found = parse(text)
    assert found.parameters == {
        "city": "Name of the city.",
        "days": "How many days ahead, one to ten.",
        "extra": "Whatever else.",
    }
    assert found.description.startswith("Forecast for a city.\n\nLonger text: with a colon.\n\n")
    assert "A list." in found.description
    assert "Name of the city" not in found.description
    assert "Args" not in found.description
    assert "Parameters" not in found.description


def test_no_docstring() -> None:
    assert parse(None) == parse("") == Docstring("", {})


def test_a_description_alone_stays_whole() -> None:
    assert (
        parse("Just a sentence.\n\n    Example:\n        f(1)\n").description
        == "Just a sentence.\n\nExample:\n    f(1)"
    )


def test_a_heading_over_something_else_stays() -> None:
    text = "Runs it.\n\nArgs:\n    are not described here\n"
    assert parse(text) == Docstring("Runs it.\n\nArgs:\n    are not described here", {})


def test_text_after_the_section_stays() -> None:
    found = parse("First.\n\nArgs:\n    a: One.\n\n    b: Two.\nAfter all.")
    assert found == Docstring("First.\n\nAfter all.", {"a": "One.", "b": "Two."})


def test_several_names_share_a_text() -> None:
    assert parse("X.\n\nParameters\n----------\na, b : int\n    Both.\n").parameters == {"a": "Both.", "b": "Both."}


@given(st.text(alphabet=" \n:abArgsPm-()*"))
def test_no_text_is_too_odd(text: str) -> None:
    assert isinstance(parse(text), Docstring)
