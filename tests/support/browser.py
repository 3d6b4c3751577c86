"""Drives a headless Chromium over a pipe, without any package.

Source: https://chromedevtools.github.io/devtools-protocol/; with --remote-debugging-pipe the
browser reads JSON messages from file descriptor 3 and writes them to 4, each ended by a zero byte.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

NAMES = ("chromium", "chromium-headless-shell", "google-chrome", "chrome")
SECONDS = 240  # for one answer; a busy machine is slow, and a browser that is gone ends the wait


def find_browser():
    """Returns the path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One browser with one page. `events` are all messages of the page, in order."""

    def __init__(self, program):
        self.folder = tempfile.TemporaryDirectory()
        to_read, self.to_write = os.pipe()
        self.from_read, from_write = os.pipe()
        command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
                   "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
                   "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}", "about:blank"]
        if to_read != 3 or from_write != 4:
            command = ["bash", "-c", f'exec 3<&{to_read} 4>&{from_write} "$@"', "browser", *command]
        self.process = subprocess.Popen(command, pass_fds=(to_read, from_write), stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_read)
        os.close(from_write)
        self.number, self.rest, self.events, self.session = 0, b"", [], None
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.to_write)
        os.close(self.from_read)
        self.folder.cleanup()

    def _message(self, end):
        while b"\0" not in self.rest:
            if time.monotonic() > end:
                raise TimeoutError("the browser does not answer")
            part = os.read(self.from_read, 1 << 20)
            if not part:
                raise EOFError("the browser has ended")
            self.rest += part
        text, self.rest = self.rest.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + SECONDS
        while True:
            answer = self._message(end)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def size(self, width, height, dark=False):
        """Sets the window in CSS pixels, and the colour scheme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, path):
        """Loads a file, and returns when it is loaded."""
        self.events.clear()
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        end = time.monotonic() + SECONDS
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(self._message(end))

    def run(self, expression):
        """Returns the value of a JavaScript expression. Errors: those of the expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def key(self, key, code=0):
        """Presses and releases a key. `code`: its Windows key code, for keys without a character."""
        text = key if len(key) == 1 else ""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code or ord(key[0]),
                      **({"text": text} if kind == "keyDown" and text else {}))

    def picture(self, path, whole=False):
        """Writes a PNG of the window, or of the whole page."""
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole,
                          **({"clip": {**self.call("Page.getLayoutMetrics")["cssContentSize"], "scale": 1}} if whole else {}))
        Path(path).write_bytes(base64.b64decode(image["data"]))

    def messages(self):
        """Returns all that the page wrote to the console, and its uncaught errors."""
        kinds = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
        return [e for e in self.events if e.get("method") in kinds]

    def requests(self):
        """Returns the URLs that the page has requested."""
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
