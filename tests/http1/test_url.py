"""The origin of a URL, for plain URLs and for those that hide something before their path."""

from __future__ import annotations

from tests.cases import cases

from toolwire.http1.url import origin


@cases(
    ("url", "expected"),
    [
        ("https://api.example/v1?q=1", "https://api.example"),
        ("https://API.example:443/v1", "https://api.example"),
        ("http://api.example:80/", "http://api.example"),
        ("http://127.0.0.1:8080/a/b", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:99999/a", "http://127.0.0.1"),
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
