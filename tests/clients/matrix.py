"""The clients that are run through the proxy, and what is run with each."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MADE = ROOT / ".clients"
NODE = HERE / "node"
RAN = MADE / "ran.json"  # what has passed since the environments were last made

SCENARIOS = {
    "talk": "streaming",
    "whole": "whole answers",
    "helper": "streaming helper",
    "compatible": "generic provider",
    "tools": "tool loop",
    "structured": "structured output",
    "images": "images",
    "concurrent": "async",
    "abort": "abort",
    "retry": "retries",
    "edit": "file edits",
    "responses": "Responses API (untouched)",
}
"""What is run, in the words of the table."""

USUAL = ("talk", "whole", "tools", "structured", "responses")


@dataclass(frozen=True, slots=True)
class Client:
    """One client. Its requirements, script and environment go by `name`; `package` is what its version is of.

    `path` is the route that it takes; `own_history` says that it sends what it sent before, as chats do.
    """

    name: str
    title: str
    package: str
    scenarios: tuple[str, ...]
    node: bool = False
    path: str = ""
    own_history: bool = True

    @property
    def script(self) -> Path:
        """What is run."""
        stem = self.name.replace("-", "_")
        return NODE / f"{stem}.mjs" if self.node else HERE / "python" / f"{stem}_chat.py"

    @property
    def interpreter(self) -> Path | str:
        """What runs it."""
        return "node" if self.node else MADE / self.name / "bin" / "python"

    @property
    def ready(self) -> bool:
        """Whether it is installed."""
        return (NODE / "node_modules" / self.package).exists() if self.node else Path(self.interpreter).exists()

    @property
    def version(self) -> str:
        """The release that is pinned."""
        if self.node:
            return str(json.loads((NODE / "package.json").read_text())["dependencies"][self.package])
        pinned = (HERE / "requirements" / f"{self.name}.txt").read_text()
        found = re.search(rf"^{re.escape(self.package)}==(\S+)$", pinned, re.MULTILINE)
        assert found, f"{self.package} is not pinned in requirements/{self.name}.txt"
        return found[1]


CLIENTS = (
    Client(
        "openai",
        "openai for Node",
        "openai",
        ("talk", "whole", "helper", "tools", "structured", "images", "abort", "retry", "responses"),
        node=True,
    ),
    Client("langchain", "LangChain", "langchain-openai", (*USUAL, "concurrent")),
    Client("llama-index", "LlamaIndex", "llama-index-llms-openai", USUAL),
    Client("openai-agents", "OpenAI Agents SDK", "openai-agents", USUAL),
    Client("pydantic-ai", "Pydantic AI", "pydantic-ai-slim", USUAL),
    Client("ai-sdk", "Vercel AI SDK", "ai", (*USUAL, "compatible"), node=True),
    Client("llm", "llm", "llm", ("talk", "whole")),
    Client("aider", "aider", "aider-chat", ("edit",), path="/wide", own_history=False),
)
PLAIN = (*("talk", "whole", "helper", "tools", "structured", "images", "concurrent", "abort", "retry", "responses"),)
"""What is run with the official Python library, which the tests have anyhow."""
