import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import ConfigError
from proxy.stores.urls import Backend, masked, parse


@pytest.mark.parametrize(
    ("url", "backend", "target", "name"),
    [
        ("memory://", Backend.MEMORY, "", "memory://"),
        ("sqlite:///state.db", Backend.SQLITE, "state.db", "sqlite:///state.db"),
        ("sqlite:///a/b.db", Backend.SQLITE, "a/b.db", "sqlite:///a/b.db"),
        ("sqlite:////var/lib/s.db", Backend.SQLITE, "/var/lib/s.db", "sqlite:////var/lib/s.db"),
        ("sqlite:///odd%3F%20name.db", Backend.SQLITE, "odd? name.db", "sqlite:///odd%3F%20name.db"),
        ("sqlite:////home/me@work/s.db", Backend.SQLITE, "/home/me@work/s.db", "sqlite:////home/me@work/s.db"),
        ("redis://h", Backend.REDIS, "redis://h", "redis://h"),
        ("redis://h:6379/3", Backend.REDIS, "redis://h:6379/3", "redis://h:6379/3"),
        ("redis://u:p%40@h:1/0", Backend.REDIS, "redis://u:p%40@h:1/0", "redis://***@h:1/0"),
        ("rediss://:p@[::1]:1", Backend.REDIS, "rediss://:p@[::1]:1", "rediss://***@[::1]:1"),
        (
            "rediss://h?ssl_ca_certs=/ca.pem&ssl_cert_reqs=required",
            Backend.REDIS,
            "rediss://h?ssl_ca_certs=/ca.pem&ssl_cert_reqs=required",
            "rediss://h?***",
        ),
        ("REDIS+Cluster://h:1", Backend.CLUSTER, "redis://h:1", "REDIS+Cluster://h:1"),
        ("Rediss://h:1", Backend.REDIS, "rediss://h:1", "Rediss://h:1"),
        ("redis+cluster://u:p@h:1", Backend.CLUSTER, "redis://u:p@h:1", "redis+cluster://***@h:1"),
        ("rediss+cluster://h:1/0", Backend.CLUSTER, "rediss://h:1/0", "rediss+cluster://h:1/0"),
    ],
)
def test_an_address_is_split_into_what_connects_and_what_is_shown(
    url: str, backend: Backend, target: str, name: str
) -> None:
    address = parse(url)

    assert (address.backend, address.target, address.name) == (backend, target, name)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "must be memory://, sqlite:///relative/file.db"),
        ("memory", "got 'memory'"),
        ("memory:", "got 'memory:'"),
        ("postgres://u:secret@h/db", r"got 'postgres://\*\*\*@h/db'"),
        ("memory://x", "must be memory:// with nothing after it"),
        ("memory://?max=1", "must be memory:// with nothing after it"),
        ("sqlite://state.db", "begins after three slashes, as in sqlite:///state.db"),
        ("sqlite:///", "must name a file"),
        ("sqlite:////", "must name a file"),
        ("sqlite:///folder/", "must name a file"),
        ("sqlite:///:memory:", "must be memory:// to keep nothing on disk"),
        ("sqlite:///a.db?mode=ro", "without"),
        ("sqlite:///a%00b", "control characters"),
        ("redis://", "must name a host and port"),
        ("redis://:secret@", "must name a host and port"),
        ("redis://h:0", "must name a host and port"),
        ("redis://h:99999", "cannot be read"),
        ("redis://h:secret", "cannot be read"),
        ("redis://h/db", "must be a number such as /0"),
        ("redis://h/-1", "must be a number such as /0"),
        ("redis://h/1/2", "must be a number such as /0"),
        ("redis://h/0#x", "must name a host and port"),
        ("redis://h?protocol=3", "unknown option 'protocol' .* TLS options go with rediss://"),
        ("rediss://h?ssl_keyfle=x", "unknown option 'ssl_keyfle' .* ssl_keyfile"),
        ("rediss://h?ssl_cert_reqs=maybe", r"ssl_cert_reqs must be required\|optional\|none, got 'maybe'"),
        ("rediss://h?ssl_ca_certs=", "ssl_ca_certs must be a path"),
        ("redis+cluster://h/1", "a cluster has only database 0"),
        ("redis://:sec/ret@h:1", "must be percent-encoded"),
        ("redis://:sec#ret@h:1", "must be percent-encoded"),
        ("redis://:sec?ret@h:1", "must be percent-encoded"),
        ("redis://:sec@ret@h:1", "must be percent-encoded"),
        ("redis://h :1", "without spaces"),
    ],
)
def test_what_cannot_be_used_is_named_with_what_would_do(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse(url)

    assert str(caught.value).startswith("state: ")
    assert "sec" not in str(caught.value).replace("***", "") or "h:secret" in url


@given(
    scheme=st.sampled_from(["redis", "rediss", "redis+cluster", "postgres", "sqlite"]),
    secret=st.text(st.sampled_from("Q!:/?#@[]%7 \\&=\x00é"), min_size=1).map(lambda text: f"Q{text}Q"),
    rest=st.sampled_from(["h", "h:1", "h:1/0", "h:x", "[::1", "h?a=b", ""]),
)
def test_no_password_is_ever_shown(scheme: str, secret: str, rest: str) -> None:
    url = f"{scheme}://:{secret}@{rest}"

    assert "Q" not in masked(url)
    try:
        shown = parse(url).name
    except ConfigError as error:
        shown = str(error)
    assert "Q" not in shown
