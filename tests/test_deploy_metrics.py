"""The Grafana dashboard and the alerts ask for what `/metrics` has, in PromQL that is valid."""

import json
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client import CollectorRegistry

from proxy import config as configs
from proxy import metrics as metrics_module
from proxy.app import create_app

DEPLOY = Path(__file__).parents[1] / "deploy"
DASHBOARD = json.loads((DEPLOY / "grafana" / "trimtab.json").read_text())
RULES = [rule for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"] for rule in group["rules"]]

# From Prometheus itself; those of a process are the client library's.
ADDED = {"job", "instance", "le", "pid"}
ELSEWHERE = {"up": set[str](), "process_resident_memory_bytes": set[str]()}


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str]]:
    """Every query by where it stands, Grafana's variables filled in."""
    for panel in panels():
        for number, target in enumerate(panel["targets"]):
            yield f"{panel['title']}-{number}", target["expr"]
    for annotation in DASHBOARD["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]
    for rule in RULES:
        yield rule["alert"], rule["expr"]


QUERIES = {where: re.sub(r"\$__(rate_interval|range)", "5m", query) for where, query in queries()}


def walked(query: str) -> list[promql.Expr]:
    found: list[promql.Expr] = []
    promql.walk(promql.parse(query), found.append)
    return found


def selectors(query: str) -> list[promql.VectorSelector]:
    return [each for each in walked(query) if isinstance(each, promql.VectorSelector)]


@pytest.fixture
async def there(serve: Callable[..., Awaitable[str]], monkeypatch: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """Every series of a proxy that runs, with its labels."""
    made: list[CollectorRegistry] = []

    class Watched(metrics_module.Metrics):
        def __init__(self, **names: Any) -> None:
            super().__init__(**names)
            made.append(self.registry)

    monkeypatch.setattr("proxy.app.Metrics", Watched)
    await serve(create_app(configs.loads("audit: {path: /dev/null}"), {}))
    (registry,) = made
    found: dict[str, set[str]] = dict(ELSEWHERE)
    for collector, names in registry._collector_to_names.items():  # nothing else tells the labels of what has no value
        found |= {name: set(getattr(collector, "_labelnames", ())) for name in names}
    return found


async def test_every_metric_and_label_that_is_asked_for_is_there(there: dict[str, set[str]]) -> None:
    missing = []
    for where, query in QUERIES.items():
        for selector in selectors(query):
            if selector.name not in there:
                missing.append(f"{where}: no metric {selector.name}")
                continue
            labels = {matcher.name for matcher in selector.matchers.matchers}
            missing += [f"{where}: no {each} on {selector.name}" for each in labels - there[selector.name] - ADDED]
        asked = {selector.name for selector in selectors(query) if selector.name in there}
        known = set.union(ADDED, *(there[name] for name in asked)) if asked else ADDED
        for aggregate in walked(query):
            if isinstance(aggregate, promql.AggregateExpr) and aggregate.modifier is not None:
                missing += [f"{where}: no {each} to sum by" for each in set(aggregate.modifier.labels) - known]
    assert missing == []


async def test_what_is_counted_is_shown_or_alerted_on(there: dict[str, set[str]]) -> None:
    asked = {selector.name for query in QUERIES.values() for selector in selectors(query)}
    counted = {
        name for name in there if name.startswith(("trimtab_", "context_")) and name.endswith(("_total", "_bucket"))
    }
    left_out = {
        *("trimtab_model_requests_total", "trimtab_passed_through_total"),  # of no meaning for health
        *(f"trimtab_store_{name}_total" for name in ("timeouts", "outages", "written_back", "superseded", "dropped")),
    }

    assert counted - asked == left_out


@pytest.mark.parametrize("query", [pytest.param(query, id=where) for where, query in QUERIES.items()])
def test_counters_are_looked_at_through_their_rate(query: str) -> None:
    """What only ever grows says nothing as it is."""
    within = [
        each.args[-1].vector_selector.name
        for each in walked(query)
        if isinstance(each, promql.Call) and each.func.name in ("rate", "increase")
    ]
    counters = [each.name for each in selectors(query) if str(each.name).endswith(("_total", "_bucket"))]

    assert sorted(counters) == sorted(within)


@pytest.mark.parametrize("broken", ["rate(trimtab_requests_total)", "sum by (a (b)", "histogram_quantile(x[5m])"])
def test_what_is_no_promql_is_noticed(broken: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        promql.parse(broken)


def test_panels_lie_side_by_side() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not own & cells, panel["title"]
        cells |= own
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert [panel["title"] for panel in panels() if not panel["description"]] == []


def test_alerts_say_what_is_wrong_and_what_to_do() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    for rule in RULES:
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        assert len(rule["annotations"]["summary"]) > 20
        assert len(rule["annotations"]["description"]) > 20
        assert promql.parse_duration(rule.get("for", "1m")).total_seconds() > 0
        labels = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        grouped = {
            label
            for each in walked(rule["expr"])
            if isinstance(each, promql.AggregateExpr) and each.modifier is not None
            for label in each.modifier.labels
        }
        assert labels <= grouped | {"instance"}, rule["alert"]


def test_compose_gives_prometheus_the_alerts() -> None:
    (files,) = (yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["rule_files"],)
    mounts = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["prometheus"]["volumes"]
    mounted = {mount.split(":")[1]: mount.split(":")[0] for mount in mounts}

    assert [(DEPLOY / mounted[f"/etc/prometheus/{file}"]).is_file() for file in files] == [True]
