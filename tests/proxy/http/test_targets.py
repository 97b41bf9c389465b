import pytest

from proxy.errors import ClientError
from proxy.http import targets


@pytest.mark.parametrize(
    ("base", "target", "joined"),
    [
        ("", "/v1/chat/completions", "/v1/chat/completions"),
        ("/", "/chat/completions", "/chat/completions"),
        ("/v1", "/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/", "/v1/models?limit=2", "/v1/models?limit=2"),
        ("/v1", "/chat/completions", "/v1/chat/completions"),
        ("/v1", "/v1", "/v1"),
        ("/v1", "/v1?x=/v1/", "/v1?x=/v1/"),
        ("/v1", "/v1x/y", "/v1/v1x/y"),
        ("/api/v1", "/v1/chat/completions", "/api/v1/chat/completions"),
        ("/api/paas/v4", "/v1/chat/completions", "/api/paas/v4/chat/completions"),
        ("/v1beta/openai", "/v1/chat/completions", "/v1beta/openai/chat/completions"),
        ("/openai/v1", "/v1/chat/completions", "/openai/v1/chat/completions"),
        ("/openai/v1", "/openai/v1/chat/completions", "/openai/v1/chat/completions"),
        ("/gateway", "/v1/chat/completions", "/gateway/v1/chat/completions"),
        ("", "/openai/deployments/x/chat?api-version=1", "/openai/deployments/x/chat?api-version=1"),
        ("/openai", "/openai/deployments/x?a=b", "/openai/deployments/x?a=b"),
        ("/v1", "/openai/deployments/x?a=b", "/openai/deployments/x?a=b"),
        ("/gateway/openai/v1", "/openai/deployments/x", "/gateway/openai/deployments/x"),
        ("/v1", "/v1/a%2Fb?q=%20+;#", "/v1/a%2Fb?q=%20+;#"),
    ],
)
def test_a_target_is_joined_to_the_base(base, target, joined) -> None:
    assert targets.join(base.encode(), target.encode()) == joined.encode()


@pytest.mark.parametrize(
    ("raw_path", "prefix", "expected"),
    [
        (b"/support/v1/a%2Fb", "/support", b"/v1/a%2Fb?x=%20"),
        (b"/support", "/support/", b"/?x=%20"),
        (b"/%73upport/v1/a%2Fb", "/support", b"/v1/a%2Fb?x=%20"),
        (b"/%73%75pport", "/support", b"/?x=%20"),
        (b"/support%2Fv1/a%2fb", "/support", b"/v1/a%2fb?x=%20"),
        (b"/t%C3%A9am/v1", "/téam", b"/v1?x=%20"),
        (b"/t%c3%a9am/v1", "/téam/", b"/v1?x=%20"),
        (b"/sup%zzport/v1", "/support", b"/sup%zzport/v1?x=%20"),
        (b"/%73upporter/v1", "/other", b"/%73upporter/v1?x=%20"),
        (b"/v1/models", "", b"/v1/models?x=%20"),
        (b"*", "", b"/*?x=%20"),
        (b"@host/x", "", b"/@host/x?x=%20"),
        (b"/v1/..hidden/...", "", b"/v1/..hidden/...?x=%20"),
    ],
)
def test_a_target_is_taken_raw_and_without_its_routes_prefix(raw_path, prefix, expected) -> None:
    scope = {"raw_path": raw_path, "path": "/ignored", "query_string": b"x=%20"}
    assert targets.of(scope, prefix) == expected


def test_a_server_without_raw_paths_is_served_too() -> None:
    assert targets.of({"path": "/v1/é x", "query_string": b""}) == b"/v1/%C3%A9%20x"


@pytest.mark.parametrize("path", [b"/..", b"/a/../b", b"/a/%2E%2e/b", b"/.", b"/a/..;x/b", b"/a/..\\b"])
def test_dot_segments_are_refused(path) -> None:
    with pytest.raises(ClientError, match="segments") as caught:
        targets.of({"raw_path": path, "query_string": b""})
    assert (caught.value.status, caught.value.code) == (400, "bad_path")
