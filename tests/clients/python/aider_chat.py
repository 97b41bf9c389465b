"""aider, a coding agent, to which one types; it rewrites its prompt with every request."""

import subprocess
import sys
from pathlib import Path

from talk import EDIT, MODEL, QUESTIONS, run

AIDER = Path(sys.executable).with_name("aider")
QUIET = (
    *("--no-git", "--no-gitignore", "--no-check-update", "--no-show-release-notes", "--analytics-disable"),
    *("--no-show-model-warnings", "--no-pretty", "--no-fancy-input", "--no-suggest-shell-commands", "--yes-always"),
)


def edit():
    """Questions, and at the end a change to a file; what it was told is in the history that it keeps."""
    typed = "".join(f"{line}\n" for line in [*QUESTIONS, EDIT])
    own = ("--edit-format", "diff", "--map-tokens", "0", "--max-chat-history-tokens", "1000000")
    command = [AIDER, "--model", f"openai/{MODEL}", *own, *QUIET]
    subprocess.run(command, input=typed, capture_output=True, text=True, check=True)
    return [Path(".aider.chat.history.md").read_text("utf-8"), Path("berths.txt").read_text("utf-8")]


run(edit=edit)
