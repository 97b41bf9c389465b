"""Long dialogues with facts planted in them, made from templates by a seed: nothing from outside is needed.

A fact is one sentence that a user says once, early, among remarks about other things; facts of the same kind about
other things are said as well, and nobody repeats any of them. The question uses other words where people would.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from bench.data import MODEL, Conversation

EARLY = 0.6  # the share of a dialogue, from its beginning, that facts are planted in
SHORTEST = 0.8  # of the length that is asked for: lengths differ, so that not every question comes as long after a cut


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fact: how it is said and asked for, and its subjects and values, which `{s}` and `{v}` stand for."""

    name: str
    said: str
    asked: str
    subjects: Sequence[str]
    values: Sequence[str]


_NAMES = ("Imre", "Salma", "Joost", "Petra", "Akin", "Noor", "Tove", "Marek", "Ines", "Yusuf", "Brid", "Oskar")
_ROOMS = ("hallway", "attic", "kitchen", "pantry", "study", "cellar", "porch", "laundry room", "workshop", "nursery")
_PLACES = ("swimming pool", "library", "station", "climbing hall", "rowing club", "museum", "theatre", "ice rink")
_DEVICES = ("dishwasher", "thermostat", "projector", "scanner", "router", "freezer", "telescope", "loom", "kiln")
_GOODS = ("piano", "oak table", "greenhouse", "bookcase", "wood stove", "canoe", "mirror", "carpet", "bathtub")
_STREETS = ("Harbour Lane", "Mill Road", "Weaver Street", "Abbey Square", "Quarry Hill", "Orchard Walk", "Tannery Row")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = ("March", "April", "May", "June", "September", "October")

KINDS = (
    Kind(
        "code",
        "The code of my locker at the {s} is {v}.",
        "Which number opens my locker at the {s}?",
        _PLACES,
        tuple(str(number) for number in range(1043, 9900, 61)),
    ),
    Kind(
        "amount",
        "We agreed that {s} will pay {v} euros of it.",
        "How much does {s} have to pay?",
        _NAMES,
        tuple(str(number) for number in range(112, 990, 13)),
    ),
    Kind(
        "address",
        "They should bring the {s} to {v}.",
        "Where is the {s} to be delivered?",
        _GOODS,
        tuple(f"{number} {street}" for street in _STREETS for number in range(3, 90, 11)),
    ),
    Kind(
        "diet",
        "By the way, {s} is allergic to {v}.",
        "What must I keep out of the food when {s} is coming?",
        _NAMES,
        ("walnuts", "celery", "shrimp", "sesame", "mustard", "lupin", "strawberries", "rye", "oysters", "soy"),
    ),
    Kind(
        "date",
        "{s} has moved our meeting to {v}.",
        "When am I to meet {s}?",
        _NAMES,
        tuple(f"{day} {number} {month}" for day in _DAYS for month in _MONTHS for number in range(2, 29, 7)),
    ),
    Kind(
        "serial",
        "The {s} has the serial number {v}.",
        "What is the serial number of the {s}?",
        _DEVICES,
        tuple(f"{a}{b}-{number}" for a in "KQTX" for b in "BDW" for number in range(207, 990, 87)),
    ),
    Kind(
        "colour",
        "I have made up my mind: the {s} will be {v}.",
        "What colour did I choose for the {s}?",
        _ROOMS,
        (
            "ochre",
            "teal",
            "burgundy",
            "ivory",
            "slate grey",
            "mint green",
            "terracotta",
            "indigo",
            "coral",
            "mustard yellow",
        ),
    ),
)

_OPENERS = (
    "One more thing before I forget.",
    "Let me tell you something else.",
    "Please keep this in mind.",
    "Something came up this morning.",
    "While we are at it.",
    "I had a call about this.",
)
_REMARKS = (
    "The {a} took longer than I thought, and the weather did not help either.",
    "I spent most of the afternoon on the {a}, and I am still not quite happy with it.",
    "Do you think that one can start with the {a} before the {b} is finished?",
    "My neighbour says that the {a} should always come before the {b}.",
    "I read a long article about every kind of {a}, and now I know less than before.",
    "Somebody left the {a} beside the {b} again; I had to move both of them.",
    "What do people usually do about the {a} at this time of the year?",
    "It is quiet here today, so I finally looked at the {a} and then at the {b}.",
)
_THINGS = (
    *("fence", "gutter", "ladder", "hedge", "compost", "shed", "gate", "well", "roof", "chimney", "lawn", "path"),
    *("curtain", "shelf", "drawer", "lamp", "stool", "door", "step", "window", "cupboard", "bench", "pipe", "wall"),
)
_REPLIES = (
    "I see. It is often worth looking at the {a} first and deciding about the rest afterwards.",
    "That sounds like a good plan; give the {a} a few days, and then have another look.",
    "Thank you for telling me. Shall we go on with the {a}?",
    "Noted. Many people find that the {a} is the smaller part of the work.",
    "All right. There is no hurry with the {a}, as far as I can tell.",
    "Good to know. If the {a} gives you trouble, take a picture and we will see.",
)


def dialogues(count: int, messages: int, facts: int, seed: int) -> Iterator[Conversation]:
    """So many dialogues of at most so many messages, the same for the same seed; a question for each planted fact.

    Raises ValueError where the early part of a dialogue has not room for that many facts and as many beside them, or
    there are not that many to tell apart.
    """
    room = _room(int(messages * SHORTEST))
    most = sum(min(len(kind.subjects), len(kind.values)) // 2 for kind in KINDS)
    if not 0 < facts <= min(room // 2, most):
        raise ValueError(f"facts: must be 1 to {max(0, min(room // 2, most))} in {messages} messages, got {facts}")
    for number in range(count):
        chance = random.Random(f"{seed}-{number}")
        yield _dialogue(f"planted-{seed}-{number}", chance.randint(int(messages * SHORTEST), messages), facts, chance)


def _room(messages: int) -> int:
    """How many turns of so many messages may state a fact."""
    return int(messages * EARLY) // 2 - 1


def _dialogue(name: str, messages: int, facts: int, chance: random.Random) -> Conversation:
    room = _room(messages)
    planted = _facts(2 * facts, chance)
    places = sorted(chance.sample(range(1, room + 1), len(planted)))  # turns; the first message is the task
    at = dict(zip(places, chance.sample(planted, len(planted)), strict=True))
    wanted = {id(fact) for fact in planted[::2]}
    said: list[dict[str, Any]] = [{"role": "system", "content": "You help with a house, its people and its errands."}]
    questions: list[dict[str, Any]] = []
    for turn in range(messages // 2):
        remark = _remark(_REMARKS, chance)
        fact = at.get(turn)
        if fact is not None:
            kind, subject, value = fact
            remark = f"{chance.choice(_OPENERS)} {kind.said.format(s=subject, v=value)}"
            if id(fact) in wanted:
                question = kind.asked.format(s=subject)
                questions.append(
                    {"question": question, "answer": value, "category": kind.name, "evidence": [len(said)]}
                )
        said += [{"role": "user", "content": remark}, {"role": "assistant", "content": _remark(_REPLIES, chance)}]
    return Conversation(name, {"model": MODEL, "messages": said}, {"id": name, "qas": questions})


def _facts(count: int, chance: random.Random) -> list[tuple[Kind, str, str]]:
    """Facts of all kinds in turn; no two of a kind share a subject or a value."""
    pools = {
        kind.name: list(
            zip(
                chance.sample(kind.subjects, len(kind.subjects)),
                chance.sample(kind.values, len(kind.values)),
                strict=False,
            )
        )
        for kind in KINDS
    }
    made: list[tuple[Kind, str, str]] = []
    while len(made) < count:
        for kind in chance.sample(KINDS, len(KINDS)):
            if len(made) + 1 < count and len(pools[kind.name]) >= 2:  # one to ask for, one beside it
                made += [(kind, *pools[kind.name].pop()) for _ in range(2)]
    return made


def _remark(templates: Sequence[str], chance: random.Random) -> str:
    a, b = chance.sample(_THINGS, 2)
    return chance.choice(templates).format(a=a, b=b)
