"""What a chat template adds around the texts of a request, by family, in tokens.

OpenAI's figures are the ones that its cookbook prints (3 a message, 1 for a name, 3 that prime the reply) and, for
calls, results, tools and formats, the ones that its reported usage gives: the first call of a message is its name and
arguments behind a recipient (` to=functions.`), parallel calls are one JSON call of `multi_tool_use.parallel`, and a
result is headed by the name of the function that was called. The other families' are a little above what their
published templates add.
"""

from dataclasses import dataclass, replace

from proxy.tokens.models import Family


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """Tokens around the texts; `message` counts the role, `result` and `named_choice` leave the name out.

    `declared`: tools are given as TypeScript declarations (else as JSON), which cost `tools` more once.
    `preamble` is what stands in front of every conversation.
    """

    message: int = 4
    name: int = 1
    reply: int = 3
    call: int = 4
    parallel: int = 5
    result: int = 1
    tools: int = 5
    declared: bool = True
    named_choice: int = 11  # seen once
    response_schema: int = 11
    preamble: int = 0


OPENAI = Framing()

# cl100k_base's models: without a system message the tools cost 9, with one 5 or 6.
OPENAI_CL100K = Framing(call=3, result=-1, tools=8, named_choice=4)

_TEMPLATE = Framing(message=5, call=10, parallel=0, result=6, tools=100, declared=False, response_schema=20)
FRAMINGS: dict[Family, Framing] = {
    Family.OPENAI: OPENAI,
    # Harmony names a channel with every call and result, and has a system message of its own in front.
    Family.GPT_OSS: replace(OPENAI, call=9, result=6, tools=12, response_schema=60, preamble=65),
    Family.CLAUDE: replace(_TEMPLATE, message=4, call=30, result=15, tools=330),
    Family.GEMINI: replace(_TEMPLATE, message=2, call=5, result=3, tools=15, reply=1),
    Family.LLAMA: replace(_TEMPLATE, preamble=26),  # the dates that its template puts in front
    Family.DEEPSEEK: replace(_TEMPLATE, message=3, reply=2),
    Family.QWEN: replace(_TEMPLATE, call=15, result=10, tools=200, preamble=20),
}


def framing_of(family: Family, encoding: str) -> Framing:
    """The framing of a family's models that use `encoding`."""
    if family is Family.OPENAI and encoding == "cl100k_base":
        return OPENAI_CL100K
    return FRAMINGS.get(family, _TEMPLATE)
