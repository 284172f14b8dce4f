"""A headless browser, driven by the DevTools protocol through a pair of pipes."""

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--remote-debugging-pipe", "--force-device-scale-factor=1"),
]
SECONDS = 60.0  # of one wait, on a busy machine


def find():
    """The path of a browser; None where none is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page: `go` to an address, `resize` it, `run` JavaScript in it."""

    def __init__(self, path, profile):
        """Starts the browser with an empty profile, a folder."""
        commands, self._commands = os.pipe()
        self._replies, replies = os.pipe()
        ends = f"exec 3<&{commands} 4>&{replies}; exec"
        self._process = subprocess.Popen(
            ["bash", "-c", f'{ends} "$@"', "bash", path, *OPTIONS, f"--user-data-dir={profile}"],
            pass_fds=(commands, replies),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(commands)
        os.close(replies)
        self._buffer, self._numbers, self._session = b"", itertools.count(1), {}
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._commands)
        os.close(self._replies)

    def resize(self, width, height=1000):
        """Sets the size of the window, in pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", **size)

    def go(self, address):
        """Opens an address and waits until all is loaded."""
        failure = self._call("Page.navigate", url=address).get("errorText")
        assert not failure, f"{address}: {failure}"
        self.wait(f"location.href == {json.dumps(address)} && document.readyState == 'complete'")

    def run(self, expression):
        """The value of a JavaScript expression, a promise's too."""
        options = {"returnByValue": True, "awaitPromise": True}
        reply = self._call("Runtime.evaluate", expression=expression, **options)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def wait(self, condition):
        """Waits until a JavaScript expression is true, and returns its value."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if value := self.run(condition):
                return value
            time.sleep(0.02)
        raise TimeoutError(f"{condition} is not true after {SECONDS:.0f} seconds.")

    def _call(self, method, **parameters):
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": parameters, **self._session}
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while True:
            reply = self._read()
            if reply.get("id") == number:
                assert "error" not in reply, f"{method}: {reply['error']}"
                return reply["result"]

    def _read(self):
        while b"\0" not in self._buffer:
            received = os.read(self._replies, 1 << 20)
            assert received, "The browser ended."
            self._buffer += received
        message, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(message)
