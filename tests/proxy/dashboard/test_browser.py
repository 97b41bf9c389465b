"""The dashboard in a real browser: what it says, with mouse, keyboard and screen reader, in both themes and small."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

import httpx2
import pytest
import pytest_asyncio
from starlette.types import ASGIApp

from tests.fakes.browser import BINARY, Page, browsing
from tests.fakes.server import serving
from tests.fakes.upstream import FakeUpstream, running
from tests.proxy.dialogues import user, words
from tests.proxy.proxied import Records, started
from tests.proxy.talks import MODEL, Talk, answering

pytestmark = [
    pytest.mark.skipif(BINARY is None, reason="no Chromium is installed: apt-get install chromium"),
    pytest.mark.asyncio(loop_scope="module"),
]

SETTINGS = "defaults: {window: 2000, reserve_output: 500, recall: {budget: 0}, policy: fifo}"
SECRET = "zebra-quartz-7781"


@dataclass
class Shown:
    """A browser in front of a proxy that has had traffic."""

    page: Page
    client: httpx2.AsyncClient
    upstream: FakeUpstream
    url: str
    cut: str  # the audit id of a decision
    conversation: str


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def at(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shown]:
    """One proxy and one browser for all tests here."""
    records = Records(tmp_path_factory.mktemp("dashboard") / "audit.jsonl")
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(running())
        answering(upstream)

        async def serve(app: ASGIApp, **options: str) -> str:
            return await stack.enter_async_context(serving(app, **options))

        client = await started(serve, upstream, records, SETTINGS)
        await stack.enter_async_context(client)
        talk = Talk(client, upstream, [user("Plan a garden.")])
        await talk.send()
        for turn in range(5):
            await talk.send(user(f"{SECRET} {words(350, turn)}"))
        cut = next(each for each in await records.get(6) if each["trigger"])
        await asyncio.sleep(0.1)  # the store is written after the line
        page = await stack.enter_async_context(browsing())
        yield Shown(page, client, upstream, f"{client.base_url}/trimtab/", cut["audit_id"], cut["conversation"])


@pytest.fixture(autouse=True)
def _without_complaints(at: Shown) -> Iterator[None]:
    """Nothing goes wrong in the page, its content security policy included, and nothing comes from elsewhere."""
    at.page.problems.clear()
    yield
    assert at.page.problems == []
    assert [url for url in at.page.requested if not url.startswith(str(at.client.base_url))] == []


async def test_the_first_page_answers_without_a_click(at: Shown) -> None:
    await at.page.open(at.url)
    tiles = await at.page.text(".tiles")
    await at.page.until("document.querySelectorAll('canvas').length === 4")
    everything = await at.page.text()

    for said in (
        "Health\nwell",
        "Requests\n6",
        "Windows filled",
        "Tokens saved",
        "Time added",
        "Cache lost",
        "user 89 %",
    ):
        assert said in tiles
    assert at.cut in everything
    assert SECRET not in everything


async def test_the_page_keeps_up_with_the_traffic(at: Shown) -> None:
    await at.page.open(at.url)
    await Talk(at.client, at.upstream, [user("Something else.")]).send()

    await at.page.until("document.querySelector('.tiles').innerText.includes('Requests\\n7')")


async def test_a_decision_is_a_picture_that_the_keyboard_reads(at: Shown) -> None:
    await at.page.open(at.url)
    await at.page.go(f"#/decision/{at.cut}")
    text = await at.page.text()
    widths = await at.page.evaluate(
        "[...document.querySelectorAll('.window')].map(each => [...each.querySelectorAll('.slot')]"
        ".reduce((sum, slot) => sum + slot.getBoundingClientRect().width, 0))"
    )
    await at.page.evaluate("document.querySelector('.slot[tabindex=\"0\"]').focus()")
    told = []
    for key in ("ArrowRight", "ArrowRight", "End", "ArrowLeft"):
        await at.page.press(key)
        told.append(await at.page.text(".about"))
    stops = await at.page.evaluate("document.querySelectorAll('.slot[tabindex=\"0\"]').length")

    assert "window 2,000 − reserve 500 → 1,500 tokens" in text
    assert "oldest first" in text
    assert "evicted" in text
    assert widths[1] < widths[0]
    assert len(set(told)) == 4
    assert all("tokens: " in each for each in told)
    assert stops == 2, "each bar is one stop for the tabulator"


async def test_a_screen_reader_is_given_names_for_everything(at: Shown) -> None:
    await at.page.open(at.url)
    overview = await at.page.accessibility()
    await at.page.go(f"#/decision/{at.cut}")
    decision = await at.page.accessibility()
    focused = await at.page.evaluate("document.activeElement.id")

    named = {"button", "link", "checkbox", "combobox", "textbox", "image", "img", "region"}
    assert [each for each in (*overview, *decision) if each["role"] in named and not each["name"].strip()] == []
    roles = {each["role"] for each in overview}
    assert {"banner", "navigation", "main", "heading", "table", "columnheader"} <= roles
    assert any(each["name"].startswith("How full the windows are: fullest as it came last") for each in overview)
    assert any(each["name"].startswith("As it came: ") for each in decision)
    assert focused == "content", "after a change of pages, the new one is read"


async def test_the_first_tabulator_skips_to_the_content(at: Shown) -> None:
    await at.page.open(at.url)
    await at.page.press("Tab")

    assert await at.page.evaluate("document.activeElement.textContent") == "Skip to the content"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
async def test_it_is_readable_in_both_themes_and_small(at: Shown, width: int, dark: bool) -> None:
    await at.page.look(width=width, dark=dark)
    await at.page.open(at.url)
    for fragment in ("#/", "#/decisions", f"#/decision/{at.cut}", f"#/conversation/{at.conversation}", "#/preview"):
        await at.page.go(fragment)
        assert await at.page.evaluate("document.documentElement.scrollWidth") <= width, fragment
    contrast = json.loads(await at.page.evaluate(CONTRAST))

    assert min(contrast.values()) >= 4.5, contrast


async def test_on_a_phone_each_slot_has_its_reason_in_sight(at: Shown) -> None:
    await at.page.look(width=390, height=844)
    await at.page.open(at.url)
    await at.page.go(f"#/decision/{at.cut}")

    wide = await at.page.evaluate("""[...document.querySelectorAll('.stack .why')].filter((cell) => cell.textContent)
        .map((cell) => cell.getBoundingClientRect()).map((at) => [at.left, at.right])""")
    roles = {node["role"] for node in await at.page.accessibility()}
    await at.page.look()

    assert len(wide) > 3
    assert all(left >= 0 and right <= 390 for left, right in wide)
    assert {"table", "row", "cell", "columnheader"} <= roles, "it is a table to a screen reader still"


async def test_a_decision_says_which_threshold_and_target_led_to_it(at: Shown) -> None:
    await at.page.open(at.url)
    await at.page.go(f"#/decision/{at.cut}")
    said = await at.page.text(".facts")

    assert "thresholds." in said
    assert "targets." in said
    assert "keep_prefix" in said
    assert "(keep_prefix: 30%" in await at.page.text() or "protect_last" in await at.page.text()


CONTRAST = """(() => {
    const rgb = (name, of) => getComputedStyle(of)[name].match(/[0-9.]+/g).slice(0, 3).map(Number);
    const light = (parts) => parts.map((v) => v / 255)
        .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const paper = light(rgb("backgroundColor", document.body));
    const found = {};
    for (const name of ["--ink", "--soft", "--accent", "--good", "--bad", "--warn"]) {
        const probe = document.body.appendChild(document.createElement("i"));
        probe.style.color = `var(${name})`;
        const ink = light(rgb("color", probe));
        found[name] = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
        probe.remove();
    }
    return JSON.stringify(found);
})()"""


async def test_a_request_is_tried_with_two_policies_side_by_side(at: Shown) -> None:
    turns = [user(f"Bed {number}: {words(200, number)}") for number in range(12)]
    body = json.dumps({"model": MODEL, "messages": turns})
    before = len(at.upstream.exchanges)
    await at.page.open(at.url)
    await at.page.go("#/preview")
    await at.page.evaluate(
        f"(() => {{ const body = document.getElementById('try-body'); body.value = {json.dumps(body)};"
        "body.dispatchEvent(new Event('input')); document.querySelector('[value=lru]').click();"
        "document.querySelector('form button').click(); })()"
    )
    await at.page.until("document.querySelectorAll('section').length === 2")
    headings = await at.page.evaluate("[...document.querySelectorAll('section > h3')].map((each) => each.textContent)")
    await at.page.evaluate("document.querySelector('section .slot.evict').focus()")
    quoted = await at.page.text("section blockquote")
    sent = len(at.upstream.exchanges) - before

    assert headings[0] == "fifo"
    assert "lru" in headings
    assert quoted.startswith("Bed ")
    assert sent == 0


async def test_what_is_wrong_is_said(at: Shown) -> None:
    await at.page.open(at.url)
    await at.page.go("#/decision/ffffffff")
    told = await at.page.text("[role=alert]")
    at.page.problems.clear()  # the browser's own note of the 404

    assert told == "No decision that is kept has this id alone"
