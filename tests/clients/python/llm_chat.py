"""The `llm` command, whose chat is typed in."""

import re
import subprocess
import sys
from pathlib import Path

from talk import MODEL, QUESTIONS, SYSTEM, run

LLM = Path(sys.executable).with_name("llm")


def talk(*options):
    """A chat in a terminal, streamed; the command keeps the history."""
    typed = "".join(f"{question}\n" for question in [*QUESTIONS, "exit"])
    command = [LLM, "chat", "--model", MODEL, "--system", SYSTEM, *options]
    heard = subprocess.run(command, input=typed, capture_output=True, text=True, check=True).stdout
    return [text.strip() for text in re.split("^> ", heard, flags=re.MULTILINE)[1:-1]]


run(talk=talk, whole=lambda: talk("--no-stream"))
