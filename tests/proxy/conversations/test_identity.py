"""Conversations are told apart by what separates them, and by nothing else."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.conversations.identity import chain, digest, root, tenant

DIGESTS = st.lists(st.integers(0, 2).map(lambda n: digest({"role": "user", "content": str(n)})), max_size=6)


@settings(deadline=None)
@given(DIGESTS, DIGESTS)
def test_two_chains_share_exactly_the_prefix_their_messages_share(one: list[bytes], other: list[bytes]) -> None:
    start = root(b"salt", "main")
    first, second = chain(start, one), chain(start, other)

    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1

    assert first[:common] == second[:common]
    assert set(first[common:]).isdisjoint(second[common:])
    assert len(set(first)) == len(one)


BASE: dict[str, Any] = {"salt": b"s", "route": "main", "tenant": b"t", "session": "x", "variant": "v"}
CHANGES: dict[str, Any] = {"salt": b"S", "route": "other", "tenant": b"u", "session": None, "variant": "shadow"}


@pytest.mark.parametrize("field", CHANGES)
def test_conversations_are_separate_by(field: str) -> None:
    assert root(**{**BASE, field: CHANGES[field]}) != root(**BASE)


def test_an_empty_session_is_not_no_session() -> None:
    assert root(b"s", "main", session="") != root(b"s", "main")


def test_fields_do_not_run_into_each_other() -> None:
    assert root(b"s", "ab", b"c") != root(b"s", "a", b"bc")


def test_a_salt_may_be_long() -> None:
    assert root(b"s" * 100, "main") != root(b"s" * 101, "main")


def jwt(claims: Any, *, header: Any = None, signature: str = "c2ln") -> bytes:
    def segment(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    return f"Bearer {segment(header or {'alg': 'RS256'})}.{segment(claims)}.{signature}".encode()


def authorized(value: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"authorization", value)]


ADA = {"iss": "https://id.example", "sub": "ada"}

SAME_TENANT = [
    pytest.param(authorized(b"Bearer sk-1"), authorized(b"bearer  sk-1 "), id="scheme spelled otherwise"),
    pytest.param(authorized(jwt({**ADA, "exp": 1})), authorized(jwt({**ADA, "exp": 2})), id="renewed JWT"),
    pytest.param(authorized(jwt(ADA)), authorized(jwt(ADA, signature="eA")), id="JWT signed anew"),
]
OTHER_TENANT = [
    pytest.param(authorized(b"Bearer sk-1"), authorized(b"Bearer sk-2"), id="keys"),
    pytest.param([(b"api-key", b"a")], [(b"api-key", b"b")], id="Azure keys"),
    pytest.param(authorized(b"Basic YTpi"), authorized(b"Basic YTpj"), id="basic credentials"),
    pytest.param(authorized(jwt(ADA)), authorized(jwt({**ADA, "sub": "bob"})), id="subjects"),
    pytest.param(authorized(jwt(ADA)), authorized(jwt({**ADA, "iss": "https://other.example"})), id="issuers"),
    pytest.param(authorized(jwt({"exp": 1})), authorized(jwt({"exp": 2})), id="JWTs without a subject are keys"),
    pytest.param(
        authorized(jwt({**ADA, "sub": 7})), authorized(jwt({**ADA, "sub": 8})), id="a subject that is no text"
    ),
    pytest.param(authorized(b"Bearer a.b.c"), authorized(b"Bearer a.b.d"), id="three parts that are no JWT"),
    pytest.param(authorized(b"Bearer \xff.\xff.c"), authorized(b"Bearer \xff.\xff.d"), id="three parts of no base64"),
    pytest.param(authorized(b"Bearer sk-1"), [], id="a key and none"),
]


@pytest.mark.parametrize(("one", "other"), SAME_TENANT)
def test_the_same_tenant(one: list[tuple[bytes, bytes]], other: list[tuple[bytes, bytes]]) -> None:
    assert tenant(one) == tenant(other)


@pytest.mark.parametrize(("one", "other"), OTHER_TENANT)
def test_other_tenants(one: list[tuple[bytes, bytes]], other: list[tuple[bytes, bytes]]) -> None:
    assert tenant(one) != tenant(other)


def test_nobody_is_a_tenant_too() -> None:
    assert tenant([(b"accept", b"*/*")]) == b""


def test_the_header_that_a_route_names_goes_before_the_key() -> None:
    ada = [(b"x-customer", b"ada"), *authorized(b"Bearer sk-1")]
    ada_elsewhere = [(b"x-customer", b"ada"), *authorized(b"Bearer sk-2")]

    assert tenant(ada, "X-Customer") == tenant(ada_elsewhere, "X-Customer")
    assert tenant(ada, "X-Customer") != tenant(ada)
    assert tenant(authorized(b"Bearer sk-1"), "X-Customer") == tenant(authorized(b"Bearer sk-1"))


def test_a_tenant_is_a_fingerprint_and_never_the_key() -> None:
    assert b"sk-1" not in tenant(authorized(b"Bearer sk-1"))
