"""A headless Chromium, spoken to by its own DevTools protocol; nothing of it but the browser has to be installed."""

import asyncio
import base64
import itertools
import json
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp

BINARY = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
START_S, PATIENCE_S = 60, 15
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--no-proxy-server", "--disable-extensions"),
)


class Page:
    """A tab. `problems` are what its console and its network complained of."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.problems: list[str] = []
        self.requested: list[str] = []

    async def listen(self) -> None:
        """Take what the browser says, until it has gone."""
        async for message in self._socket:
            said = json.loads(message.data)
            if (waiting := self._answers.pop(said.get("id", 0), None)) is not None:
                waiting.set_result(said)
            else:
                self._note(said.get("method", ""), said.get("params", {}))

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Have the browser do something."""
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(PATIENCE_S):
            said = await self._answers[number]
        assert "error" not in said, said
        result: dict[str, Any] = said["result"]
        return result

    async def evaluate(self, expression: str) -> Any:
        """The value of some JavaScript, awaited."""
        said = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    async def until(self, expression: str) -> Any:
        """The value of some JavaScript, as soon as it is true."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await self.evaluate(expression)):  # noqa: ASYNC110 - the page says nothing by itself
                await asyncio.sleep(0.03)
        return found

    async def open(self, url: str) -> None:
        """Go to a page, and wait until it shows something."""
        await self.call("Page.navigate", url=url)
        await self.until("document.querySelector('main')?.getAttribute('aria-busy') === 'false'")

    async def go(self, fragment: str) -> None:
        """Go to another part of the page, and wait until it is there."""
        await self.evaluate(
            "document.querySelector('main').setAttribute('aria-busy', 'true'); location.hash = " + json.dumps(fragment)
        )
        await self.until("document.querySelector('main').getAttribute('aria-busy') === 'false'")

    async def text(self, selector: str = "main") -> str:
        """What a part of the page says."""
        return str(await self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    async def press(self, key: str) -> None:
        """Press a key, as somebody would."""
        text = {"Enter": "\r"}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            await self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                text=text if kind == "keyDown" else "",
                windowsVirtualKeyCode={"Tab": 9, "Enter": 13, "ArrowRight": 39, "ArrowLeft": 37, "End": 35}[key],
            )

    async def look(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Have the page on a screen of this size, light or dark."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def picture(self) -> bytes:
        """A screenshot of the whole page, as PNG."""
        said = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        return base64.b64decode(said["data"])

    async def accessibility(self) -> list[dict[str, Any]]:
        """What a screen reader is given: roles and names."""
        nodes = (await self.call("Accessibility.getFullAXTree"))["nodes"]
        return [
            {"role": node.get("role", {}).get("value"), "name": node.get("name", {}).get("value", "")}
            for node in nodes
            if not node.get("ignored")
        ]

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Log.entryAdded":
            self.problems.append(params["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.problems.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.problems.append(str(params["args"]))
        elif method == "Network.requestWillBeSent":
            self.requested.append(params["request"]["url"])


@asynccontextmanager
async def browsing() -> AsyncIterator[Page]:
    """A fresh browser with an empty tab."""
    assert BINARY is not None
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            *(BINARY, *_FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0", "about:blank"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            port = await _port(process)
            drain = asyncio.create_task(_drain(process))
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    targets = await answer.json(content_type=None)
                address = next(each["webSocketDebuggerUrl"] for each in targets if each["type"] == "page")
                async with session.ws_connect(address, max_msg_size=0) as socket:
                    page = Page(socket)
                    listening = asyncio.create_task(page.listen())
                    for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
                        await page.call(f"{domain}.enable")
                    await page.call("Emulation.setFocusEmulationEnabled", enabled=True)
                    yield page
                    listening.cancel()
            drain.cancel()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _port(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    async with asyncio.timeout(START_S):
        while line := await process.stderr.readline():
            if found := re.search(rb"ws://127\.0\.0\.1:(\d+)/", line):
                return found[1].decode()
    raise RuntimeError("the browser ended before it listened")


async def _drain(process: asyncio.subprocess.Process) -> None:
    assert process.stderr is not None
    while await process.stderr.read(65536):
        pass
