"""A browser driven over the WebDriver protocol (W3C): Chromium with Debian's chromium-driver.

Only what the tests of the page need, with the standard library alone.
"""

import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Alt": "\ue00a", "Shift": "\ue008", "Tab": "\ue004", "ArrowUp": "\ue013", "ArrowDown": "\ue015"}


class BrowserError(Exception):
    pass


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Browser:
    def __init__(self, driver, browser, width=1280, height=900, dark=False):
        self.dir = tempfile.mkdtemp(prefix="prevue-page-")
        port = free_port()
        self.base = f"http://127.0.0.1:{port}"
        env = dict(os.environ, HOME=self.dir, XDG_CONFIG_HOME=self.dir, XDG_CACHE_HOME=self.dir)
        self.log = open(os.path.join(self.dir, "driver.log"), "w+b")
        self.process = subprocess.Popen([driver, f"--port={port}"], stdout=self.log, stderr=self.log, env=env)
        self.session = ""
        try:
            self._wait_for_driver()
            self._open(browser, width, height, dark)
        except Exception:
            self.close()
            raise

    def _wait_for_driver(self):
        until = time.monotonic() + 30
        while time.monotonic() < until:
            if self.process.poll() is not None:
                break
            try:
                self._call("GET", "/status")
                return
            except OSError:
                time.sleep(0.1)
        raise BrowserError("chromedriver does not start")

    def _open(self, browser, width, height, dark):
        args = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
                f"--window-size={width},{height}", f"--user-data-dir={self.dir}/profile"]
        if dark:
            args.append("--force-dark-mode")
        options = {"binary": browser, "args": args}
        always = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}, "timeouts": {"script": 60000}}
        answer = self._call("POST", "/session", {"capabilities": {"alwaysMatch": always}})
        self.session = "/session/" + answer["sessionId"]

    def _call(self, method, path, body=None):
        data = json.dumps(body if body is not None else {}).encode() if method == "POST" else None
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as e:
            value = json.load(e)["value"]
            raise BrowserError(f"{value.get('error')}: {value.get('message', '').splitlines()[0]}") from None

    def call(self, method, path, body=None):
        return self._call(method, self.session + path, body)

    def close(self):
        try:
            if self.session:
                self.call("DELETE", "")
        except (OSError, BrowserError):
            pass
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    # ---- what tests do ----

    def go(self, url):
        self.call("POST", "/url", {"url": url})

    def run(self, script, *args):
        """The value of a script's `return`; a promise is waited for."""
        return self.call("POST", "/execute/sync", {"script": script, "args": list(args)})

    def devtools(self, command, **params):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def find(self, css):
        return self.call("POST", "/element", {"using": "css selector", "value": css})[ELEMENT]

    def click(self, css):
        self.call("POST", f"/element/{self.find(css)}/click")

    def type(self, css, text):
        """Also chooses a file, where css is a file input."""
        self.call("POST", f"/element/{self.find(css)}/value", {"text": text})

    def press(self, *names):
        """Keys together, at what has the focus."""
        keys = [KEYS.get(n, n) for n in names]
        actions = [{"type": "keyDown", "value": k} for k in keys] + [{"type": "keyUp", "value": k} for k in reversed(keys)]
        self.call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def text(self, css):
        return self.run("return [...document.querySelectorAll(arguments[0])].map(e => e.textContent).join('\\n')", css)

    def wait(self, what, script, *args, seconds=60):
        """Until the script returns something true; that is returned."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            value = self.run(script, *args)
            if value:
                return value
            time.sleep(0.05)
        raise BrowserError(f"{what}: not within {seconds} s")

    def console(self):
        """What the console was told since the last call, warnings and worse."""
        return [e for e in self.call("POST", "/se/log", {"type": "browser"}) if e["level"] in ("WARNING", "SEVERE")]

    def screenshot(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.call("GET", "/screenshot")))

    def resize(self, width, height, mobile=False):
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2 if mobile else 1, mobile=mobile)

    def scheme(self, name):
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])
