from __future__ import annotations

import re
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import cases

from toolwire.protocol import uri_matching
from toolwire.protocol.uri_expressions import parse
from toolwire.protocol.uri_template import MAX_URI_LENGTH, MAX_VARIABLES, UriTemplate, Value

# The variables and the expansions that RFC 6570 gives as examples in section 3.2.
RFC_VALUES: dict[str, Value] = {
    "count": ["one", "two", "three"],
    "dom": ["example", "com"],
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "who": "fred",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "keys": {"semi": ";", "dot": ".", "comma": ","},
    "v": "6",
    "x": "1024",
    "y": "768",
    "empty": "",
    "empty_keys": {},
    "undef": None,
}

RFC_EXAMPLES = """
{count} one,two,three
{count*} one,two,three
{/count} /one,two,three
{/count*} /one/two/three
{;count} ;count=one,two,three
{;count*} ;count=one;count=two;count=three
{?count} ?count=one,two,three
{?count*} ?count=one&count=two&count=three
{&count*} &count=one&count=two&count=three
{var} value
{hello} Hello%20World%21
{half} 50%25
O{empty}X OX
O{undef}X OX
{x,y} 1024,768
{x,hello,y} 1024,Hello%20World%21,768
?{x,empty} ?1024,
?{x,undef} ?1024
?{undef,y} ?768
{var:3} val
{var:30} value
{list} red,green,blue
{list*} red,green,blue
{keys} semi,%3B,dot,.,comma,%2C
{keys*} semi=%3B,dot=.,comma=%2C
{+var} value
{+hello} Hello%20World!
{+half} 50%25
{base}index http%3A%2F%2Fexample.com%2Fhome%2Findex
{+base}index http://example.com/home/index
O{+empty}X OX
O{+undef}X OX
{+path}/here /foo/bar/here
here?ref={+path} here?ref=/foo/bar
up{+path}{var}/here up/foo/barvalue/here
{+x,hello,y} 1024,Hello%20World!,768
{+path,x}/here /foo/bar,1024/here
{+path:6}/here /foo/b/here
{+list} red,green,blue
{+list*} red,green,blue
{+keys} semi,;,dot,.,comma,,
{+keys*} semi=;,dot=.,comma=,
{#var} #value
{#hello} #Hello%20World!
{#half} #50%25
foo{#empty} foo#
foo{#undef} foo
{#x,hello,y} #1024,Hello%20World!,768
{#path,x}/here #/foo/bar,1024/here
{#path:6}/here #/foo/b/here
{#list} #red,green,blue
{#list*} #red,green,blue
{#keys} #semi,;,dot,.,comma,,
{#keys*} #semi=;,dot=.,comma=,
{.who} .fred
{.who,who} .fred.fred
{.half,who} .50%25.fred
www{.dom*} www.example.com
X{.var} X.value
X{.empty} X.
X{.undef} X
X{.var:3} X.val
X{.list} X.red,green,blue
X{.list*} X.red.green.blue
X{.keys} X.semi,%3B,dot,.,comma,%2C
X{.keys*} X.semi=%3B.dot=..comma=%2C
X{.empty_keys} X
X{.empty_keys*} X
{/who} /fred
{/who,who} /fred/fred
{/half,who} /50%25/fred
{/who,dub} /fred/me%2Ftoo
{/var} /value
{/var,empty} /value/
{/var,undef} /value
{/var,x}/here /value/1024/here
{/var:1,var} /v/value
{/list} /red,green,blue
{/list*} /red/green/blue
{/list*,path:4} /red/green/blue/%2Ffoo
{/keys} /semi,%3B,dot,.,comma,%2C
{/keys*} /semi=%3B/dot=./comma=%2C
{;who} ;who=fred
{;half} ;half=50%25
{;empty} ;empty
{;v,empty,who} ;v=6;empty;who=fred
{;v,bar,who} ;v=6;who=fred
{;x,y} ;x=1024;y=768
{;x,y,empty} ;x=1024;y=768;empty
{;x,y,undef} ;x=1024;y=768
{;hello:5} ;hello=Hello
{;list} ;list=red,green,blue
{;list*} ;list=red;list=green;list=blue
{;keys} ;keys=semi,%3B,dot,.,comma,%2C
{;keys*} ;semi=%3B;dot=.;comma=%2C
{?who} ?who=fred
{?half} ?half=50%25
{?x,y} ?x=1024&y=768
{?x,y,empty} ?x=1024&y=768&empty=
{?x,y,undef} ?x=1024&y=768
{?var:3} ?var=val
{?list} ?list=red,green,blue
{?list*} ?list=red&list=green&list=blue
{?keys} ?keys=semi,%3B,dot,.,comma,%2C
{?keys*} ?semi=%3B&dot=.&comma=%2C
{&who} &who=fred
{&half} &half=50%25
?fixed=yes{&x} ?fixed=yes&x=1024
{&x,y,empty} &x=1024&y=768&empty=
{&x,y,undef} &x=1024&y=768
{&var:3} &var=val
{&list} &list=red,green,blue
{&list*} &list=red&list=green&list=blue
{&keys} &keys=semi,%3B,dot,.,comma,%2C
{&keys*} &semi=%3B&dot=.&comma=%2C
"""


@cases("line", RFC_EXAMPLES.strip().splitlines())
def test_expands_as_the_examples_of_the_rfc(line: str) -> None:
    template, expected = line.split(" ")
    assert UriTemplate(template).expand(RFC_VALUES) == expected


def test_expands_other_scalars_and_keeps_encoded_text_where_reserved_characters_are_allowed() -> None:
    assert UriTemplate("{a}/{b}/{c}").expand({"a": 7, "b": True, "c": 0.5}) == "7/true/0.5"
    assert UriTemplate("{a}").expand({"a": "%20"}) == "%2520"
    assert UriTemplate("{+a}").expand({"a": "%20 é"}) == "%20%20%C3%A9"
    assert UriTemplate("é/{a}").expand({"a": "ü"}) == "%C3%A9/%C3%BC"


def test_a_prefix_length_takes_no_list() -> None:
    with pytest.raises(ValueError, match="'list'"):
        UriTemplate("{list:3}").expand({"list": ["a"]})


@cases(
    ("template", "position"),
    [
        ("x://{", 4),
        ("x://{a", 4),
        ("x://a}", 5),
        ("x://{}", 5),
        ("x://{a,}", 7),
        ("x://{a,b-c}", 7),
        ("x://{a{b}}", 5),
        ("x://{=a}", 5),
        ("x://{|a}", 5),
        ("x://{a:0}", 5),
        ("x://{a:10000}", 5),
        ("x://{a*:3}", 5),
        ("x://{?a b}", 6),
        ("x://{a..b}", 5),
        ("x://a b", 5),
        ("x://%zz", 4),
        ("x://\\{a}", 4),
        ("x://a\x00", 5),
    ],
)
def test_a_bad_template_is_refused_with_its_position(template: str, position: int) -> None:
    with pytest.raises(ValueError, match=rf"position {position}\b"):
        UriTemplate(template)


def test_the_size_of_a_template_is_bounded() -> None:
    with pytest.raises(ValueError, match="longer"):
        UriTemplate("x" * (MAX_URI_LENGTH + 1))
    assert len(UriTemplate("/".join(f"{{v{i}}}" for i in range(MAX_VARIABLES))).variables) == MAX_VARIABLES
    with pytest.raises(ValueError, match="variables"):
        UriTemplate("/".join(f"{{v{i}}}" for i in range(MAX_VARIABLES + 1)))


def test_variables_in_order_of_first_appearance() -> None:
    assert UriTemplate("x://{b}/{a}/{b}{?c,a}").variables == ("b", "a", "c")
    assert UriTemplate("x://{a.b}/{%41}").variables == ("a.b", "%41")


def test_literal() -> None:
    plain = UriTemplate("x://a/b")
    assert plain.literal
    assert not UriTemplate("x://{a}").literal
    assert plain.match("x://a/b") == {}
    assert plain.match("x://a/b/") is None
    assert UriTemplate("").match("") == {}
    assert UriTemplate("").match("x") is None


@pytest.mark.covers("J40", "E24")
@pytest.mark.parametrize("screen", [True, False])
def test_a_variable_is_exactly_one_segment(screen: bool) -> None:
    template = UriTemplate("station://{station_id}/latest", screen=screen)
    assert template.match("station://7/latest") == {"station_id": "7"}
    assert template.match("station://a%20b/latest") == {"station_id": "a b"}
    assert template.match("station://a/b/latest") is None
    assert template.match("station:///latest") is None
    assert template.match("station://7/latest/") is None
    assert template.match("station://7?x/latest") is None
    assert UriTemplate("x://{id}", screen=screen).match("x://7#f") is None


@pytest.mark.covers("E26")
def test_a_spanning_variable_holds_slashes() -> None:
    assert UriTemplate("file:///{+path}").match("file:///etc/hosts") == {"path": "etc/hosts"}
    assert UriTemplate("file:///{path*}").match("file:///etc/hosts") == {"path": "etc/hosts"}
    assert UriTemplate("file://{/path*}").match("file:///etc/hosts") == {"path": "etc/hosts"}
    assert UriTemplate("file:///{path}").match("file:///etc/hosts") is None
    assert UriTemplate("file:///{+path}").match("file:///") is None


@cases(
    ("template", "uri", "expected"),
    [
        ("x://{a}-{b}.json", "x://1-2-3.json", {"a": "1", "b": "2-3"}),
        ("x://{a}.json", "x://n.json.json", {"a": "n.json"}),
        ("x://{a}{b}", "x://123", {"a": "1", "b": "23"}),
        ("x://{a}{b}", "x://%31%323", {"a": "1", "b": "23"}),
        ("x://{a}2{b}", "x://x%20y2z", {"a": "x y", "b": "z"}),
        ("x://{a}2F", "x://x%2F", None),
        ("x://{a,b}", "x://1,2", {"a": "1", "b": "2"}),
        ("x://{+a}/y/{b}", "x://1/y/2/y/3", {"a": "1/y/2", "b": "3"}),
        ("x://{+a}/y/{+b}", "x://1/y/2/y/3", {"a": "1", "b": "2/y/3"}),
        ("x://{+a}/raw", "x://1/raw/2/raw", {"a": "1/raw/2"}),
        ("up{+path}{var}/here", "upfoo/barvalue/here", {"path": "foo/", "var": "barvalue"}),
        ("x://a{.ext}", "x://a.txt", {"ext": "txt"}),
        ("x://a{.b,c}", "x://a.tar.gz", {"b": "tar", "c": "gz"}),
        ("x://a{/b,c}/d", "x://a/1/2/d", {"b": "1", "c": "2"}),
        ("x://a{;b,c}", "x://a;b=1;c=2", {"b": "1", "c": "2"}),
        ("x://a{;b,c}", "x://a;b=1", None),
        ("x://{+url}", "x://https://h/p?q=1#f", {"url": "https://h/p?q=1#f"}),
        ("x://{+url}{?q}", "x://h/p?q=1", {"url": "h/p", "q": "1"}),
        ("x://{+url}{#f}", "x://h/p#g", {"url": "h/p", "f": "g"}),
        ("x://{a}/{a}", "x://1/1", {"a": "1"}),
        ("x://{a}/{a}", "x://1/2", None),
        ("x://{a:1}/{a}", "x://a/abc", {"a": "abc"}),
        ("x://{a:1}/{a}", "x://b/abc", None),
        ("x://{a:1}/{a:3}", "x://a/abc", {"a": "abc"}),
        ("x://{a:3}", "x://abcd", None),
        ("x://é/{a}", "x://%c3%a9/%C3%BC", {"a": "ü"}),
        ("x://%c3%a9/{a}", "x://é/ü", {"a": "ü"}),
        ("x://{a}", "x://%ff", None),
        ("x://{a}", "x://%", None),
        ("x://{a}", "x://%4", None),
        ("x://{a}", "x://\ud800", None),
        ("x://{a}", "y://1", None),
    ],
)
def test_matching(template: str, uri: str, expected: dict[str, str] | None) -> None:
    assert UriTemplate(template).match(uri) == expected


@cases(
    ("template", "uri", "expected"),
    [
        ("s://i{?q,page}", "s://i", {}),
        ("s://i{?q,page}", "s://i?", {}),
        ("s://i{?q,page}", "s://i?page=2&q=a%20b", {"q": "a b", "page": "2"}),
        ("s://i{?q,page}", "s://i?q=", {"q": ""}),
        ("s://i{?q,page}", "s://i?q=a=b", {"q": "a=b"}),
        ("s://i{?q,page}", "s://i?q=1&q=2", None),
        ("s://i{?q,page}", "s://i?other=1", None),
        ("s://i{?q,page}", "s://i?q=1#f", None),
        ("s://i{?tag*}", "s://i?tag=a&tag=b", {"tag": "a,b"}),
        ("s://i{?q}{&page}", "s://i?page=1&q=2", {"q": "2", "page": "1"}),
        ("s://i{?q}{#f}", "s://i#g/h", {"f": "g/h"}),
        ("s://i{#f,g}", "s://i#1,2", {"f": "1", "g": "2"}),
        ("s://i{#f}", "s://i", {}),
        ("s://i?fixed=1{&q}", "s://i?fixed=1", {}),
        ("s://i?fixed=1{&q}", "s://i?fixed=1&q=2", {"q": "2"}),
        ("s://i?fixed=1{&q}", "s://i?q=2", None),
        ("s://i?a={a}&b={b}{&c,d}", "s://i?a=1&b=2&d=4&c=3", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("s://{p}?a={a}{&c}", "s://x&y?a=1&c=3", {"p": "x&y", "a": "1", "c": "3"}),
        ("s://i?a={a}", "s://i?a=1&b=2", None),
        ("s://i?ref={+path}{&c}", "s://i?ref=a/b&c=3", {"path": "a/b", "c": "3"}),
    ],
)
def test_queries_are_optional_and_in_any_order(template: str, uri: str, expected: dict[str, str] | None) -> None:
    assert UriTemplate(template).match(uri) == expected


def test_every_order_of_a_query_matches() -> None:
    template = UriTemplate("s://i{?a,b,c}")
    for order in permutations(["a=1", "b=2", "c=3"]):
        assert template.match("s://i?" + "&".join(order)) == {"a": "1", "b": "2", "c": "3"}


@cases("text", ["x{?a}/b", "x{#a}{?b}", "x{#a}{#b}", "x{?a}y{&b}", "x?a=1{?b}"])
def test_what_cannot_be_matched_says_so_and_expands_all_the_same(text: str) -> None:
    template = UriTemplate(text)
    assert template.unmatchable
    with pytest.raises(ValueError):
        template.match("x")
    assert template.expand({"a": "1", "b": "2"}).startswith("x")
    assert UriTemplate("x{?a}{#b}").unmatchable is None


@pytest.mark.covers("RES-5")
@cases(
    "value",
    [
        "..",
        "a/../b",
        "a/..",
        "a,..",
        "..;x/a",
        "%2e%2e",
        "%2E./a",
        "a/%2e%2e/b",
        "%252e%252e",
        "%252e%252e%252fa",
        "%25252e%25252e",
        "%2525252e",
        "..%2fa",
        "a%00",
        "a%2500",
        "a\x00",
        "a\\b",
        "a%5cb",
        "..%255ca",
        "/etc/passwd",
        "%2fetc/passwd",
        "%252fetc/passwd",
        "C:/windows",
        "%43:/windows",
        "%c0%ae%c0%ae/a",
    ],
)
def test_values_that_lead_elsewhere_do_not_match(value: str) -> None:
    for template in ("f:///{+path}", "f:///{path*}", "f://{/path*}", "f:///{path}", "f:///a{?path}", "f:///a{#path}"):
        opening = {"?": "f:///a?path=", "#": "f:///a#"}.get(template[-6], "f:///")
        assert UriTemplate(template).match(opening + value) is None


@pytest.mark.covers("RES-5")
@cases("query", ["tag=a&tag=..", "tag=a&tag=/etc", "tag=a&tag=%252e%252e/b", "tag=..&tag=a"])
def test_each_value_of_a_repeated_parameter_is_screened(query: str) -> None:
    assert UriTemplate("s://i{?tag*}").match(f"s://i?{query}") is None


@pytest.mark.covers("RES-5")
@pytest.mark.parametrize("value", ["a%2fb", "a%252fb"])
def test_an_encoded_slash_does_not_widen_a_segment(value: str) -> None:
    assert UriTemplate("f:///{name}").match(f"f:///{value}") is None
    assert UriTemplate("f:///{+path}").match(f"f:///{value}") is not None


@pytest.mark.covers("RES-5")
@pytest.mark.parametrize("value", ["C:x", "c:", "%43:x", "C%3Ax", "%2543:x"])
@pytest.mark.parametrize("template", ["f:///{name}", "f:///a{?name}", "f:///{+name}", "f:///a{#name}"])
def test_the_name_of_a_drive_leads_elsewhere_where_there_are_drives(
    value: str, template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = {"?": "f:///a?name=", "#": "f:///a#"}.get(template[-6], "f:///")
    # Only a name in the path is one segment; the others may span several.
    spans = template[-6] in "?+#"
    for has_drives in (True, False):
        monkeypatch.setattr(uri_matching, "_HAS_DRIVES", has_drives)
        assert (UriTemplate(template).match(opening + value) is None) == (has_drives or spans), (template, has_drives)


@cases("value", ["a..b", "...", "..a", ".hidden", "100%25", "a%20b", "a.b/c", "https://h/p", "ab:c/d", "~user"])
def test_harmless_values_pass_the_screening(value: str) -> None:
    assert UriTemplate("f:///{+path}").match(f"f:///{value}") is not None


def test_screening_can_be_turned_off() -> None:
    assert UriTemplate("f://{+path}", screen=False).match("f:///a/../b") == {"path": "/a/../b"}
    assert UriTemplate("f://{name}", screen=False).match("f://a%2Fb") == {"name": "a/b"}


def test_the_length_of_a_uri_is_bounded() -> None:
    template = UriTemplate("x://{+a}")
    assert template.match("x://" + "a" * (MAX_URI_LENGTH - 4)) is not None
    assert template.match("x://" + "a" * (MAX_URI_LENGTH - 3)) is None
    assert template.match("x://" + "é" * (MAX_URI_LENGTH // 2)) is None


def test_the_most_specific_template_comes_first() -> None:
    expected = ["a://x/y", "a://x/{b}", "a://{b}", "a://{b}{?c}", "a://{b}/{c}", "a://x/{+b}", "a://{+b}"]
    templates = sorted((UriTemplate(text) for text in reversed(expected)), key=lambda template: template.specificity)
    assert [template.text for template in templates] == expected


# --- the cost of matching ---------------------------------------------------------------------------

NAMES = ["a", "b", "c", "d"]
LITERALS = st.text("ab-/.", min_size=0, max_size=3)


@st.composite
def templates(draw: st.DrawFn, operators: str = " +./") -> str:
    text = draw(LITERALS)
    for name in NAMES[: draw(st.integers(1, 4))]:
        text += "{" + draw(st.sampled_from(operators)).strip() + name + draw(st.sampled_from(["", "*"])) + "}"
        text += draw(LITERALS)
    return text


class CountingText(str):
    """A text that counts how often somebody looks at it."""

    looks = 0

    def __getitem__(self, index: object) -> str:
        type(self).looks += 1
        return super().__getitem__(index)  # type: ignore[index]

    def startswith(self, *arguments: object) -> bool:
        type(self).looks += 1
        return super().startswith(*arguments)  # type: ignore[arg-type]


def looks(template: str, text: str) -> int:
    tokens = uri_matching._tokens(parse(template), free_end=True)
    CountingText.looks = 0
    uri_matching.sweep(CountingText(text), tokens)
    return CountingText.looks


@cases("template", ["{a}-{b}-{c}-{d}-{e}x", "{+a}a{b}a{+c}a{d}ax", "{+a}{+b}{+c}{+d}x"])
@cases("character", ["-", "a", "/"])
def test_the_sweep_is_linear_in_the_uri(template: str, character: str) -> None:
    tokens = 10
    small, large = looks(template, character * 500), looks(template, character * 4000)
    assert small <= 2 * tokens * 500
    assert large <= 2 * tokens * 4000
    assert large <= 8 * small + tokens * 8


@given(templates())
def test_patterns_have_no_way_back(text: str) -> None:
    tokens = uri_matching._tokens(parse(text), free_end=True)
    pattern = uri_matching._possessive_pattern(tokens)
    if pattern is not None:
        # Groups of a possessive class and plain characters: nothing here can be tried a second time.
        rest = re.sub(r"\((\[\^(\\.|[^\]\\])*\]|\.)\+\+\)", "", pattern.pattern)
        assert not re.search(r"(?<!\\)[*+?{|(]", rest)


@given(templates(), st.text("ab-/.", max_size=12))
def test_both_ways_of_matching_agree_with_a_backtracking_search(text: str, uri: str) -> None:
    template = UriTemplate(text, screen=False)
    tokens = uri_matching._tokens(parse(text), free_end=True)
    source = "".join(
        re.escape(token) if isinstance(token, str) else (".+?" if token.spans else "[^/?#]+?").join("()")
        for token in tokens
    )
    expected = re.fullmatch(source, uri)
    values = list(expected.groups()) if expected else None
    assert uri_matching.sweep(uri, tokens) == values
    assert template.match(uri) == (None if values is None else dict(zip(template.variables, values, strict=True)))


@given(st.text(min_size=1), st.text(min_size=1), st.text(), st.text(min_size=1))
def test_what_was_expanded_matches(a: str, b: str, c: str, d: str) -> None:
    values = {"a": a, "b": b, "c": c, "d": d}
    template = UriTemplate("x://{a}/y/{b*}/{c:3}{?d}{#e}", screen=False)
    expected = {**values, "c": c[:3]} if c else None
    assert template.match(template.expand(values)) == expected


@given(st.text(), st.sampled_from(["x://{a}/{b}", "{a}-{b}", "{+a}/{b}", "a{?b,c}{#d}", "{a}{;b}{.c}"]))
def test_any_text_is_matched_or_not_and_never_an_error(uri: str, text: str) -> None:
    found = UriTemplate(text).match(uri)
    assert found is None or all(".." not in value.split("/") and "\0" not in value for value in found.values())
