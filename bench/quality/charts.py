"""Pictures of what was measured, as PNG: `python -m bench.quality.charts FOLDER [--into docs/images]`.

FOLDER has the figures as the benches write them with `--json`, under the names that `python -m bench.suite` gives them:

budget.png    evidence kept against the budget, by policy: `evidence-NAME.json`
cache.png     evidence kept against the share that the provider's cache holds, by policy: `replayed-NAME.json` and
              `cache.json`, whose rows are named `policy: NAME`
latency.png   median milliseconds of a warm decision against the length of the history, by policy: `decide.json`

A picture whose figures are not there is left out, and said so. Needs `trimtab[bench]`.
"""

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any

import typer

Figures = Mapping[str, Any]

DATA = "locomo"  # what evidence is shown of; the first there is, where it is missing
SHARE = "0.25"  # the window that quality and cache are compared at
TITLES = {
    "budget": "Evidence kept against the budget, by policy",
    "cache": "Evidence kept against the share that the provider's cache holds, by policy",
    "latency": "Milliseconds of a decision against the length of the history, by policy",
}
BOUNDS = {"identity": "-.", "tail": "--", "newest": "--", "oracle": ":"}  # drawn in grey, in these lines
DPI, COLOURS = 80, 32

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    folder: Annotated[Path, typer.Argument(exists=True, file_okay=False)],
    into: Annotated[Path, typer.Option(help="The folder for the pictures.")] = Path("docs/images"),
) -> None:
    """Draw what was measured."""
    into.mkdir(parents=True, exist_ok=True)
    pictures: tuple[tuple[str, Callable[..., None], tuple[str, ...]], ...] = (
        ("budget", budget, ("evidence",)),
        ("cache", cache, ("replayed", "cache")),
        ("latency", latency, ("decide",)),
    )
    for name, draw, sources in pictures:
        found = [each for source in sources if (each := figures(folder, source)) is not None]
        if len(found) < len(sources):
            print(f"{name}.png is left out: no figures of {' and '.join(sources)} in {folder}")
            continue
        try:
            figure = import_module("matplotlib.figure").Figure(figsize=(8, 5), layout="constrained")
        except ImportError:
            raise SystemExit("matplotlib is not installed: pip install 'trimtab[bench]'") from None
        axes = figure.subplots()
        draw(axes, *found)
        axes.grid(alpha=0.3)
        _save(figure, into / f"{name}.png")
        print(into / f"{name}.png")


def figures(folder: Path, source: str) -> Figures | None:
    """The figures of a source: those of `DATA`, where it has some for each file, else of the first file."""
    named = [folder / f"{source}-{DATA}.json", *sorted(folder.glob(f"{source}-*.json")), folder / f"{source}.json"]
    path = next((path for path in named if path.exists()), None)
    if path is None:
        return None
    found: Any = json.loads(path.read_text(encoding="utf-8"))
    if isinstance(found, list):  # rows of bench.cache
        return {row["name"]: row for row in found}
    if source in ("evidence", "replayed"):
        return {"data": (data := DATA if DATA in found else next(iter(found))), "rows": found[data]}
    return dict(found)


def budget(axes: Any, evidence: Figures) -> None:
    """Evidence kept against the budget."""
    for name, by_share in evidence["rows"].items():
        points = {100 * float(share): cell["kept"] for share, cell in by_share.items() if cell["kept"] is not None}
        shares, kept = [*points], [*points.values()]
        grey = {"color": "0.5", "linestyle": BOUNDS[name]} if name in BOUNDS else {}
        axes.plot(shares, kept, marker="o", label=name, **grey)
    axes.set(xlabel="budget, % of the conversation", ylabel="evidence kept, %", title=evidence["data"])
    axes.set_ylim(0, 102)
    axes.legend(fontsize=8)


def cache(axes: Any, replayed: Figures, cached: Figures) -> None:
    """Evidence kept against the cached share, one point a policy that both have."""
    for name, by_share in replayed["rows"].items():
        row = cached.get(f"policy: {name}")
        if row is None or SHARE not in by_share or by_share[SHARE]["kept"] is None:
            continue
        point = (100 * row["hit"], by_share[SHARE]["kept"])
        axes.plot(*point, "o")
        axes.annotate(name, point, xytext=(5, 4), textcoords="offset points", fontsize=8)
    axes.set(
        xlabel="sent tokens that the cache holds, %",
        ylabel=f"evidence kept in a window of {float(SHARE):.0%}, %",
        title=f"{replayed['data']}, replayed turn by turn",
    )


def latency(axes: Any, times: Figures) -> None:
    """The median of a warm decision against the length of the history."""
    for name, by_size in times.items():
        warm = [(cells.get("clustered") or cells["warm"])["median"] for cells in by_size.values()]
        axes.plot([int(size) for size in by_size], warm, marker="o", label=name)
    sizes = [int(size) for size in next(iter(times.values()))]
    axes.set(xlabel="slots of the history", ylabel="ms for a decision, P50", xscale="log", yscale="log")
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.legend(fontsize=8, ncols=2)


def _save(figure: Any, path: Path) -> None:
    """Write a picture in few colours, which is a third of the bytes."""
    figure.savefig(whole := BytesIO(), dpi=DPI)
    import_module("PIL.Image").open(whole).convert("RGB").quantize(COLOURS).save(path, optimize=True)


if __name__ == "__main__":
    app()
