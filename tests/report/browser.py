"""A headless Chromium controlled through a pipe: opens pages, evaluates expressions and records events."""

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
BASE_FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-extensions", "--disable-sync")
QUIET_FLAGS = ("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage")
REPLY_TIMEOUT = 180.0
"""Seconds to wait for a reply, long enough for a busy machine."""


def find_chromium() -> str | None:
    return os.environ.get("CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """``with Browser(program) as browser: browser.open(path)``; ``events`` has all messages but replies."""

    def __init__(self, program: str, width: int = 1280) -> None:
        self.width = width
        self.home = tempfile.mkdtemp(prefix="chromium-")
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()
        session_flags = ("--remote-debugging-pipe", f"--user-data-dir={self.home}", "about:blank")
        command = [program, *BASE_FLAGS, *QUIET_FLAGS, *session_flags]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        # Chromium reads descriptor 3 and writes 4. Both are duplicated first, so that neither overwrites the other.
        descriptors = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (to_browser, from_browser)]
        set_descriptors = lambda: [os.dup2(descriptor, 3 + i) for i, descriptor in enumerate(descriptors)]  # noqa: E731
        self.process = subprocess.Popen(command, pass_fds=(3, 4), preexec_fn=set_descriptors, **quiet)
        for descriptor in descriptors:
            os.close(descriptor)
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
        # A window cannot be as narrow as a phone, but the emulated screen can.
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
        """Send a command and wait for its reply."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._next()
            if reply.get("id") == self.number:
                assert "error" not in reply, reply
                return dict(reply["result"])
            self.events.append(reply)

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + REPLY_TIMEOUT
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.into], [], [], max(0.0, deadline - time.monotonic()))
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
        reply = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in reply, reply
        return reply["result"].get("value")

    def event_params(self, *methods: str) -> list[dict[str, Any]]:
        return [event["params"] for event in self.events if event.get("method") in methods]
