"""The origin of a URL, for plain URLs and for those that hide something before their path, or are spelled otherwise."""

from __future__ import annotations

import pytest
from tests.cases import cases

from toolwire.http1.url import origin, parse_url


@cases(
    ("url", "expected"),
    [
        ("https://api.example/v1?q=1", "https://api.example"),
        ("https://API.example:443/v1", "https://api.example"),
        ("http://api.example:80/", "http://api.example"),
        ("http://127.0.0.1:8080/a/b", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:99999/a", "http://127.0.0.1:?"),
        ("https://api.example", "https://api.example"),
        ("https://api.example?x=/y", "https://api.example"),
        ("https://api.example#x/y", "https://api.example"),
        ("https://user:secret@api.example/v1", "https://api.example"),
        ("https://api.example@evil.example/v1", "https://evil.example"),
        ("https://api.example:80@evil.example/v1", "https://evil.example"),
        ("https://[2001:db8::1]:8443/v1", "https://[2001:db8::1]:8443"),
        ("HTTPS://api.example/v1", "https://api.example"),
    ],
)
def test_an_origin_is_scheme_host_and_port(url: str, expected: str) -> None:
    assert origin(url) == expected
    assert origin(url) == expected, "also when it is known already"


@cases(
    ("url", "other"),
    [
        ("https://bücher.example/v1", "https://xn--bcher-kva.example/v1"),
        ("https://BÜCHER.example/", "https://XN--BCHER-KVA.example:443/"),
        ("https://bücher\u3002example/", "https://xn--bcher-kva.example/"),
        ("https://[2001:DB8:0:0::1]/", "https://[2001:db8::1]/"),
        ("https://[::ffff:10.0.0.1]/", "https://[::ffff:a00:1]/"),
        ("https://[fe80::1%25eth0]/", "https://[FE80:0::1%eth0]/"),
        ("https://user:secret@api.example:/", "https://api.example:0443/"),
    ],
)
def test_spellings_of_one_origin_are_equal(url: str, other: str) -> None:
    assert origin(url) == origin(other)
    assert origin(origin(url)) == origin(url)


@cases(
    ("url", "other"),
    [
        ("https://[fe80::1%25eth0]/", "https://[fe80::1%25ETH0]/"),
        ("https://[fe80::1%25eth0]/", "https://[fe80::1]/"),
        ("https://[::ffff:10.0.0.1]/", "https://10.0.0.1/"),
        ("https://api.example:80/", "http://api.example/"),
        ("https://api.example.evil/", "https://api.example/"),
        ("https://api.example./v1", "https://api.example/v1"),
        ("https://127.0.0.1.:8443/", "https://127.0.0.1:8443"),
    ],
)
def test_other_hosts_zones_schemes_and_ports_are_other_origins(url: str, other: str) -> None:
    assert origin(url) != origin(other)


@cases(
    ("url", "known"),
    [
        ("https://api.example:99999/", "https://api.example/"),
        ("https://api.example:x/", "https://api.example/"),
        ("https://api.example../", "https://api.example/"),
        ("https://api%2eexample/", "https://api.example/"),
        ("https://evil.example\\@api.example/", "https://api.example/"),
        ("https://[2001:db8::1]evil.example/", "https://[2001:db8::1]/"),
        ("https://[2001:db8::1/", "https://[2001:db8::1]/"),
        ("https://[fe80::1%25]/", "https://[fe80::1]/"),
        # IDNA 2003 reads `ß` as `ss`, and a zero width joiner as nothing; IDNA 2008 does not.
        ("https://straße.example/", "https://strasse.example/"),
        ("https://ap\u200di.example/", "https://api.example/"),
    ],
)
def test_a_url_that_cannot_be_requested_is_of_no_known_origin(url: str, known: str) -> None:
    assert origin(url) != origin(known)
    with pytest.raises(ValueError, match=r"not |Port |label "):
        parse_url(url)
