"""Reading `WWW-Authenticate`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.auth.flow.challenges import MAX_LENGTH, Challenge, oauth_challenge, parse_challenges


@pytest.mark.covers("6.2.1")
@cases(
    ("header", "expected"),
    [
        ("", []),
        ("Bearer", [Challenge("bearer", {})]),
        ('Bearer realm="a, b", scope="x y"', [Challenge("bearer", {"realm": "a, b", "scope": "x y"})]),
        ('BEARER SCOPE = "x" , error=invalid_token', [Challenge("bearer", {"scope": "x", "error": "invalid_token"})]),
        ('Bearer realm="say \\"hi\\""', [Challenge("bearer", {"realm": 'say "hi"'})]),
        ("Basic dXNlcjpwYXNz==, Bearer", [Challenge("basic", {}), Challenge("bearer", {})]),
        (
            'Basic realm="x", Bearer scope="a", DPoP algs="ES256"',
            [
                Challenge("basic", {"realm": "x"}),
                Challenge("bearer", {"scope": "a"}),
                Challenge("dpop", {"algs": "ES256"}),
            ],
        ),
        ("Negotiate\nBearer scope=a", [Challenge("negotiate", {}), Challenge("bearer", {"scope": "a"})]),
        # The first of two parameters counts, and what cannot be read is passed over.
        ("Bearer scope=a, scope=b", [Challenge("bearer", {"scope": "a"})]),
        ('Bearer scope="open', [Challenge("bearer", {})]),
        (', ,"?, Bearer error=x', [Challenge("bearer", {"error": "x"})]),
    ],
)
def test_challenges(header: str, expected: list[Challenge]) -> None:
    assert parse_challenges(header) == expected


def test_what_a_challenge_says() -> None:
    header = 'Bearer resource_metadata="https://h/x", scope="a b a", error="insufficient_scope"'
    (challenge,) = parse_challenges(header)
    assert challenge.resource_metadata == "https://h/x"
    assert challenge.scopes == ("a", "b")
    assert challenge.error == "insufficient_scope"
    assert parse_challenges("Bearer")[0].scopes is None


def test_the_challenge_that_names_the_metadata_is_answered() -> None:
    found = oauth_challenge(parse_challenges('Basic realm="x", Bearer scope=a, DPoP resource_metadata="https://h"'))
    assert found is not None
    assert found.scheme == "dpop"
    assert oauth_challenge(parse_challenges("Bearer scope=a, Bearer scope=b")) == Challenge("bearer", {"scope": "a"})
    assert oauth_challenge(parse_challenges("Basic realm=x")) is None


def test_an_endless_header_is_cut() -> None:
    assert len(parse_challenges("Bearer," * MAX_LENGTH)) <= MAX_LENGTH


@given(st.text(alphabet='aB =",\\\n\t;/é\x00', max_size=60))
def test_anything_can_be_read(header: str) -> None:
    for challenge in parse_challenges(header):
        assert challenge.scheme == challenge.scheme.lower()


NAMES = st.text(alphabet="abcxyz_-", min_size=1, max_size=8)
VALUES = st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=20)


@given(st.lists(st.tuples(NAMES, st.dictionaries(NAMES, VALUES, max_size=3)), max_size=4))
def test_what_was_written_is_read(challenges: list[tuple[str, dict[str, str]]]) -> None:
    def written(scheme: str, parameters: dict[str, str]) -> str:
        quoted = [
            name + '="' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for name, text in parameters.items()
        ]
        return f"{scheme} {', '.join(quoted)}".strip()

    header = ", ".join(written(*each) for each in challenges)
    assert [(each.scheme, each.parameters) for each in parse_challenges(header)] == challenges
