"""The dashboard's files: whole in the package, open to nothing from elsewhere, and on no path of an upstream's."""

import re
from importlib.resources import files

import pytest

from proxy.dashboard.pages import File, load
from tests.fakes.upstream import FakeUpstream
from tests.proxy.proxied import Start

FILES = load()
OWN = {path: file for path, file in FILES.items() if not path.startswith("vendor/")}


def test_the_page_and_what_it_names_are_there() -> None:
    page = FILES[""].content.decode()
    named = set(re.findall(r'(?:href|src)="([^"#]+)"', page))

    assert named
    assert named <= set(FILES)
    scripts = {path: file.content.decode() for path, file in OWN.items() if path.endswith(".js")}
    imported = {name for text in scripts.values() for name in re.findall(r'from "\./([^"]+)"', text)}
    assert imported | {"main.js"} == set(scripts)


@pytest.mark.parametrize("path", OWN)
def test_a_file_needs_nothing_from_elsewhere_and_no_build(path: str) -> None:
    text = OWN[path].content.decode()

    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert not re.search(r"\bon[a-z]+=|style=|<style|javascript:|innerHTML|insertAdjacentHTML|\beval\b", text)
    assert len(text.splitlines()) <= 150


def test_the_plotting_library_comes_with_its_licence() -> None:
    assert b"MIT" in FILES["vendor/uPlot.LICENSE"].content
    assert re.search(rb"uPlot \(v\d+\.\d+\.\d+\)", FILES["vendor/uPlot.iife.min.js"].content)


def test_every_file_of_the_folder_is_served() -> None:
    static = files("proxy.dashboard").joinpath("static")
    names = {entry.name for entry in static.iterdir() if entry.is_file()} - {"index.html"}

    assert names == {path for path in FILES if path and "/" not in path}


async def test_the_page_is_served_under_a_policy_and_asked_for_once(start: Start) -> None:
    client = await start()

    page = await client.get("/trimtab/")
    again = await client.get("/trimtab/", headers={"if-none-match": page.headers["etag"]})

    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert (page.headers["x-content-type-options"], page.headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/trimtab", 308),
        ("GET", "/trimtab/nothing", 404),
        ("GET", "/trimtab/../../etc/passwd", 404),
        ("GET", "/trimtab/%2e%2e/app.py", 404),
        ("GET", "/trimtab/api/nothing", 404),
        ("GET", "/trimtab/index.html", 404),
        ("POST", "/trimtab/", 405),
        ("DELETE", "/trimtab/api/decisions", 405),
    ],
)
async def test_what_is_below_trimtab_goes_to_no_upstream(
    start: Start, upstream: FakeUpstream, method: str, path: str, status: int
) -> None:
    client = await start()

    if ".." in path:  # the client would shorten it
        assert FILES.get(path.removeprefix("/trimtab/")) is None
        return
    answer = await client.request(method, path)

    assert answer.status_code == status
    assert upstream.exchanges == []


def test_files_that_differ_have_other_tags() -> None:
    assert len({file.etag for file in FILES.values()}) == len(FILES)
    assert all(isinstance(file, File) and file.content for file in FILES.values())
