"""Who may ask the proxy: keys from variables and files, where they are shown, and what they open."""

import base64
from pathlib import Path

import pytest

from proxy import config as configs
from proxy.errors import ClientError, ConfigError
from proxy.http.keys import Keyring, Source, opened
from proxy.matching import fingerprint
from tests.fakes.upstream import FakeUpstream
from tests.proxy.dialogues import body, user
from tests.proxy.proxied import Records, Start, post

ONE, OTHER = "proxy-key-of-team-one", "proxy-key-of-team-two"


def ring() -> Keyring:
    return opened([Source(name="one", env="ONE"), Source(name="other", env="OTHER")], {"ONE": ONE, "OTHER": OTHER})


@pytest.mark.parametrize(
    "field",
    [
        ("authorization", f"Bearer {ONE}"),
        ("authorization", f"bearer  {ONE} "),
        ("authorization", "Basic " + base64.b64encode(f"anybody:{ONE}".encode()).decode()),
        ("api-key", ONE),
        ("x-api-key", ONE),
        ("x-trimtab-key", ONE),
    ],
    ids=lambda field: f"{field[0]} {field[1][:6]}",
)
def test_a_key_is_found_and_taken_off_the_request(field: tuple[str, str]) -> None:
    shown = ring().show([(b"accept", b"*/*"), (field[0].encode(), field[1].encode())])

    assert shown.key.name == "one"
    assert shown.headers == [(b"accept", b"*/*"), (b"x-trimtab-key", ONE.encode())]


def test_a_providers_own_key_stays_beside_it() -> None:
    headers = [(b"authorization", b"Bearer sk-provider"), (b"x-trimtab-key", OTHER.encode())]

    shown = ring().show(headers)

    assert shown.key.name == "other"
    assert shown.headers == headers


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [(b"authorization", b"Bearer ")],
        [(b"authorization", ONE.encode())],
        [(b"authorization", b"Basic " + ONE.encode())],
        [(b"authorization", b"Basic !!")],
        [(b"authorization", f"Bearer {ONE}x".encode())],
        [(b"authorization", f"Bearer {ONE[:-1]}".encode())],
        [(b"api-key", b"\xff\xfe")],
        [(b"cookie", f"x-trimtab-key={ONE}".encode())],
    ],
    ids=repr,
)
def test_anything_else_is_a_stranger(fields: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(ClientError) as caught:
        ring().show(fields)

    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    assert ONE not in caught.value.message


def test_a_file_has_a_key_a_line(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# of both teams\n\n{ONE}\r\n  {OTHER}  \n")
    keyring = opened([Source(name="both", file=str(file), routes=("a",))], {})

    assert [keyring.find(key.encode()) is not None for key in (ONE, OTHER, "# of both teams")] == [True, True, False]
    key = keyring.find(ONE.encode())
    assert key is not None
    assert (key.opens("a"), key.opens("b"), key.admin) == (True, False, False)


@pytest.mark.parametrize(
    ("sources", "problem"),
    [
        ([Source(name="a", env="NONE")], "keys[0].env: must name an environment variable that is set"),
        ([Source(name="a", env="SHORT")], "keys[0].env: a key must have at least 16 characters, got 5"),
        ([Source(name="a", env="ONE"), Source(name="b", env="ONE")], "keys[1].env: has a key that 'a' has too"),
        ([Source(name="a", file="/nowhere/keys")], "keys[0].file: No such file or directory"),
        ([Source(name="a", file="/dev/null")], "keys[0].file: must be a file with one key a line, and holds none"),
    ],
    ids=["not set", "short", "twice", "no file", "empty file"],
)
def test_keys_that_cannot_be_used_stop_the_start(sources: list[Source], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        opened(sources, {"ONE": ONE, "SHORT": "short"})

    assert caught.value.problems[0].startswith(problem)
    assert "short" not in caught.value.problems[0].removeprefix(problem)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("keys: [{name: a}]", "keys[0]: must have either env, the variable with the key, or file"),
        ("keys: [{name: a, env: A, file: b}]", "keys[0]: must have either env"),
        ("keys: [{name: a, env: A, routes: [defualt]}]", "keys[0].routes[0]: no route is called 'defualt'; did you"),
        ("keys: [{env: A}]", "keys[0].name: required"),
        ("server: {port: 80, admin_port: 80}", "server.admin_port: must be another port than server.port, got 80"),
    ],
    ids=["no source", "two sources", "unknown route", "no name", "admin port"],
)
def test_settings_that_make_no_sense_are_named(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configs.loads(text)

    assert [line[: len(problem)] for line in caught.value.problems] == [problem]


# -- through the front door


@pytest.fixture
def keyed(tmp_path: Path) -> str:
    for name, key in (("one", ONE), ("other", OTHER)):
        (tmp_path / name).write_text(key)
    return (
        f"keys: [{{name: one, file: '{tmp_path}/one', routes: [open, picked], admin: true}},"
        f" {{name: other, file: '{tmp_path}/other', routes: [closed, open]}}]\n"
        f"routes: [{{name: picked, match: {{path: /by-key, key: {fingerprint(ONE)}}}}},"
        f" {{name: closed, match: {{path: /closed}}}}, {{name: open}}]\n"
    )


HI = body([user("hi")])


async def test_strangers_get_nothing_but_health(start: Start, upstream: FakeUpstream, keyed: str) -> None:
    client = await start(keyed)

    for path in ("/v1/models", "/metrics", "/trimtab/", "/trimtab/preview", "/trimtab", "/%6detrics"):
        refused = await client.get(path, headers={"authorization": "Bearer sk-somebody-elses-key"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key"), path
        asked = "Bearer" if path == "/v1/models" else "Basic"
        assert refused.headers["www-authenticate"].startswith(asked)
    assert (await post(client, HI)).status_code == 401
    assert [(await client.get(path)).status_code for path in ("/healthz", "/readyz")] == [200, 200]
    assert upstream.exchanges == []
    password = {"authorization": "Basic " + base64.b64encode(f"me:{ONE}".encode()).decode()}
    assert [(await client.get(path, headers=password)).status_code for path in ("/trimtab/", "/metrics")] == [200, 200]
    page = (await client.get("/metrics", headers={"authorization": f"Bearer {ONE}"})).text
    assert 'code="invalid_api_key"' in page


async def test_a_key_reaches_its_routes_and_goes_no_further(
    start: Start, upstream: FakeUpstream, keyed: str, records: Records
) -> None:
    client = await start(keyed)

    assert (await post(client, HI, authorization=f"Bearer {OTHER}")).status_code == 200
    own = {"authorization": "Bearer sk-providers", "x-trimtab-key": OTHER}
    assert (await client.get("/closed/v1/models", headers=own)).status_code == 200
    assert [exchange.header("authorization") for exchange in upstream.exchanges] == [None, b"Bearer sk-providers"]
    for exchange in upstream.exchanges:
        assert OTHER.encode() not in exchange.head
    refused = await client.get("/closed/v1/models", headers={"authorization": f"Bearer {ONE}"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "route_not_allowed")
    refused = await client.post("/closed/v1/chat/completions", content=HI, headers={"authorization": f"Bearer {ONE}"})
    assert refused.status_code == 403
    assert (await client.get("/metrics", headers={"authorization": f"Bearer {OTHER}"})).status_code == 403
    assert len(upstream.exchanges) == 2


async def test_a_route_can_be_picked_by_the_proxys_own_key(
    start: Start, upstream: FakeUpstream, keyed: str, records: Records
) -> None:
    client = await start(keyed)

    answer = await client.post("/by-key/v1/chat/completions", content=HI, headers={"api-key": ONE})

    assert answer.status_code == 200
    assert (await records.get())[0]["route"] == "picked"
