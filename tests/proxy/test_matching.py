"""Which route takes which request."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.fifo import Fifo
from proxy.matching import Matcher, Router, fingerprint, glob
from proxy.route import Route

EVERYTHING = Matcher()
KEY = fingerprint("sk-test")


def router(**matchers: Matcher) -> Router:
    routes = {name: Route(name=name, upstream="u", policy=Fifo()) for name in matchers}
    return Router(tuple((matcher, routes[name]) for name, matcher in matchers.items()))


@pytest.mark.parametrize(
    ("matcher", "path", "model", "headers", "key", "expected"),
    [
        (EVERYTHING, "/v1/chat/completions", None, {}, None, True),
        (Matcher(path="/support"), "/support/v1/chat/completions", None, {}, None, True),
        (Matcher(path="/support"), "/support", None, {}, None, True),
        (Matcher(path="/support"), "/supportive/v1", None, {}, None, False),
        (Matcher(path="/support"), "/v1/support", None, {}, None, False),
        (Matcher(path="/support"), "/Support/v1", None, {}, None, False),
        (Matcher(model=glob("gpt-4o*")), "/v1", "gpt-4o-mini", {}, None, True),
        (Matcher(model=glob("gpt-4o")), "/v1", "gpt-4o-mini", {}, None, False),
        (Matcher(model=glob("gpt-4o*")), "/v1", "GPT-4o", {}, None, False),
        (Matcher(model=glob("a.b")), "/v1", "a-b", {}, None, False),
        (Matcher(model=glob("*")), "/v1", "a\nb", {}, None, True),
        (Matcher(model=glob("*")), "/v1", None, {}, None, False),
        (Matcher(headers={"x-team": glob("search-*")}), "/v1", None, {"x-team": "search-eu"}, None, True),
        (Matcher(headers={"x-team": glob("search-*")}), "/v1", None, {"x-team": "ads"}, None, False),
        (Matcher(headers={"x-team": glob("*")}), "/v1", None, {}, None, False),
        (Matcher(headers={"a": glob("1"), "b": glob("2")}), "/v1", None, {"a": "1", "b": "3"}, None, False),
        (Matcher(key=KEY), "/v1", None, {}, KEY, True),
        (Matcher(key=KEY), "/v1", None, {}, fingerprint("sk-other"), False),
        (Matcher(key=KEY), "/v1", None, {}, None, False),
        (Matcher(path="/a", model=glob("m"), key=KEY), "/a/v1", "m", {}, KEY, True),
        (Matcher(path="/a", model=glob("m"), key=KEY), "/a/v1", "n", {}, KEY, False),
        (Matcher(path="/a", model=glob("m"), key=KEY), "/b/v1", "m", {}, KEY, False),
    ],
)
def test_every_condition_has_to_hold(
    matcher: Matcher, path: str, model: str | None, headers: dict[str, str], key: str | None, expected: bool
) -> None:
    assert matcher.match(path, model, headers, key) is expected


def test_the_first_match_wins_and_its_prefix_goes() -> None:
    routes = router(deep=Matcher(path="/a/b"), model=Matcher(path="/a", model=glob("m")), rest=Matcher(path="/a"))

    found = [routes.find(path, model, {}, None) for path, model in (("/a/b/v1", "m"), ("/a/v1", "m"), ("/a/v1", "n"))]
    assert [(each.route.name, each.path) for each in found if each] == [
        ("deep", "/v1"),
        ("model", "/v1"),
        ("rest", "/v1"),
    ]
    assert routes.find("/v1", "m", {}, None) is None
    assert routes.names == ("deep", "model", "rest")


@pytest.mark.parametrize(
    ("path", "model", "expected"),
    [
        ("/support/v1/models", None, ("support", "/v1/models")),
        ("/support/v1/embeddings", "text-embedding-3", ("rest", "/support/v1/embeddings")),
        ("/v1/models", None, ("rest", "/v1/models")),
        ("/support", None, ("support", "/")),
    ],
)
def test_a_request_that_names_no_model_is_matched_by_the_rest(
    path: str, model: str | None, expected: tuple[str, str]
) -> None:
    routes = router(support=Matcher(path="/support", model=glob("gpt-*")), rest=EVERYTHING)

    found = routes.find_other(path, model, {}, None)
    assert (found.route.name, found.path) == expected


def test_what_is_not_chat_and_matches_nowhere_takes_the_first_route() -> None:
    routes = router(first=Matcher(path="/a"), second=Matcher(path="/b"))

    found = routes.find_other("/v1/files", None, {}, None)
    assert (found.route.name, found.path) == ("first", "/v1/files")


SEGMENTS = st.lists(st.text("ab%.", min_size=1, max_size=3), min_size=1, max_size=4).map(lambda parts: "/".join(parts))


@given(prefix=SEGMENTS, rest=SEGMENTS)
def test_a_prefix_is_stripped_whole_and_once(prefix: str, rest: str) -> None:
    matcher = Matcher(path=f"/{prefix}")

    assert matcher.strip(f"/{prefix}/{rest}") == f"/{rest}"
    assert matcher.match(f"/{prefix}/{rest}", None, {}, None)
    assert not matcher.match(f"/{prefix}x/{rest}", None, {}, None)


def test_a_fingerprint_is_what_a_shell_gives() -> None:
    """printf %s sk-test | sha256sum | cut -c1-16"""
    assert fingerprint("sk-test") == hashlib.sha256(b"sk-test").hexdigest()[:16]
    assert fingerprint("\udcff") == hashlib.sha256(b"\xff").hexdigest()[:16]
