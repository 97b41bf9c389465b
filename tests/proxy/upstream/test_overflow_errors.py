import gzip
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.upstream.overflow_errors import Kind, Refusal, classify, classify_event

CONTEXT, COMPLETION, BODY, MESSAGES = Kind.CONTEXT, Kind.COMPLETION, Kind.BODY, Kind.MESSAGES


def openai(message: str, code: str | None = None, type_: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": message, "type": type_, "param": None, "code": code}}


def bare(message: str) -> dict[str, Any]:
    """As vLLM and SGLang did before they took up OpenAI's envelope."""
    return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}


def anthropic(message: str, type_: str = "invalid_request_error") -> dict[str, Any]:
    return {"type": "error", "error": {"type": type_, "message": message}, "request_id": "req_1"}


def gemini(message: str) -> list[Any]:
    return [{"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}}]


def wrapped(inner: Any) -> dict[str, Any]:
    """As OpenRouter passes on what a provider said."""
    metadata = {"provider_name": "Somebody", "raw": json.dumps(inner)}
    return {"error": {"message": "Provider returned error", "code": 400, "metadata": metadata}}


def litellm(inner: str) -> dict[str, Any]:
    return openai(f"litellm.ContextWindowExceededError: litellm.BadRequestError: SomeException - {inner}", "400")


def told(
    kind: Kind,
    limit: int | None = None,
    needed: int | None = None,
    prompt: int | None = None,
    output: int | None = None,
    over: int | None = None,
) -> Refusal:
    if over is None and limit is not None and needed is not None and needed > limit:
        over = needed - limit
    return Refusal(kind=kind, limit=limit, needed=needed, prompt=prompt, output=output, over=over)


WINDOW = "This model's maximum context length is 8192 tokens."
OVERFLOWS: dict[str, tuple[int, Any, Refusal]] = {
    "openai, messages": (
        400,
        openai(f"{WINDOW} However, your messages resulted in 9001 tokens.", "context_length_exceeded"),
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "openai, messages and completion": (
        400,
        openai(f"{WINDOW} However, you requested 9100 tokens (8100 in the messages, 1000 in the completion)."),
        told(CONTEXT, 8192, 9100, 8100, 1000),
    ),
    "openai, messages, functions and completion": (
        400,
        openai(
            f"{WINDOW} However, you requested 9100 tokens (7000 in the messages, 1100 in the functions, and 1000 in the"
            " completion)."
        ),
        told(CONTEXT, 8192, 9100, 8100, 1000),
    ),
    "openai, prompt and completion, of old": (
        400,
        openai(
            "This model's maximum context length is 8,192 tokens, however you requested 9,100 tokens (8,100 in your"
            " prompt; 1,000 for the completion). Please reduce your prompt; or completion length."
        ),
        told(CONTEXT, 8192, 9100, 8100, 1000),
    ),
    "openai, by its code alone": (400, openai("", "context_length_exceeded"), told(CONTEXT)),
    "openai, responses": (400, openai("Your input exceeds the context window of this model."), told(CONTEXT)),
    "azure": (
        400,
        openai("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 300000 tokens."),
        told(CONTEXT, 272_000, 300_000, 300_000),
    ),
    "azure, abbreviated": (
        400,
        openai("Input tokens exceed the configured limit of 272k tokens."),
        told(CONTEXT, 272_000),
    ),
    "vllm, bare": (
        400,
        bare(f"{WINDOW} However, you requested 9100 tokens (100 in the messages, 9000 in the completion). None"),
        told(COMPLETION, 8192, 9100, 100, 9000),
    ),
    "vllm, decoder prompt": (
        400,
        bare("The decoder prompt (length 9001) is longer than the maximum model length of 8192. Make sure that"),
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "vllm, at least": (
        400,
        openai(
            f"{WINDOW} However, you requested 0 output tokens and your prompt contains at least 8193 input tokens, for"
            " a total of at least 8193 tokens. Please reduce the length of the input prompt.",
            type_="BadRequestError",
        ),
        told(CONTEXT, 8192, 8193, 8193),
    ),
    "vllm, passed": (
        400,
        bare(
            "You passed 8100 input tokens and requested 1000 output tokens. However, the model's context length is"
            " only 8192 tokens, resulting in a maximum input length of 7192 tokens."
        ),
        told(CONTEXT, 8192, 9100, 8100, 1000),
    ),
    "vllm, a limit made of what is left": (
        400,
        bare("max_tokens must be at least 1, got -186."),
        told(CONTEXT, over=186),
    ),
    "vllm, max_tokens beside the prompt": (
        400,
        bare(
            f"'max_tokens' or 'max_completion_tokens' is too large: 5000. {WINDOW[:-1]} and your request has 4000 input"
            " tokens (5000 > 8192 - 4000)."
        ),
        told(CONTEXT, 8192, 9000, 4000, 5000),
    ),
    "sglang": (
        400,
        bare("The input (9001 tokens) is longer than the model's context length (8192 tokens)."),
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "sglang, with the completion": (
        400,
        bare(
            "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of"
            " 9100 tokens: 8100 tokens from the input messages and 1000 tokens for the completion."
        ),
        told(CONTEXT, 8192, 9100, 8100, 1000),
    ),
    "llama.cpp, by its fields": (
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size, try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 9001,
                "n_ctx": 8192,
            }
        },
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "llama.cpp, first release": (
        500,
        {"error": {"code": 500, "message": "", "type": "exceed_context_size_error"}},
        told(CONTEXT),
    ),
    "llama.cpp, in words": (
        400,
        openai("request (9001 tokens) exceeds the available context size (8192 tokens), try increasing it"),
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "llama-cpp-python": (
        400,
        {"error": {"message": "Requested tokens (9001) exceed context window of 8192", "code": None}},
        told(CONTEXT, 8192, 9001),
    ),
    "lm studio": (
        400,
        {
            "error": "Trying to keep the first 9001 tokens when context the overflows. However, the model is loaded"
            " with context length of only 8192 tokens, which is not enough."
        },
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "lm studio, n_keep": (
        400,
        "Cannot truncate prompt with n_keep (9001) >= n_ctx (8192)",
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "ollama": (500, {"error": "the input length exceeds the context length"}, told(CONTEXT)),
    "ollama, newer": (
        400,
        {"error": "prompt too long; exceeded max context length by 12 tokens"},
        told(CONTEXT, over=12),
    ),
    "tgi": (
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192. Given: 8100 `inputs`"
            " tokens and 1000 `max_new_tokens`",
            "error_type": "validation",
        },
        told(CONTEXT, 8192, 9100, 8100, 1000),
    ),
    "tgi, inputs": (
        422,
        "Input validation error: `inputs` must have less than 8192 tokens. Given: 9001",
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "mistral": (
        400,
        {
            "object": "error",
            "message": "Prompt contains 9001 tokens and 0 draft tokens, too large for model with 8192 maximum context"
            " length",
            "type": "invalid_request_error",
            "code": "3051",
        },
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "groq, without figures": (
        400,
        openai("Please reduce the length of the messages or completion.", "context_length_exceeded"),
        told(CONTEXT),
    ),
    "cerebras": (
        400,
        {
            "message": "Please reduce the length of the messages or completion. Current length is 9001 while limit is"
            " 8192"
        },
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "fireworks": (
        400,
        openai("The prompt is too long: 9001, model maximum context length: 8192"),
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "xai": (
        400,
        {
            "code": "Client specified an invalid argument",
            "error": "This model's maximum prompt length is 8192 but the request contains 9001 tokens.",
        },
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "moonshot": (
        400,
        openai("Invalid request: Your request exceeded model token limit: 8192 (requested: 9001)"),
        told(CONTEXT, 8192, 9001),
    ),
    "dashscope": (
        400,
        openai("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]"),
        told(CONTEXT, 30_720),
    ),
    "minimax": (400, openai("invalid params, context window exceeds limit"), told(CONTEXT)),
    "minimax, with the code of its error": (
        400,
        openai("invalid params, context window exceeds limit (2013)"),
        told(CONTEXT),
    ),
    "moonshot, without the request's": (
        400,
        openai("Invalid request: Your request exceeded model token limit: 8192"),
        told(CONTEXT, 8192),
    ),
    "tensorrt-llm": (
        400,
        openai("The sum of prompt length (5000.0), query length (0) should not exceed max_num_tokens (4096)"),
        told(CONTEXT, 4096),
    ),
    "tabbyapi": (
        400,
        {"detail": "Context length 9001 is greater than max_seq_len 8192"},
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "sambanova": (
        400,
        openai(
            "Requested generation length 1 is not possible! The provided prompt is 9001 tokens long, so generating 1 "
            "tokens requires a sequence length of 9002, but the maximum supported sequence length is just 8192!"
        ),
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "watsonx": (
        400,
        {
            "errors": [
                {
                    "code": "invalid_input_argument",
                    "message": "Invalid input argument for Model: the number of input tokens 9001 cannot exceed the "
                    "total tokens limit 8192 for this model",
                }
            ]
        },
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "cloudflare": (
        413,
        {
            "errors": [
                {
                    "message": "AiError: The estimated number of input and maximum output tokens (9001) exceeded this "
                    "model context window limit (8192).",
                    "code": 5021,
                }
            ],
            "success": False,
        },
        told(CONTEXT, 8192, 9001),
    ),
    "mlx": (400, {"error": "Prompt length (9001) exceeds max context (8192)"}, told(CONTEXT, 8192, 9001, 9001)),
    "github models": (
        413,
        {
            "error": {
                "code": "tokens_limit_reached",
                "message": "Request body too large for m-1 model. Max size: 8000 tokens.",
            }
        },
        told(CONTEXT, 8000),
    ),
    "copilot": (400, openai("prompt token count of 9001 exceeds the limit of 8192"), told(CONTEXT, 8192, 9001, 9001)),
    "anthropic": (
        400,
        anthropic("prompt is too long: 208310 tokens > 200000 maximum"),
        told(CONTEXT, 200_000, 208_310, 208_310),
    ),
    "anthropic, with max_tokens": (
        400,
        anthropic("input length and `max_tokens` exceed context limit: 199000 + 8192 > 200000, decrease input length"),
        told(CONTEXT, 200_000, 207_192, 199_000, 8192),
    ),
    "gemini, a list": (
        400,
        gemini("The input token count (1,200,293) exceeds the maximum number of tokens allowed (1,048,576)."),
        told(CONTEXT, 1_048_576, 1_200_293, 1_200_293),
    ),
    "gemini, an object": (
        400,
        gemini("The input token count exceeds the maximum number of tokens allowed 1048576.")[0],
        told(CONTEXT, 1_048_576),
    ),
    "vertex": (
        400,
        gemini("Unable to submit request because the input token count is 9001 but model only supports up to 8192."),
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "bedrock": (400, {"message": "Input is too long for requested model."}, told(CONTEXT)),
    "bedrock, with figures": (
        400,
        {
            "__type": "ValidationException",
            "message": "Too many input tokens. Max input tokens: 8192, request input token count: 9001",
        },
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "cohere": (
        400,
        {
            "message": "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 5000. Try"
            " using a shorter prompt"
        },
        told(CONTEXT, 4081, 5000, 5000),
    ),
    "perplexity": (400, openai("The total length of all messages is too long."), told(CONTEXT)),
    "siliconflow": (
        400,
        {
            "code": 20015,
            "message": "length of prompt_tokens (9001) must be less than max_seq_len (8192).",
            "data": None,
        },
        told(CONTEXT, 8192, 9001, 9001),
    ),
    "openrouter": (
        400,
        {
            "error": {
                "message": "This endpoint's maximum context length is 131072 tokens. However, you requested about"
                " 141607 tokens (100000 of text input, 10535 of tool input, 31072 in the output).",
                "code": 400,
            }
        },
        told(CONTEXT, 131_072, 141_607, 110_535, 31_072),
    ),
    "openrouter, raw": (
        400,
        wrapped(anthropic("prompt is too long: 208310 tokens > 200000 maximum")),
        told(CONTEXT, 200_000, 208_310, 208_310),
    ),
    "openrouter, raw in raw": (
        502,
        wrapped(wrapped(gemini("The input token count (9) exceeds the maximum number of tokens allowed (8)."))),
        told(CONTEXT, 8, 9, 9),
    ),
    "litellm": (
        400,
        litellm('{"type":"error","error":{"message":"prompt is too long: 208310 tokens > 200000 maximum"}}'),
        told(CONTEXT, 200_000, 208_310, 208_310),
    ),
    "an error in an event stream": (
        400,
        f"event: error\ndata: {json.dumps(openai('', 'context_length_exceeded'))}\n\ndata: [DONE]\n\n",
        told(CONTEXT),
    ),
    "the completion by itself": (
        400,
        openai("max_tokens is too large: 99999. This model supports at most 16384 completion tokens, whereas you"),
        told(COMPLETION, 16_384, output=99_999),
    ),
    "the completion by itself, whatever the code": (
        400,
        openai(
            "max_tokens is too large: 99999. This model supports at most 16384 completion", "context_length_exceeded"
        ),
        told(COMPLETION, 16_384, output=99_999),
    ),
    "anthropic, the completion": (
        400,
        anthropic("max_tokens: 64001 > 64000, which is the maximum allowed number of output tokens for claude-x"),
        told(COMPLETION, 64_000, output=64_001),
    ),
    "groq, the completion": (
        400,
        openai(
            "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the"
            " `context_window` for this model"
        ),
        told(COMPLETION, 8192),
    ),
    "dashscope, the completion": (400, openai("Range of max_tokens should be [1, 8192]"), told(COMPLETION, 8192)),
    "deepseek, the completion": (
        400,
        openai("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"),
        told(COMPLETION, 8192),
    ),
    "no room beside the completion": (
        400,
        openai(f"{WINDOW} However, you requested 8200 tokens (8 in the messages, 8192 in the completion)."),
        told(COMPLETION, 8192, 8200, 8, 8192),
    ),
    "openai, messages by number": (
        400,
        {
            "error": {
                "message": "Invalid 'messages': array too long. Expected an array with maximum length 2048, but instead"
                " got an array with length 2300 instead.",
                "type": "invalid_request_error",
                "param": "messages",
                "code": "array_above_max_length",
            }
        },
        told(MESSAGES, 2048),
    ),
    "groq, messages by number": (400, openai("'messages' : maximum number of items is 2048"), told(MESSAGES, 2048)),
    "openai, a string by length": (
        400,
        openai("Invalid 'messages[0].content': string too long. Expected a string", "string_above_max_length"),
        told(BODY),
    ),
    "anthropic, bytes": (413, anthropic("Request exceeds the maximum size", "request_too_large"), told(BODY)),
    "gemini, bytes": (400, gemini("Request payload size exceeds the limit: 20971520 bytes."), told(BODY)),
    "nginx": (413, "<html><head><title>413 Request Entity Too Large</title></head></html>", told(BODY)),
    "413 and nothing else": (413, "", told(BODY)),
}

OTHERS: dict[str, tuple[int, Any]] = {
    "tokens per minute": (
        429,
        openai(
            "Request too large for m-1 in organization o on tokens per min (TPM): Limit 30000, Requested 30601.",
            "rate_limit_exceeded",
            "tokens",
        ),
    ),
    "tokens per minute as 413": (
        413,
        openai(
            "Request too large for model `m-1` on tokens per minute (TPM): Limit 12000, Requested 13500, please"
            " reduce your message size",
            "rate_limit_exceeded",
            "tokens",
        ),
    ),
    "tokens per minute without a code": (
        400,
        {"message": "Request too large on tokens per minute (TPM): Limit 1, Requested 2"},
    ),
    "429 whatever it says": (429, openai("maximum context length is 8192 tokens", "context_length_exceeded")),
    "bedrock throttles": (400, {"message": "ThrottlingException: Too many tokens, please wait before trying again."}),
    "credits": (402, openai("This request requires more credits, or fewer max_tokens. You requested up to 65536")),
    "prompt tokens by credit": (400, openai("Prompt tokens limit exceeded: 9 > 8. To increase, buy credits")),
    "content filter": (
        400,
        openai("The response was filtered due to the prompt triggering the content policy.", "content_filter"),
    ),
    "a filter that speaks of length": (400, openai("prompt is too long", "content_policy_violation")),
    "unauthorized": (401, {"message": "Unauthorized"}),
    "model not found": (404, openai("The model `long-context-length-exceeded` does not exist", "model_not_found")),
    "orphan tool message": (
        400,
        openai("messages with role 'tool' must be a response to a preceding message with 'tool_calls'."),
    ),
    "unanswered calls": (400, anthropic("messages.14: `tool_use` ids were found without `tool_result` blocks after")),
    "roles": (400, bare("After the optional system message, conversation roles must alternate user/assistant/...")),
    "too many tools": (
        400,
        {
            "error": {
                "message": "Invalid 'tools': array too long. Expected an array with maximum length 128",
                "param": "tools",
                "code": "array_above_max_length",
            }
        },
    ),
    "a bad value": (400, openai("max_tokens must be at least 1, got 0.")),
    "an image": (400, openai("Image size of 30 MB is too large: maximum is 20 MB")),
    "a stop at the limit": (400, openai("Could not finish the message because max_tokens or output limit was hit")),
    "what the model wrote": (
        400,
        {
            "error": {
                "message": "Tool call validation failed",
                "code": "tool_use_failed",
                "failed_generation": "prompt is too long: 9 tokens > 8 maximum",
            }
        },
    ),
    "what the client wrote": (
        422,
        {
            "detail": [
                {
                    "type": "missing",
                    "loc": ["body", "model"],
                    "msg": "Field required",
                    "input": {"messages": [{"role": "user", "content": "prompt is too long: 9 tokens > 8 maximum"}]},
                }
            ]
        },
    ),
    "what the client wrote, quoted": (
        400,
        {
            "error": {
                "message": "Invalid value: 'this model's maximum context length is 4096 tokens'. Supported: 'system'.",
                "param": "messages[0].role",
                "code": "invalid_value",
            }
        },
    ),
    "overloaded": (529, anthropic("Overloaded", "overloaded_error")),
    "server error": (500, openai("The server had an error while processing your request.", None, "server_error")),
    "not an error": (200, openai("", "context_length_exceeded")),
    "empty": (400, ""),
    "null": (400, "null"),
    "a number": (400, "400"),
}


def body(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


@pytest.mark.parametrize(("status", "error", "refusal"), OVERFLOWS.values(), ids=OVERFLOWS)
def test_an_overflow_is_known_with_its_figures(status: int, error: Any, refusal: Refusal) -> None:
    assert classify(status, [], body(error)) == refusal


@pytest.mark.parametrize(("status", "error"), OTHERS.values(), ids=OTHERS)
def test_other_errors_are_none(status: int, error: Any) -> None:
    assert classify(status, [], body(error)) is None


@pytest.mark.parametrize(
    ("error", "refusal"),
    [(error, refusal) for _, error, refusal in OVERFLOWS.values() if not isinstance(error, str)],
    ids=[name for name, (_, error, _) in OVERFLOWS.items() if not isinstance(error, str)],
)
def test_an_error_inside_a_stream_is_known_as_well(error: Any, refusal: Refusal) -> None:
    assert classify_event(error) == refusal
    if isinstance(error, dict) and isinstance(error.get("error"), dict):
        assert classify_event(error["error"]) == refusal


@pytest.mark.parametrize(
    "error",
    [
        {"error": {"code": 502, "message": "Provider disconnected"}},
        {"error": {"code": 429, "message": "prompt is too long: 9 tokens > 8 maximum"}},
        {"code": 401, "message": "maximum context length is 8192 tokens"},
        None,
        17,
        True,
        [],
        {},
        "",
        {"error": None},
    ],
    ids=str,
)
def test_other_errors_inside_a_stream_are_none(error: Any) -> None:
    assert classify_event(error) is None


@pytest.mark.parametrize(
    ("written", "limit"),
    [
        ("8192", 8192),
        ("8192.0", 8192),
        ("1,048,576", 1_048_576),
        ("1_048_576", 1_048_576),
        ("1.048.576", 1_048_576),
        ("1 048 576", 1_048_576),
        ("128k", 128_000),
        ("128 K", 128_000),
        ("1M", 1_000_000),
        ("1.5M", 1_500_000),
        ("9" * 13, None),
        ("0", None),
    ],
)
def test_figures_are_read_as_people_write_them(written: str, limit: int | None) -> None:
    error = openai(f"This model's maximum context length is {written} tokens. Please shorten it.")

    refusal = classify(400, [], body(error))

    assert refusal is not None
    assert refusal.limit == limit


@pytest.mark.parametrize("status", [400, 413, 422, 500, 502, 503])
def test_the_status_does_not_decide(status: int) -> None:
    error = anthropic("prompt is too long: 9001 tokens > 8192 maximum")

    assert classify(status, [], body(error)) == told(CONTEXT, 8192, 9001, 9001)


def test_a_compressed_body_is_read() -> None:
    error = gzip.compress(body(openai("", "context_length_exceeded")))

    assert classify(400, [(b"content-encoding", b"gzip")], error) == told(CONTEXT)
    assert classify(400, [(b"content-encoding", b"gzip")], error[:20]) is None
    assert classify(400, [(b"content-encoding", b"nobody-knows")], error) is None


def test_a_body_cut_in_the_middle_is_read_as_text() -> None:
    whole = body(openai("prompt is too long: 9001 tokens > 8192 maximum", "context_length_exceeded"))

    assert classify(400, [], whole[:-10]) == told(CONTEXT, 8192, 9001, 9001)


MANY = 1_000_000
ENDLESS: dict[str, tuple[bytes, int]] = {
    "100 MB": (b'{"error":{"code":"context_length_exceeded","message":"xxxxxxxxxx', 50 * 2**15),
    "deep": (b"[", 100 * MANY),
    "deep objects": (b'{"error":', MANY),
    "a phrasing": (b"maximum context length is 8192 tokens. you requested ", MANY // 10),
    "figures": (b"9,", MANY),
    "a phrasing's start": (b"prompt too long; exceeded ", MANY // 10),
    "parts": (b"1 tokens in the messages ", MANY // 10),
    "not UTF-8": (b"\xff\xfe\x00", MANY),
    "half emoji": (b"\\ud83d", MANY),
    "events": (b"data: {}\n", MANY),
    "escapes": (b"\\", MANY),
}


@pytest.mark.parametrize("start", [b"", b'{"error":{"message":"'], ids=["bare", "in a message"])
@pytest.mark.parametrize(("piece", "times"), ENDLESS.values(), ids=ENDLESS)
def test_the_work_on_any_body_is_bounded(piece: bytes, times: int, start: bytes) -> None:
    error = start + piece * times
    started = time.thread_time()

    classify(400, [], error)

    assert time.thread_time() - started < 1


def test_a_compressed_body_is_not_inflated_whole() -> None:
    bomb = gzip.compress(b" " * 10 * MANY)
    started = time.thread_time()

    assert classify(400, [(b"content-encoding", b"gzip")], bomb) is None
    assert time.thread_time() - started < 0.5


@given(st.binary(max_size=2_000) | st.text(max_size=500).map(str.encode), st.integers(100, 599))
@settings(max_examples=200, deadline=None)
def test_no_body_raises(error: bytes, status: int) -> None:
    refusal = classify(status, [], error)

    assert refusal is None or refusal.kind in Kind


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["error", "message", "code", "metadata", "raw", "n_ctx"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
@settings(max_examples=200, deadline=None)
def test_no_event_raises(error: Any) -> None:
    refusal = classify_event(error)

    assert refusal is None or refusal.kind in Kind


@given(st.integers(1, 10**8), st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_the_figures_are_those_of_the_text(limit: int, over: int) -> None:
    said = f"prompt is too long: {limit + over} tokens > {limit} maximum"

    assert classify(400, [], body(anthropic(said))) == told(CONTEXT, limit, limit + over, limit + over)
