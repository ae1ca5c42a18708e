"""Chromium without a window, told what to do over a pipe (DevTools protocol): `Chromium`, `Page`.

Messages end with a NUL byte (--remote-debugging-pipe); the browser reads descriptor 3 and writes 4.
"""

import base64
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

PROGRAM = "/usr/bin/chromium"
_OPTIONS = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--force-color-profile=srgb",
)


class Chromium:
    """A browser with a profile of its own; a context."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cdigen-chromium-", ignore_cleanup_errors=True)
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        # The browser has the ends as 3 and 4: the shell puts them there, whatever their numbers are here.
        self._process = subprocess.Popen(
            [
                "/bin/bash",
                "-c",
                f'exec 3<&{to_read} 4>&{to_write}; exec "$@"',
                "chromium",
                PROGRAM,
                *_OPTIONS,
                f"--user-data-dir={self._folder.name}",
                "about:blank",
            ],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._number = 0
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._to)
        os.close(self._from)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def ask(self, method: str, *, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; events that come before it are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            found = self._receive()
            if found.get("id") == self._number:
                assert "error" not in found, (method, found)
                result: dict[str, Any] = found["result"]
                return result
            self.events.append(found)

    def wait_for(self, method: str, session: str) -> dict[str, Any]:
        """Return the next event of METHOD of SESSION."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            for place, event in enumerate(self.events):
                if event.get("method") == method and event.get("sessionId") == session:
                    return self.events.pop(place)
            self.events.append(self._receive())
        raise AssertionError(f"no {method}")

    @contextmanager
    def page(self) -> Iterator["Page"]:
        """Give a new page, closed in the end."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable", session=session)
        yield Page(self, session)
        self.ask("Target.closeTarget", targetId=target)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = os.read(self._from, 1 << 20)
            assert chunk, "the browser has ended"
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found


class Page:
    """A page of the browser."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command to the page."""
        return self._browser.ask(method, session=self._session, **parameters)

    def show(self, url: str, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Load URL into a window of WIDTH and HEIGHT."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = "dark" if dark else "light"
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.ask("Page.navigate", url=url)
        self._browser.wait_for("Page.loadEventFired", self._session)

    def wait_for_load(self) -> None:
        """Wait until the page has loaded once more since the last wait."""
        self._browser.wait_for("Page.loadEventFired", self._session)

    def forget_loads(self) -> None:
        """Let ``wait_for_load`` wait for a load that comes after this call."""
        self.run("0")  # all events before its result are read
        loaded = ("Page.loadEventFired", self._session)
        events = self._browser.events
        events[:] = [each for each in events if (each.get("method"), each.get("sessionId")) != loaded]

    def run(self, script: str) -> Any:
        """Return what the expression SCRIPT gives in the page."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def picture(self) -> bytes:
        """Return the whole page as a PNG."""
        found = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def window(self) -> bytes:
        """Return what is in the window as a PNG."""
        found = self.ask("Page.captureScreenshot", format="png")
        return base64.b64decode(found["data"])

    def complaints(self) -> list[str]:
        """Return what the browser has said is wrong: of the policy, of scripts, of what it could not load."""
        events = [each for each in self._browser.events if each.get("sessionId") == self._session]
        return [each["params"]["entry"]["text"] for each in events if each["method"] == "Log.entryAdded"]
