"""What every client here is run with: `python CLIENT.py SCENARIO`, the conversation in the file that $TALK names.

A client knows the proxy by its base URL alone, and prints what it was told, as one line of JSON.
"""

import json
import os
import sys

with open(os.environ["TALK"], encoding="utf-8") as _file:
    _talk = json.load(_file)

MODEL = _talk["model"]
SYSTEM = _talk["system"]
QUESTIONS = _talk["questions"]
SLOW = _talk["slow"]
FAILS = _talk["fails"]
IMAGE = _talk["image"]
EDIT = _talk["edit"]
TASK = _talk["task"]
SCHEMA_QUESTION = _talk["schema_question"]


def look_up(berth: int) -> str:
    """Look a berth up in the harbour's register."""
    return _talk["result"].format(berth=berth)


def run(**scenarios):
    """Run the scenario that was asked for, and print what it gives."""
    print("\n" + json.dumps(scenarios[sys.argv[1]]()), flush=True)
