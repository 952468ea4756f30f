"""A real browser, Chromium without a window, driven through its DevTools protocol over two pipes: JSON and a zero byte
each way. No driver has to be installed for it."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PATIENCE_S, wait_until

NAMES = ("chromium", "chromium-browser", "google-chrome")
LEFT_OUT = "TICKPATH_WITHOUT_BROWSER"
# Root has no sandbox; /dev/shm is small in containers; and nothing of it may ask somebody else for updates.
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def executable() -> str:
    """The browser's path. The test fails where there is none, and is skipped where the environment says so."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None and os.environ.get(LEFT_OUT):
        pytest.skip(f"{LEFT_OUT} is set, and there is no browser")
    if found is None:
        pytest.fail(
            f"none of {', '.join(NAMES)} is installed: apt-get install chromium, or set {LEFT_OUT}=1 to leave out what "
            "needs a browser"
        )
    return found


class Tab:
    """One page. `problems`: what its console and its network have complained of."""

    def __init__(self, process: subprocess.Popen[bytes], to_browser: int, from_browser: int) -> None:
        self._process = process
        self._to = to_browser
        self._from = from_browser
        self._buffer = b""
        self._last = 0
        self._session: str | None = None
        self.problems: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result."""
        self._last += 1
        command = {"id": self._last, "method": method, "params": parameters}
        if self._session is not None:
            command["sessionId"] = self._session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        while (message := self._receive()).get("id") != self._last:
            self._note(message)
        assert "error" not in message, f"{method}: {message['error']}"
        result: dict[str, Any] = message["result"]
        return result

    def show(self, width: int, height: int, dark: bool = False) -> None:
        """What kind of screen it is on. Under 500 pixels it is a phone's."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if width < 500 else 1,
            mobile=width < 500,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        failed = self.ask("Page.navigate", url=url).get("errorText")
        assert failed is None, failed

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise's, where it is one."""
        done = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Until it is true; its value then. What is not there yet makes it false: the page may still be loading."""
        guarded = f"(() => {{ try {{ return ({expression}) }} catch {{ return false }} }})()"
        return wait_until(lambda: self.evaluate(guarded), expression)

    def text(self) -> str:
        """All that can be read."""
        return str(self.evaluate("document.body.innerText"))

    def point_at(self, x: float, y: float) -> None:
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path) -> None:
        """The whole page, to its end."""
        image = self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(image))

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._from], [], [], PATIENCE_S)
            assert ready, "the browser says nothing"
            part = os.read(self._from, 1 << 20)
            assert part, f"the browser ended with {self._process.wait()}"
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                self.problems.append(parameters["entry"]["text"])
            case "Runtime.exceptionThrown":
                self.problems.append(str(parameters["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.problems.append(str(parameters["args"]))


@contextmanager
def browsing(folder: Path) -> Iterator[Tab]:
    """A tab of a fresh browser, whose profile is in `folder`, until the end of the block."""
    command = [executable(), *FLAGS, f"--user-data-dir={folder}", "about:blank"]
    read_end, to_browser = os.pipe()
    from_browser, write_end = os.pipe()
    # The browser takes its commands from descriptor 3 and answers on 4: neither may be in the way of the other.
    theirs = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (read_end, write_end)]
    launcher = 'exec "$@" 3<&{} 4>&{}'.format(*theirs)
    with (folder.parent / "browser.log").open("w") as log:
        process = subprocess.Popen(
            ["bash", "-c", launcher, "browser", *command],
            pass_fds=theirs,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    for descriptor in (read_end, write_end, *theirs):
        os.close(descriptor)
    try:
        yield Tab(process, to_browser, from_browser)
    finally:
        os.close(to_browser)  # it ends when nobody can command it any more
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(from_browser)
