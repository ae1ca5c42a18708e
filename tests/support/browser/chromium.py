"""Headless Chromium, controlled over a pipe (DevTools protocol): `Chromium`, `Page`.

Each message ends with a NUL byte (--remote-debugging-pipe). The browser reads messages from descriptor 3 and
writes messages to descriptor 4.
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
    """A browser with its own profile; a context manager."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="cdigen-chromium-", ignore_cleanup_errors=True)
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        # The browser uses the descriptors 3 and 4. The shell duplicates the pipes' descriptors to them.
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

    def send(self, method: str, *, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; `events` keeps the events that arrive before the result."""
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
        """Return the next event with the name METHOD in SESSION, and remove it from `events`."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            for place, event in enumerate(self.events):
                if event.get("method") == method and event.get("sessionId") == session:
                    return self.events.pop(place)
            self.events.append(self._receive())
        raise AssertionError(f"no {method}")

    @contextmanager
    def page(self) -> Iterator["Page"]:
        """Yield a new page, and close the page after the body."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable", session=session)
        yield Page(self, session)
        self.send("Target.closeTarget", targetId=target)

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

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command to the page."""
        return self._browser.send(method, session=self._session, **parameters)

    def show(self, url: str, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Load URL into a window of WIDTH and HEIGHT."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 500,
        )
        scheme = "dark" if dark else "light"
        self.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.send("Page.navigate", url=url)
        self._browser.wait_for("Page.loadEventFired", self._session)

    def wait_for_load(self) -> None:
        """Wait until the page has loaded; each load ends only one wait."""
        self._browser.wait_for("Page.loadEventFired", self._session)

    def forget_loads(self) -> None:
        """Discard the loads until now, so that ``wait_for_load`` waits for a load after this call."""
        self.run("0")  # reads all events that arrive before the result
        loaded = ("Page.loadEventFired", self._session)
        events = self._browser.events
        events[:] = [each for each in events if (each.get("method"), each.get("sessionId")) != loaded]

    def run(self, script: str) -> Any:
        """Return the value of the expression SCRIPT in the page."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def picture(self) -> bytes:
        """Return the whole page as a PNG."""
        found = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def window(self) -> bytes:
        """Return the visible part of the page as a PNG."""
        found = self.send("Page.captureScreenshot", format="png")
        return base64.b64decode(found["data"])

    def complaints(self) -> list[str]:
        """Return the errors in the browser's log: policy violations, script errors, failed loads."""
        events = [each for each in self._browser.events if each.get("sessionId") == self._session]
        return [each["params"]["entry"]["text"] for each in events if each["method"] == "Log.entryAdded"]
