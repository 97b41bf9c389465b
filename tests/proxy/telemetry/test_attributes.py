"""What spans say, from audit records alone."""

from typing import Any

import pytest

from proxy.telemetry import attributes

SECRET = "cormorant-5521"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("api.openai.com", "openai"),
        ("harbour.openai.azure.com", "azure.ai.openai"),
        ("api.mistral.ai", "mistral_ai"),
        ("europe-west4-aiplatform.googleapis.com", "gcp.vertex_ai"),
        ("bedrock-runtime.eu-central-1.amazonaws.com", "aws.bedrock"),
        ("api.openai.com.example.net", "ours"),
        ("127.0.0.1", "ours"),
    ],
)
def test_providers_have_the_names_of_the_conventions(host: str, expected: str) -> None:
    assert attributes.provider(host, "ours") == expected


def test_nothing_that_quotes_a_prompt_becomes_an_attribute() -> None:
    record = {
        "policy": "hybrid",
        "reason": SECRET,
        "slots": [{"text": SECRET, "reason": SECRET}],
        "gathered": {"query": SECRET},
        "key": SECRET,
        "usage": {"prompt_tokens": 3, "note": SECRET},
    }

    said = attributes.of(record)

    assert said == {"context.eviction.strategy": "hybrid", "gen_ai.usage.input_tokens": 3}


def test_a_text_of_the_clients_is_cut() -> None:
    assert attributes.of({"retry_of": "x" * 5000}) == {"trimtab.retry_of": "x" * attributes.LONGEST}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"status": 200, "stream_end": "done"}, None),
        ({"status": 429, "stream_end": "done"}, None),
        ({"status": 503, "stream_end": "done"}, "503"),
        ({"status": 200, "stream_end": "upstream_timeout"}, "upstream_timeout"),
        ({"status": None, "stream_end": "client_gone"}, None),
    ],
    ids=["answered", "the client's fault", "the upstream's fault", "broken off", "nobody's fault"],
)
def test_what_is_a_failure(record: dict[str, Any], expected: str | None) -> None:
    assert attributes.failure(record) == expected
    assert attributes.of(record).get("error.type") == expected
