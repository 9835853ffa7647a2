"""A real headless Chromium as a child of the test, driven over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
STARTS_WITHIN_S = 60.0
ANSWERS_WITHIN_S = 60.0


class Browser:
    """One tab. `events` are what the page's console, log and network said since `open`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.events: list[dict[str, Any]] = []
        self._socket = socket
        self._number = 0

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The result of a command; AssertionError with the browser's own text."""
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        async with asyncio.timeout(ANSWERS_WITHIN_S):
            while True:
                said = await self._socket.receive_json()
                if said.get("id") == self._number:
                    assert "error" not in said, (method, said)
                    result: dict[str, Any] = said["result"]
                    return result
                self.events.append(said)

    async def open(self, url: str, *, width: int, height: int, scheme: str = "light") -> None:
        """Load a page at a size and in a colour scheme, until it is whole."""
        self.events.clear()
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.call("Emulation.setEmulatedMedia", features=features)
        loader = (await self.call("Page.navigate", url=url))["loaderId"]
        async with asyncio.timeout(ANSWERS_WITHIN_S):
            while ("load", loader) not in self._stages():
                self.events.append(await self._socket.receive_json())

    def _stages(self) -> list[tuple[str, str]]:
        """What has been reached, by which load of a page."""
        reached = self.named("Page.lifecycleEvent")
        return [(event["name"], event["loaderId"]) for event in reached]

    async def value(self, expression: str) -> Any:
        """What an expression is in the page, whatever its policy forbids to its own scripts."""
        found = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def picture(self) -> bytes:
        """The visible part as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot"))["data"])

    def named(self, method: str) -> list[dict[str, Any]]:
        """The parameters of the events of a kind."""
        return [event["params"] for event in self.events if event["method"] == method]


@asynccontextmanager
async def browser(directory: Path) -> AsyncIterator[Browser]:
    """A browser with an empty profile in `directory`."""
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no Chromium is installed; `tools/setup test` installs one")
    process = await asyncio.create_subprocess_exec(
        program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--hide-scrollbars", "--remote-debugging-port=0", f"--user-data-dir={directory}",
        "about:blank", stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        port = await _port(directory / "DevToolsActivePort")
        async with aiohttp.ClientSession() as session:
            async with session.put(f"http://127.0.0.1:{port}/json/new?about:blank") as answer:
                tab = await answer.json()
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                found = Browser(socket)
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await found.call(f"{domain}.enable")
                await found.call("Page.setLifecycleEventsEnabled", enabled=True)
                yield found
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # Debian's program is a script around it
        await process.wait()
        await _gone(directory)


async def _gone(directory: Path) -> None:
    """Until no process has the profile, of which there is one in each command line."""
    async with asyncio.timeout(ANSWERS_WITHIN_S):
        while any(str(directory).encode() in line for line in _command_lines()):
            await asyncio.sleep(0.05)


def _command_lines() -> Iterator[bytes]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield file.read_bytes()


async def _port(file: Path) -> int:
    async with asyncio.timeout(STARTS_WITHIN_S):
        while not (file.exists() and file.read_text().count("\n")):
            await asyncio.sleep(0.05)
    return int(file.read_text().split("\n")[0])
