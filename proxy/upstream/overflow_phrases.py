"""How upstreams word it that a request is too long: a table of phrasings, and the figures in them.

In a phrasing, `<limit>`, `<prompt>`, `<total>` (prompt and answer), `<output>` (reserved for the answer) and `<over>`
(how far it is over) stand for numbers; the first phrasing that is found decides. They are searched in a text of at
most `LONGEST` characters, without nested repetitions, so the work is bounded.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What of a request is too much for an upstream."""

    CONTEXT = "context"  # prompt, or prompt and answer together: less history helps
    COMPLETION = "completion"  # the answer's own limit: no eviction helps
    BODY = "body"  # bytes or characters
    MESSAGES = "messages"  # the number of messages


LONGEST = 4096
"""Characters of one text that are searched."""

_NUMBER = r"(?:\d{1,3}(?:[ \u00a0\u202f']\d{3})+(?!\d)|\d[\d,._]{0,18})(?: ?[kKmM]\b)?"
_FIGURE = re.compile(r"<(limit|prompt|total|output|over)>")
_TENTHS = re.compile(r"\d+\.\d{1,2}")  # of a program that counts tokens in floats: no groups of thousands
_DIGITS = 12  # more than any count of tokens has


@dataclass(frozen=True, slots=True)
class Found:
    """What a phrasing said; figures that it does not give are None."""

    kind: Kind
    limit: int | None = None
    prompt: int | None = None
    total: int | None = None
    output: int | None = None
    over: int | None = None


def _table(kind: Kind, *phrasings: str) -> list[tuple[Kind, re.Pattern[str]]]:
    return [
        (kind, re.compile(_FIGURE.sub(lambda name: f"(?P<{name[1]}>{_NUMBER})", phrasing), re.IGNORECASE | re.DOTALL))
        for phrasing in phrasings
    ]


PHRASINGS = [
    # The answer's own limit.
    *_table(
        Kind.COMPLETION,
        # OpenAI
        r"max_(?:completion_|output_)?tokens is too large: <output>\. this model supports at most <limit> completion",
        r"supports at most <limit> (?:completion|output) tokens",
        # Anthropic, Bedrock; DashScope; Groq, DeepSeek, Cohere and others
        r"max_tokens: <output> > <limit>, which is the maximum allowed number of output tokens",
        r"range of max_(?:completion_|output_)?tokens should be \[\d{1,9}, ?<limit>\]",
        r"max_(?:completion_|output_)?tokens[`'\"]? ?(?:value )?must be (?:less than or equal to|at most|<=) `?<limit>",
        r"valid range of max_tokens is \[\d{1,9}, ?<limit>\]",
        r"max_tokens[^.]{0,40} exceeds the model limit of <limit>",
        # Gemini
        r"supported range is from \d{1,9} \(inclusive\) to <limit> \(exclusive\).{0,40}max_?output_?tokens",
        r"max_?output_?tokens.{0,60}supported range is from \d{1,9} \(inclusive\) to <limit>",
    ),
    # The number of messages.
    *_table(
        Kind.MESSAGES,
        r"'messages': array too long(?:\. expected an array with maximum length <limit>)?",
        r"messages['\"`]? ?: maximum number of items is <limit>",
        r"too many messages",
        r"(?:number of messages|messages count) (?:\(\d{1,9}\) )?(?:exceeds|must be (?:at most|less than))",
        r"messages: (?:list|array) should have at most <limit> items",
    ),
    # Prompt, or prompt and answer.
    *_table(
        Kind.CONTEXT,
        # vLLM: what is asked for the answer beside a prompt of this size
        r"max_(?:completion_)?tokens['\"`]? is too large: <output>\. this model's maximum context length is <limit>"
        r" tokens and your request has <prompt> input tokens",
        r"maximum context length is <limit> tokens\. however, you requested <output> output tokens and your prompt"
        r" contains (?:at least )?<prompt> input tokens(?:, for a total of (?:at least )?<total>)?",
        r"passed <prompt> input tokens and requested <output> output tokens\..{0,60}context length is only <limit>",
        # OpenAI, Azure, vLLM, DeepSeek, OpenRouter, FastChat
        r"maximum context length is <limit> tokens.{0,40}your (?:messages|prompt|input) resulted in <prompt> tokens",
        r"maximum context length is <limit> tokens.{0,40}you requested (?:about |at least )?<total> tokens",
        r"maximum context length is <limit> tokens.{0,80}(?:prompt|request|input|messages) (?:contains?|has)"
        r" (?:at least )?<prompt>",
        r"input tokens exceed the configured limit of <limit> tokens(?:\. your messages resulted in <prompt> tokens)?",
        r"(?:input|prompt) length \(?<prompt>\)? exceeds (?:the )?(?:model'?s )?max(?:imum)? (?:context|input|allowed"
        r"(?: input)?)(?: length)? \(?(?:of )?<limit>",
        r"exceeds the model'?s maximum context length(?: of <limit> tokens)?(?:\. you requested a total of <total>)?",
        # vLLM of old, SGLang, Together, TensorRT-LLM
        r"prompt \(length <prompt>\) is longer than the maximum model length of <limit>",
        r"\(<prompt> tokens\) is longer than the model'?s context length \(<limit>",
        r"prompt length \(<prompt>\) exceeds maximum input length \(<limit>",
        r"max_tokens must be at least 1, got -<over>",
        r"default_max_tokens \(-<over>\) should be greater than 0",
        # llama.cpp, llama-cpp-python, LM Studio, Ollama, ds4
        r"request \(<prompt> tokens\) exceeds the available context size \(<limit>",
        r"exceeds? the available context size",
        r"requested tokens \(<total>\) exceed context window of <limit>",
        r"keep the first <prompt> tokens when context.{0,80}context length of only <limit>",
        r"truncate prompt with n_keep \(<prompt>\) >= n_ctx \(<limit>",
        r"tokens to keep from the initial prompt is greater than the context length"
        r"(?:.{0,20}n_keep: ?<prompt>>= ?n_ctx: ?<limit>)?",
        r"context length is only <limit> tokens",
        r"prompt (?:is )?too long; exceeded (?:max )?context length(?: by <over> tokens)?",
        r"input length exceeds the (?:maximum )?context length",
        r"prompt has <prompt> tokens?, but the configured context size is <limit>",
        # TensorRT-LLM, ExLlamaV2 and TabbyAPI, SambaNova
        r"prompt length \([\d.]{1,12}\).{0,40}should not exceed max_num_tokens \(<limit>",
        r"context length <prompt> is greater than max_seq_len <limit>",
        r"prompt is <prompt> tokens long.{0,120}maximum supported sequence length is (?:just )?<limit>",
        # TGI, Together, Hugging Face
        r"max_new_tokens` must be <= <limit>\. given: <prompt> `inputs` tokens and <output> `max_new_tokens",
        r"inputs` must have less than <limit> tokens\. given: <prompt>",
        # Anthropic and Bedrock
        r"exceed context limit: <prompt> \+ <output> > <limit>",
        r"prompt is too long: <prompt>(?: tokens)? ?> ?<limit> maximum",
        # Fireworks
        r"prompt is too long: <prompt>, model maximum context length: <limit>",
        r"input (?:is|was) too long for (?:the )?requested model",
        r"too many input tokens[:. ]{1,3}(?:max input tokens: <limit>, request input token count: <prompt>)?",
        r"(?:prompt|input|message|conversation) (?:is|was) too long",
        # Gemini and Vertex AI
        r"input token count (?:is )?\(?<prompt>\)? (?:exceeds the maximum number of tokens allowed|but model only"
        r" supports up to) \(?<limit>",
        r"input token count exceeds the maximum number of tokens allowed \(?<limit>",
        # Mistral, xAI, Cerebras, GitHub, Copilot, Moonshot, MiniMax, DashScope, Perplexity
        r"prompt contains <prompt> tokens.{0,40}too large for model with <limit> maximum context length",
        r"maximum prompt length is <limit> but the request contains <prompt>",
        r"current length is <prompt> while limit is <limit>",
        r"request body too large for .{1,80}? model\. max size: <limit> tokens",
        r"prompt token count of (?:<prompt>|\S{1,20}) exceeds the limit of(?: <limit>)?",
        r"exceeded model token limit(?:: <limit>(?: \(requested: <total>)?)?",
        r"context window exceeds limit",  # the figure that MiniMax adds, 2013, is the code of its error
        r"range of input length should be \[\d{1,9}, ?<limit>\]",
        r"total length of all messages is too long",
        # watsonx, Cloudflare, AI21
        r"number of input tokens <prompt> cannot exceed the total tokens limit <limit>",
        r"input and maximum output tokens \(<total>\) exceed(?:s|ed) this model context window limit \(<limit>",
        # Cohere, SiliconFlow, Volcengine, Zhipu, Databricks
        r"number of tokens in the prompt cannot exceed <limit>.{0,20}received <prompt>",
        r"too many tokens: .{0,80}cannot exceed <limit>(?:.{0,20}received <prompt>)?",
        r"prompt_tokens \(<prompt>\) must be less than (?:or equal to )?max_seq_len \(<limit>",
        r"max_total_tokens \(<total>\) must be less than or equal to max_seq_len \(<limit>",
        r"exceeds? max message tokens",
        r"prompt exceeds max(?:imum)? length",
        r"tokens in request more than max tokens allowed",
        # What many say, with few figures or none
        r"maximum (?:context|model|sequence) length(?: is| of|:)? <limit>",
        r"exceed(?:s|ed|ing)? (?:the |this |its )?(?:model'?s? )?(?:maximum |max )?context (?:window|length|limit|size)"
        r"(?: (?:of |limit of |\()<limit>)?",
        r"context (?:length|window|limit) (?:was |has been |is )?exceeded",
        r"token limit exceeded",
        r"too many tokens(?:: size limit exceeded by <over> tokens(?:.{0,80}limit for this model is <limit>)?)?",
        r"reduce the length of (?:the|your) (?:messages|prompt|input)",
    ),
    # Bytes.
    *_table(
        Kind.BODY,
        r"string too long\. expected a string with maximum length",
        r"(?:request|payload)(?: payload)?(?: entity| body| size)? (?:is )?(?:too large|exceeds the (?:maximum|limit))",
        r"(?:exceeds|exceeded) the maximum (?:allowed )?(?:size|number of bytes)",
        r"body (?:exceeded|is larger than|over) .{0,20}(?:bytes|limit)",
    ),
]

_COMPLETION_PART = re.compile(r"completion|output|generat", re.IGNORECASE)
_PART = re.compile(
    rf"(?P<n>{_NUMBER}) (?:tokens )?(?:in|of|for|from) (?:the |your )?(?P<what>[a-z]{{3,12}}(?: (?:input|messages))?)",
    re.IGNORECASE,
)


def find(text: str) -> Found | None:
    """What the first phrasing says that is found in `text`, None if none is."""
    text = text[:LONGEST].replace("\u2019", "'")
    for kind, phrasing in PHRASINGS:
        if match := phrasing.search(text):
            figures = {name: number(value) for name, value in match.groupdict().items() if value}
            return Found(kind, **_with_parts(figures, text[match.start() :]))
    return None


def _with_parts(figures: dict[str, int | None], text: str) -> dict[str, int | None]:
    """The figures, and the parts of a total that the text splits up («90 in the messages, 10 in the completion»)."""
    if "total" not in figures or figures.get("prompt") is not None:
        return figures
    prompt: list[int] = []
    output: list[int] = []
    for name, tokens in _parts(text):
        (output if _COMPLETION_PART.search(name) else prompt).append(tokens)
    if not prompt:
        return figures
    return {**figures, "prompt": sum(prompt), "output": sum(output) if output else figures.get("output")}


def _parts(text: str) -> Iterator[tuple[str, int]]:
    for match in _PART.finditer(text[:600]):
        if (tokens := number(match["n"])) is not None:
            yield match["what"], tokens


def number(text: str) -> int | None:
    """A count as people write it: `4097`, `4097.0`, `1,048,576`, `1_048_576`, `128k`, `1.5M`; None beyond 10¹²."""
    text = text.strip().rstrip(",._")
    scale = {"k": 1_000, "m": 1_000_000}.get(text[-1:].lower())
    if scale is not None and "." in text:
        whole, _, fraction = text[:-1].strip().partition(".")
        if not (whole.isdecimal() and fraction.isdecimal() and len(whole) + len(fraction) < _DIGITS):
            return None
        return int(int(whole + fraction) * scale / 10 ** len(fraction))
    if scale is None and _TENTHS.fullmatch(text):
        text = text.partition(".")[0]
    digits = "".join(c for c in text if c in "0123456789")
    return int(digits) * (scale or 1) if 0 < len(digits) <= _DIGITS else None
