"""Finding policies by name and making them from options, this package's own and others'."""

import sys
from dataclasses import dataclass
from datetime import date
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import Field

import policies
from policies import registry
from policies.errors import PolicyError
from policies.fifo import Fifo
from policies.plan import Plan
from policies.priority import Priority
from policies.types import Context, Need, Window, reads_prompt
from tests.policies.conformance import conforms
from tests.policies.sample_windows import talk


@dataclass(frozen=True)
class Sampled:
    """Keeps everything."""

    name: ClassVar[str] = "sampled"
    needs: ClassVar[frozenset[Need]] = frozenset({Need.VECTORS})

    seed: int
    tags: tuple[str, ...] = ()
    share: Annotated[float, Field(gt=0, lt=1, description="how much")] = 0.5
    mode: Literal["fast", "good"] = "fast"
    strict: bool = False
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.seed == 13:
            raise ValueError("seed: must not be unlucky, got 13")
        if self.limit == 0:
            raise ValueError("a limit of nothing keeps nothing")

    def plan(self, window: Window, target: int, context: Context) -> Plan:
        return Plan(self.name)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry as it is, to be changed for one test."""
    registry.names()
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    monkeypatch.setattr(registry, "_broken", {})


@pytest.fixture
def sampled(known: None) -> None:
    registry.register(Sampled)


def test_the_policies_of_this_package_are_known() -> None:
    assert {"fifo", "lru", "lru_token", "priority", "rwr", "token_cost", "clear_tool_results"} <= set(registry.names())
    assert registry.create("fifo") == Fifo()


def test_options_become_fields_and_the_rest_keeps_its_default() -> None:
    assert registry.create("priority", {"decay": 1, "age": "minutes"}) == Priority(decay=1.0, age="minutes")


@pytest.mark.usefixtures("sampled")
def test_every_kind_of_option_is_taken_as_a_configuration_file_gives_it() -> None:
    given = {"seed": 1, "tags": ["a", "b"], "share": 0.25, "mode": "good", "strict": True, "limit": 7}
    assert registry.create("sampled", given) == Sampled(1, ("a", "b"), 0.25, "good", True, 7)
    assert registry.create("sampled", {"seed": 1, "limit": None}) == Sampled(1)


WRONG: list[tuple[str, str, dict[Any, Any], str]] = [
    ("misspelt", "rwr", {"alhpa": 0.5}, 'policy.options: unknown option "alhpa", did you mean "alpha"? (options: al'),
    ("no-options", "fifo", {"keep": 1}, 'policy.options: unknown option "keep" (options: none)'),
    ("key-no-text", "fifo", {1: 1}, 'policy.options: unknown option "1" (options: none)'),
    ("range", "rwr", {"alpha": 7}, "policy.options.alpha: must be between 0 and 1, got 7"),
    ("low", "priority", {"decay": -0.1}, "policy.options.decay: must be at least 0, got -0.1"),
    ("open-range", "sampled", {"seed": 1, "share": 1.0}, "policy.options.share: must be over 0 and under 1, got 1.0"),
    ("choice", "priority", {"age": "hours"}, "policy.options.age: must be 'turns' or 'minutes', got 'hours'"),
    ("text-for-number", "rwr", {"alpha": "0.5"}, "policy.options.alpha: must be a valid number, got '0.5'"),
    ("bool-for-number", "rwr", {"alpha": True}, "policy.options.alpha: must be a valid number, got True"),
    ("not-finite", "rwr", {"alpha": float("nan")}, "policy.options.alpha: must be a finite number, got nan"),
    ("float-for-int", "clear_tool_results", {"keep": 1.5}, "policy.options.keep: must be a valid integer, got 1.5"),
    ("number-for-bool", "sampled", {"seed": 1, "strict": 1}, "policy.options.strict: must be a valid boolean, got 1"),
    ("null", "rwr", {"alpha": None}, "policy.options.alpha: must be a valid number, got None"),
    ("a-date", "sampled", {"seed": date(2024, 1, 1)}, "policy.options.seed: must be a number, text, list"),
    ("in-a-list", "sampled", {"seed": 1, "tags": ["a", 2]}, "policy.options.tags: must be a valid string, got ['a',"),
    ("required", "sampled", {}, "policy.options.seed: is required"),
    ("own-check", "sampled", {"seed": 13}, "policy.options.seed: must not be unlucky, got 13"),
    ("own-check-of-all", "sampled", {"seed": 1, "limit": 0}, "policy.options: a limit of nothing keeps nothing"),
    ("weights", "rwr", {"alpha": 0, "beta": 0}, "policy.options.alpha: must be over 0 where beta is 0, got 0"),
    ("blank", "clear_tool_results", {"placeholder": " "}, "policy.options.placeholder: must not be blank"),
    ("misspelt-policy", "prioriti", {}, 'policy: unknown policy "prioriti", did you mean "priority"? (policies:'),
    ("no-such-policy", "xyz", {}, 'policy: unknown policy "xyz" (policies: adaptive, clear_'),
]  # fmt: skip


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize(("_id", "name", "options", "problem"), WRONG, ids=[case[0] for case in WRONG])
def test_wrong_options_are_named_with_what_would_do(_id: str, name: str, options: dict[Any, Any], problem: str) -> None:
    with pytest.raises(PolicyError) as caught:
        registry.create(name, options)
    assert str(caught.value).startswith(problem)


def test_all_problems_come_at_once_under_the_path_asked_for() -> None:
    with pytest.raises(PolicyError) as caught:
        registry.create("rwr", {"beta": 2, "alpha": -1, "gamma": 0}, path="routes.0.policy")
    assert [problem.partition(":")[0] for problem in caught.value.problems] == [
        "routes.0.policy.options.alpha",
        "routes.0.policy.options.beta",
        "routes.0.policy.options",
    ]


def test_options_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(PolicyError, match=r"policy\.options: must be a mapping"):
        registry.create("rwr", [1])  # type: ignore[arg-type]


@pytest.mark.usefixtures("sampled")
def test_a_policy_is_described_with_its_options() -> None:
    found = registry.describe("sampled")
    assert (found.doc, found.needs) == ("Keeps everything.", {Need.VECTORS})
    assert [(one.name, one.type, one.default, one.required) for one in found.options] == [
        ("seed", "int", None, True),
        ("tags", "list of str", (), False),
        ("share", "float over 0 and under 1", 0.5, False),
        ("mode", "fast | good", "fast", False),
        ("strict", "bool", False, False),
        ("limit", "int | null", None, False),
    ]
    assert found.options[2].doc == "how much"


@pytest.mark.parametrize("name", registry.names())
def test_every_policy_and_option_is_explained(name: str) -> None:
    found = registry.describe(name)
    assert found.doc.endswith(".")
    assert all(one.doc for one in found.options)
    assert registry.create(name).needs == found.needs


READS: list[tuple[str, dict[str, Any], bool]] = [
    *((name, {}, False) for name in ("fifo", "lru", "lru_token", "priority", "clear_tool_results")),
    ("rwr", {}, True),
    ("rwr", {"relevance": "keywords"}, True),
    ("rwr", {"relevance": "tags"}, False),
    ("token_cost", {}, True),
    ("token_cost", {"relevance": "keywords"}, True),
    ("token_cost", {"relevance": "tags"}, False),
    ("token_cost", {"relevance": "none"}, False),
    ("sampled", {"seed": 1}, True),
]


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize(("name", "options", "expected"), READS)
def test_whether_a_policy_looks_at_the_prompt_is_known(name: str, options: dict[str, Any], expected: bool) -> None:
    assert reads_prompt(registry.create(name, options)) is expected


@pytest.mark.usefixtures("known")
def test_a_name_is_given_once_and_never_empty() -> None:
    @dataclass(frozen=True)
    class Another(Fifo):
        pass

    with pytest.raises(PolicyError, match="'fifo' is already the name of Fifo"):
        registry.register(Another)
    Another.name = ""
    with pytest.raises(PolicyError, match=r"Another\.name: must be a non-empty string"):
        registry.register(Another)
    registry.register(Fifo)  # the same class again is no second one


@pytest.mark.usefixtures("known")
def test_only_frozen_dataclasses_that_plan_are_policies() -> None:
    class Loose:
        name = "loose"

    @dataclass
    class Changing:
        name: ClassVar[str] = "changing"

    @dataclass(frozen=True)
    class Idle:
        name: ClassVar[str] = "idle"

    for policy, problem in ((Loose, "frozen dataclass"), (Changing, "frozen dataclass"), (Idle, "a method `plan`")):
        with pytest.raises(PolicyError, match=problem):
            registry.register(policy)  # type: ignore[type-var]


SOURCE = '''
from dataclasses import dataclass
from typing import ClassVar

from policies.greedy import evict_lowest
from policies.plan import Plan
from policies.registry import register


@register
@dataclass(frozen=True)
class Largest:
    """Evicts the largest slots first."""

    name: ClassVar[str] = "largest"
    needs: ClassVar[frozenset] = frozenset()

    def plan(self, window, target, context):
        return Plan(self.name, evict_lowest(window, target, lambda slot: -slot.tokens, "largest first"))
'''

UNREGISTERED = SOURCE.replace("from policies.registry import register\n", "").replace("@register\n", "")


@pytest.fixture
def reload(known: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Loads everything again, and once more with what was there before after the test."""
    registry._load.cache_clear()
    yield
    registry._load.cache_clear()
    for name in [name for name in sys.modules if name.partition(".")[2] in ("largest", "damaged")]:
        del sys.modules[name]


@pytest.mark.usefixtures("reload")
def test_a_file_put_into_the_package_is_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "largest.py").write_text(SOURCE)
    monkeypatch.setattr(policies, "__path__", [*policies.__path__, str(tmp_path)])
    assert "largest" in registry.names()
    plan = conforms(registry.create("largest"), talk("S U A U A U*"), 30, Context())
    assert len(plan.actions) == 3


@pytest.mark.usefixtures("reload")
def test_a_file_that_fails_is_named_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "damaged.py").write_text("import a_module_that_nobody_has")
    monkeypatch.setattr(policies, "__path__", [*policies.__path__, str(tmp_path)])
    assert registry.create("fifo") == Fifo()
    assert registry.broken() == {"damaged": "ModuleNotFoundError: No module named 'a_module_that_nobody_has'"}
    with pytest.raises(PolicyError, match='policy: policy "damaged" could not be loaded: ModuleNotFoundError'):
        registry.create("damaged")


@pytest.mark.usefixtures("reload")
def test_other_packages_offer_policies_through_entry_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With real package metadata on the path: one that works, one that is missing, one whose name is taken."""
    (tmp_path / "others_policies.py").write_text(UNREGISTERED)
    info = tmp_path / "others-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[trimtab.policies]\n"
        "largest = others_policies:Largest\n"
        "missing = others_policies:Smallest\n"
        "mine = tests.policies.test_registry:Impostor\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "largest" in registry.names()
    conforms(registry.create("largest"), talk("S U A U A U*", alternate=True), 30, Context())
    assert registry.broken().keys() == {"missing", "mine"}
    assert "'fifo' is already the name of Fifo" in registry.broken()["mine"]
    sys.modules.pop("others_policies")


@pytest.mark.usefixtures("reload")
def test_an_entry_point_may_be_a_module_that_registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "registering.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    point = EntryPoint("largest", "registering", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group == "trimtab.policies" else [])
    assert "largest" in registry.names()
    sys.modules.pop("registering")


@dataclass(frozen=True)
class Impostor(Fifo):
    """Calls itself like another."""
