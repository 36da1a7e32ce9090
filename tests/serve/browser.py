"""Headless Chromium over its debugging socket: load a page, ask it things, press keys, take pictures of it."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
import itertools
import json
from pathlib import Path
import shutil
import subprocess
import threading
import time
from typing import Any

import httpx
import uvicorn
from websockets.sync.client import ClientConnection, connect

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
START_S = 60.0
KEYS = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39, "Escape": 27, " ": 32}


class Browser:
    """`errors`: what went wrong in the page so far: exceptions, and what its security policy stopped."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self.errors: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        id = next(self._ids)
        self._socket.send(json.dumps({"id": id, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(timeout=30))
            if message.get("id") == id:
                assert "error" not in message, (method, message["error"])
                return message["result"]
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        if message.get("method") == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif message.get("method") == "Log.entryAdded":
            entry = message["params"]["entry"]
            # Answers of 401 and 503 are logged as network errors; they are what some tests are about.
            if entry["level"] == "error" and entry["source"] != "network":
                self.errors.append(entry["text"])

    def ask(self, expression: str) -> Any:
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def until(self, expression: str, timeout_s: float = 15.0) -> None:
        """Waits until an expression is true."""
        end = time.monotonic() + timeout_s
        while not self.ask(f"Boolean({expression})"):
            assert time.monotonic() < end, (expression, self.errors, self.ask("document.body.innerText")[:2000])
            time.sleep(0.05)

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def before_scripts(self, source: str) -> None:
        self.call("Page.addScriptToEvaluateOnNewDocument", source=source)

    def show(self, width: int, height: int, theme: str = "light") -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def press(self, key: str) -> None:
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            extra = text if kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=KEYS[key], **extra)

    def write(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        """The whole page, however long."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(b64decode(found["data"]))


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """`folder` takes the profile."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += ["--no-first-run", "--disable-extensions", "--disable-background-networking", "--hide-scrollbars"]
    command += ["--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with connect(_page_socket(process, folder), max_size=64 << 20, compression=None) as socket:
            yield Browser(socket)
    finally:
        process.terminate()
        process.wait(30)


def _page_socket(process: subprocess.Popen[bytes], folder: Path) -> str:
    end = time.monotonic() + START_S
    port_file = folder / "DevToolsActivePort"
    while time.monotonic() < end:
        assert process.poll() is None, "the browser ended"
        if port_file.exists() and len(lines := port_file.read_text().split()) == 2:
            targets = httpx.get(f"http://127.0.0.1:{lines[0]}/json/list").json()
            pages = [target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page"]
            if pages:
                return str(pages[0])
        time.sleep(0.05)
    raise TimeoutError("the browser did not start")


@contextmanager
def served(app: Callable[..., Any]) -> Iterator[str]:
    """An application on a free port, in a thread; its address without a path."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)
