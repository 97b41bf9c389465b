from pathlib import Path

from typer.testing import CliRunner

from bench.publish import app

TEXT = """Before.

<!-- bench intent -->
| old |
<!-- /bench -->

Between.

<!-- bench hot -->
<!-- /bench -->

<!-- bench gone -->
| kept |
<!-- /bench -->
"""


def test_tables_stand_where_they_belong_with_their_commands(tmp_path: Path) -> None:
    (file := tmp_path / "page.md").write_text(TEXT)
    for name, suffix, content in (
        ("intent", "md", "**Intent**\n\n| new |\n\n"),
        ("intent", "txt", "a table for a terminal"),
        ("hot", "txt", "1 2 3\n"),
        ("gone", "txt", "half a table"),
    ):
        (tmp_path / f"{name}.{suffix}").write_text(content)
    for name in ("intent", "hot"):
        (tmp_path / f"{name}.command").write_text(f"python -m bench.{name}\n")
        (tmp_path / f"{name}.done").touch()
    (tmp_path / "gone.command").write_text("python -m bench.gone\n")

    result = CliRunner().invoke(app, [str(tmp_path), str(file)])

    assert result.exit_code == 0, result.output
    assert "2 places filled; left as it was: gone" in result.output
    assert (
        file.read_text()
        == """Before.

<!-- bench intent -->

**Intent**

| new |

`python -m bench.intent`

<!-- /bench -->

Between.

<!-- bench hot -->

`python -m bench.hot`

```text
1 2 3
```

<!-- /bench -->

<!-- bench gone -->
| kept |
<!-- /bench -->
"""
    )


def test_a_second_time_changes_nothing(tmp_path: Path) -> None:
    (file := tmp_path / "page.md").write_text("<!-- bench hot -->\n<!-- /bench -->\n")
    (tmp_path / "hot.txt").write_text("1\n")
    (tmp_path / "hot.command").write_text("python -m bench.hot\n")
    (tmp_path / "hot.done").touch()

    CliRunner().invoke(app, [str(tmp_path), str(file)])
    once = file.read_text()
    CliRunner().invoke(app, [str(tmp_path), str(file)])

    assert "python -m bench.hot" in once
    assert file.read_text() == once


def test_a_chart_is_copied_to_where_the_page_shows_it(tmp_path: Path) -> None:
    (docs := tmp_path / "docs").mkdir()
    (file := docs / "page.md").write_text("<!-- bench budget.png -->\n<!-- /bench -->\n")
    (out := tmp_path / "out").mkdir()
    (out / "budget.png").write_bytes(b"a picture")

    CliRunner().invoke(app, [str(out), str(file), "--images", str(docs / "images")])

    assert "![Evidence kept against the budget, by policy](images/budget.png)" in file.read_text()
    assert (docs / "images" / "budget.png").read_bytes() == b"a picture"
