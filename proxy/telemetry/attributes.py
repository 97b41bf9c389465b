"""What a span says of a chat request: its audit record under the names that OpenTelemetry has for it. (pure)

Names that begin with `gen_ai.`, `http.`, `server.` and `error.` are those of the semantic conventions
(https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/), the others are this project's own. Fields are
picked by name, so that nothing that quotes a prompt gets here, whatever records hold.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

Value = str | bool | int | float | list[str]

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
MODEL = "gen_ai.request.model"
STATUS = "http.response.status_code"
ERROR = "error.type"
ROUTE = "trimtab.route"

LONGEST = 200  # characters of a text that a client chose

_NAMES = {
    "conversation": "gen_ai.conversation.id",
    "policy": "context.eviction.strategy",
    "slots_evicted": "context.eviction.slots_evicted",
    "tokens_freed": "context.eviction.tokens_freed",
    "utilization_before": "context.utilization_before",
    "utilization_after": "context.utilization_after",
    "audit_id": "trimtab.audit_id",
    "action": "trimtab.action",
    "mode": "trimtab.mode",
    "trigger": "trimtab.trigger",
    "window": "trimtab.window",
    "budget": "trimtab.budget",
    "target": "trimtab.target",
    "tokens_before": "trimtab.tokens_before",
    "tokens_after": "trimtab.tokens_after",
    "estimated": "trimtab.estimated",
    "prepared": "trimtab.prepared",
    "ledger": "trimtab.ledger",
    "cache_prefix_tokens": "trimtab.cache_prefix_tokens",
    "cache_lost_tokens": "trimtab.cache_lost_tokens",
    "held_ms": "trimtab.held_ms",
    "retry_of": "trimtab.retry_of",
    "faults": "trimtab.faults",
    "stream_end": "trimtab.stream_end",
    "status": STATUS,
    "error": ERROR,
}
_USAGE = {
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "completion_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
}
_BROKEN = frozenset({"upstream_error", "upstream_timeout"})
# The conventions' own names of providers, by the host that answers.
_PROVIDERS = {
    "api.openai.com": "openai",
    "*.openai.azure.com": "azure.ai.openai",
    "*.services.ai.azure.com": "azure.ai.inference",
    "api.anthropic.com": "anthropic",
    "api.cohere.*": "cohere",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral_ai",
    "api.perplexity.ai": "perplexity",
    "api.x.ai": "x_ai",
    "bedrock-runtime.*.amazonaws.com": "aws.bedrock",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "*aiplatform.googleapis.com": "gcp.vertex_ai",
}


def provider(host: str, name: str) -> str:
    """Who answers at `host`, as the conventions call them; else the upstream's own `name`."""
    return next((known for pattern, known in _PROVIDERS.items() if fnmatchcase(host, pattern)), name)


def of(record: Mapping[str, Any]) -> dict[str, Value]:
    """The attributes of a request whose turn has ended, from its audit record."""
    found: dict[str, Value] = {}
    for field, name in _NAMES.items():
        value = record.get(field)
        if value is None or value in ("", []):
            continue
        found[name] = value[:LONGEST] if isinstance(value, str) else value
    found.update({name: tokens for key, name in _USAGE.items() if (tokens := _usage(record).get(key)) is not None})
    if reason := record.get("finish_reason"):
        found["gen_ai.response.finish_reasons"] = [str(reason)[:LONGEST]]
    found.update({f"trimtab.overhead_ms.{stage}": ms for stage, ms in (record.get("overhead_ms") or {}).items()})
    if ERROR not in found and (kind := failure(record)) is not None:
        found[ERROR] = kind
    return found


def failure(record: Mapping[str, Any]) -> str | None:
    """What the answer failed with, as a server's span sees it: a 5xx, or a transfer that broke off; else None."""
    end, status = record.get("stream_end"), record.get("status")
    if end in _BROKEN:
        return str(end)
    return str(status) if isinstance(status, int) and status >= 500 else None


def _usage(record: Mapping[str, Any]) -> Mapping[str, Any]:
    return record.get("usage") or {}
