"""A headless Chromium on a pipe: just enough of its protocol to open a page, ask it things and listen."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-sync")
QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage")
PATIENCE = 180.0
"""Seconds that a busy machine has for one answer."""


def find_chromium() -> str | None:
    return os.environ.get("CHROMIUM") or next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """``with Browser(program) as browser: browser.open(path)``; every message that was not an answer is kept."""

    def __init__(self, program: str, width: int = 1280) -> None:
        self.width = width
        self.home = tempfile.mkdtemp(prefix="chromium-")
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()
        own = ("--remote-debugging-pipe", f"--user-data-dir={self.home}", "about:blank")
        words = [program, *FLAGS, *QUIET, *own]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        # Chromium reads commands on 3 and writes on 4; first out of the way, so that neither lies on the other's place.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_browser, from_browser)]
        place = lambda: [os.dup2(end, 3 + i) for i, end in enumerate(ends)]  # noqa: E731
        self.process = subprocess.Popen(words, pass_fds=(3, 4), preexec_fn=place, **quiet)
        for end in ends:
            os.close(end)
        os.close(to_browser)
        os.close(from_browser)
        self.events: list[dict[str, Any]] = []
        self.rest, self.number, self.session = b"", 0, ""

    def __enter__(self) -> Browser:
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def _begin(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        # A window is never as narrow as a phone; what it shows can be.
        self.call("Emulation.setDeviceMetricsOverride", width=self.width, height=900, deviceScaleFactor=1, mobile=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        shutil.rmtree(self.home, ignore_errors=True)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self.number:
                assert "error" not in found, found
                return dict(found["result"])
            self.events.append(found)

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.into], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser does not answer"
            self.rest += os.read(self.into, 1 << 16)
        message, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(message))

    def open(self, path: Path) -> None:
        self.call("Page.navigate", url=path.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def ask(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def said(self, *methods: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.events if event.get("method") in methods]
