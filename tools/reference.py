"""The pages of the documentation that are made from the code: `python -m tools.reference` writes them.

Settings come from the configuration's models and config.example.yaml's comments, policies and their options from the
registry, metrics from the application's own registry.
"""

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest.mock import patch

from policies import registry
from proxy import config as configs
from proxy import metrics as metrics_module
from proxy.app import create_app
from tools import commands
from tools.commented import comments
from tools.settings import Setting, settings

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOTE = "<!-- Made by `make docs` from {}: change it there. -->\n"

_SECTIONS = {
    "server": "Where the proxy listens, and how much it takes.",
    "state": "What is remembered of conversations, and for how long. See [operating](operating.md#state).",
    "audit": "What is written down of each request. See [the audit record](audit.md).",
    "telemetry": "See [traces](tracing.md).",
    "log": "The server's own words on stderr.",
    "embeddings": "Vectors, which tell what is relevant to a prompt beyond its words.",
    "upstreams": "The providers and model servers, each a mapping under a name of your choice: "
    "`upstreams: {openai: {base_url: https://api.openai.com/v1}}`.",
    "defaults": "What every route inherits. A route may have each of them itself: its own mapping is laid over the "
    "one here key by key, and its policy replaces the one here with all options.",
    "routes": "A list. Which request goes where, under which rules: all of a route's conditions have to hold, and the "
    "first route that matches takes a request.",
    "keys": "A list of the proxy's own keys. Without any, it answers everybody who reaches it.",
}


def pages() -> dict[str, str]:
    """The pages by file name."""
    return {
        "configuration.md": "".join(_configuration()),
        "policy-options.md": "".join(_policies()),
        "command-line.md": "".join(_command_line()),
        "metrics.md": "".join(_metrics()),
    }


def _configuration() -> Iterator[str]:
    said = comments((ROOT / "config.example.yaml").read_text())
    yield NOTE.format("the configuration's models and config.example.yaml")
    yield (
        "# Configuration\n\nA YAML file, named with `--config`. It needs only what differs from the defaults here; "
        'unknown keys are refused, and nothing is converted (`port: "8080"` is a text, and no port). '
        "`trimtab check FILE` says everything that is wrong with a file, or prints it with every default filled in. "
        "Settings of a section are named below it: `port` under `server` is `server: {port: 8080}`, and "
        "`thresholds.warn` under `defaults` is `defaults: {thresholds: {warn: 0.75}}`.\n"
    )
    groups: dict[str, list[Setting]] = {}
    for setting in settings():
        top = setting.path.partition(".")[0].removesuffix("[]")
        groups.setdefault("state" if top.startswith("state") else top, []).append(setting)
    for group in _SECTIONS:  # whatever is new must be put somewhere
        yield f"\n## {group}\n\n{_SECTIONS[group]}\n\n| setting | is | default | |\n| --- | --- | --- | --- |\n"
        for setting in groups.pop(group):
            about = said.get(setting.path.replace(".NAME.", ".openai."), "")
            default = "required" if setting.default is None else f"`{setting.default}`"
            if setting.path == "routes[].upstream":
                default = "the only one"
            below = setting.path.removeprefix(f"{group}.NAME.").removeprefix(f"{group}[].").removeprefix(f"{group}.")
            yield _row(f"`{below}`", setting.type, default, _escaped(about))
    if groups:
        raise ValueError(f"_SECTIONS: has no section for {', '.join(groups)}")


def _policies() -> Iterator[str]:
    yield NOTE.format("the policies' classes")
    yield (
        "# Policies and their options\n\nA policy is named in a route or in `defaults`, as `policy: rwr`, or with "
        "options as `policy: {name: rwr, alpha: 0.7}`. [Choosing a policy](policies.md) compares them.\n"
    )
    for name in registry.names():
        described = registry.describe(name)
        yield f"\n## {name}\n\n{_escaped(described.doc)}\n"
        if described.needs:
            yield f"\nNeeds, where it can have them: {', '.join(sorted(need.value for need in described.needs))}.\n"
        if described.options:
            yield "\n| option | is | default | |\n| --- | --- | --- | --- |\n"
            for each in described.options:
                default = "required" if each.required else f"`{each.default}`"
                yield _row(f"`{each.name}`", _escaped(each.type), default, _escaped(each.doc))


def _command_line() -> Iterator[str]:
    yield NOTE.format("the program's own help")
    yield (
        "# Command line\n\n`trimtab`, or `python -m proxy`. `--help` says the same of each command. Commands other "
        "than `serve` use no network, unless `state` names a Redis server.\n\nExit codes: 0; 2 for what was asked "
        "wrongly, a configuration that cannot be used, or input that is no chat request; 3 from `trim` where it does "
        "not fit and the route says reject; 4 where a store cannot be reached or read.\n"
    )
    yield commands.page()


def _metrics() -> Iterator[str]:
    yield NOTE.format("the application's metrics")
    yield (
        "# Metrics\n\n`/metrics` speaks Prometheus' text format, and OpenMetrics where asked. Several workers of a "
        "server are shown as one. Labels come from closed sets; a model, of which there may be any number, is told "
        "apart up to fifty, then `other`. Besides these there are the process's own (`process_…`). "
        "`deploy/` in the repository "
        "has a Grafana dashboard (`grafana/trimtab.json`) and alert rules (`alerts.yml`).\n\n"
        "| metric | kind | labels | |\n| --- | --- | --- | --- |\n"
    )
    for name, kind, labels, about in sorted(asyncio.run(series())):
        yield _row(f"`{name}`", kind, ", ".join(f"`{label}`" for label in labels), _escaped(about))


async def series() -> list[tuple[str, str, tuple[str, ...], str]]:
    """Name, kind, labels and words of every metric of a proxy that runs."""
    made: list[metrics_module.Metrics] = []

    class Watched(metrics_module.Metrics):
        def __init__(self, **names: Iterable[str]) -> None:
            super().__init__(**names)  # type: ignore[arg-type]
            made.append(self)

    with patch("proxy.app.Metrics", Watched):
        app = create_app(configs.loads("audit: {path: /dev/null}"), {})
    async with app.router.lifespan_context(app):
        found = []
        for collector in made[0].registry._collector_to_names:  # nothing else tells labels without values
            for metric in collector.collect():
                suffix = "_total" if metric.type == "counter" else ""
                labels = tuple(getattr(collector, "_labelnames", ()))
                if metric.name.startswith(("trimtab_", "context_")):
                    found.append((f"{metric.name}{suffix}", metric.type, labels, metric.documentation))
    return found


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("[]", "`[]`")


def main() -> None:
    """Write the pages."""
    for name, text in pages().items():
        (DOCS / name).write_text(text)


if __name__ == "__main__":
    main()
