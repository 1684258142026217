"""Drives the page of `prevue serve` in Chromium: upload, ask, stream, stop, views, keys, errors.

    check_page.py PREVUE CHROMEDRIVER CHROMIUM [WORD]     only the tests whose name contains WORD

Prints "ok NAME" or "FAIL NAME: why" for each test, and at last "N passed, N failed".
"""

import http.server
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request
import wave

from browser import Browser, BrowserError

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
SAMPLES = os.path.join(ROOT, "samples")
FRAMES = 32  # that nano takes from a clip, also from one with fewer
TESTS = []


def test(f):
    TESTS.append(f)
    return f


def check(condition, why):
    if not condition:
        raise AssertionError(why)


class Server:
    """`prevue serve` on a free port, with the models of the repository."""

    def __init__(self, prevue, directory, *options, port=0):
        models = os.path.join(ROOT, "models")
        self.out = open(os.path.join(directory, "serve.out"), "w+")
        self.process = subprocess.Popen(
            [prevue, "serve", "-m", f"{models}/nano.gguf", "-d", f"{models}/nano-draft.gguf", "--head", f"{models}/nano-head.gguf", "--samples", SAMPLES,
             "--port", str(port), "--access-log", "none", *options], stdout=self.out, stderr=subprocess.STDOUT)
        self.url = self._address()

    def _address(self):
        until = time.monotonic() + 60
        while time.monotonic() < until and self.process.poll() is None:
            self.out.seek(0)
            for line in self.out:
                if " at http" in line:
                    return line.split(" at ")[1].strip()
            time.sleep(0.1)
        self.out.seek(0)
        raise BrowserError("the server does not start: " + self.out.read())

    @property
    def port(self):
        return int(self.url.rsplit(":", 1)[1])

    def ask(self, path, body=None, key=""):
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = "Bearer " + key
        request = urllib.request.Request(self.url + path, json.dumps(body).encode() if body else None, headers)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.read().decode()

    def running(self):
        for line in self.ask("/metrics").splitlines():
            if line.startswith("prevue:num_requests_running "):
                return int(float(line.split()[1]))
        raise AssertionError("the metrics do not tell of running requests")

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.out.close()


# ---- steps ----

def fresh(b, server, **settings):
    """The page as a new visitor sees it, with these settings."""
    b.resize(1280, 900)
    b.scheme("light")
    b.go("about:blank")  # the page saves its conversations when it is left
    b.devtools("Storage.clearDataForOrigin", origin=server.url, storageTypes="local_storage")
    b.go(server.url + "/")
    b.run("localStorage.setItem('prevue.settings', arguments[0])", json.dumps(settings))
    b.go(server.url + "/")
    b.wait("the model's name", "return document.querySelector('#model').textContent === 'nano'")


def take_sample(b, name):
    b.wait(f"sample {name}", "const e = [...document.querySelectorAll('.sample')].find(e => e.textContent.includes(arguments[0])); e?.click(); return !!e", name)
    b.wait("the film strip", "return document.querySelectorAll('#clips .frame img').length > 0")


def ask(b, question):
    b.type("#question", question)
    b.press("Enter")


def answered(b, n=1, seconds=120):
    """Waits until n answers are there and none is under way; the text of the last."""
    b.wait("the answer", "return document.querySelectorAll('.turn.model .actions button').length && document.querySelectorAll('.turn.model').length === arguments[0] && document.querySelector('#stop').hidden", n, seconds=seconds)
    return b.run("return [...document.querySelectorAll('.words')].pop().textContent")


def plain_answer(server, file, question):
    """The same question without the page, the stream and the drafter."""
    content = [{"type": "video_url", "video_url": {"url": file}}, {"type": "text", "text": question}]
    reply = json.loads(server.ask("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], "prevue": {"method": "ar"}}))
    return reply["choices"][0]["message"]["content"]


def no_complaints(b, allowed=()):
    for entry in b.console():
        check(any(a in entry["message"] for a in allowed), "the console says: " + entry["message"])


# ---- tests ----

@test
def first_screen(b, server, tmp):
    fresh(b, server)
    b.wait("samples with pictures", "return document.querySelectorAll('.sample').length === 4 && document.querySelectorAll('.sample img').length === 16")
    check(b.run("return document.activeElement.id") == "question", "the question does not have the focus")
    check(b.run("return document.documentElement.scrollWidth <= innerWidth"), "it is wider than the window")


@test
def answer_streams(b, server, tmp):
    fresh(b, server, method="ar")
    take_sample(b, "16-frames")
    check(b.run("return document.querySelectorAll('#clips .frame').length") == FRAMES, f"other than {FRAMES} frames")
    b.run("""window.seen = [];
        new MutationObserver(() => { const t = document.querySelector('.words')?.textContent || ''; if (t.length && seen[seen.length - 1] !== t) seen.push(t); })
            .observe(document.querySelector('#turns'), { subtree: true, childList: true, characterData: true })""")
    ask(b, "Describe the video.")
    text = answered(b)
    steps = b.run("return seen")
    check(len(steps) > 10, f"the text came in {len(steps)} pieces")
    check(all(x == text[:len(x)] for x in steps), "a piece of the text changed later")
    want = plain_answer(server, "sample-16-frames", "Describe the video.")
    check(text == want, f"the page shows {text!r}, the server says {want!r}")
    check(b.text("#status") == "Answer: " + text, "a screen reader is not told the answer")
    check(b.run("return document.querySelector('.words').getAttribute('aria-busy')") == "false", "the answer is busy")


@test
def upload(b, server, tmp):
    name = "<img src=x onerror=alert(1)> & clip.mp4"
    path = os.path.join(tmp, name)
    shutil.copy(os.path.join(SAMPLES, "16-frames.mp4"), path)
    fresh(b, server)
    b.type("#pick", path)
    b.wait("the frames", "return document.querySelectorAll('#clips .frame img').length === arguments[0]", FRAMES)
    check(b.text("#clips .clip-name") == name, "the name is not shown as it is")
    files = [f for f in json.loads(server.ask("/v1/files"))["data"] if f["purpose"] != "sample"]
    check(len(files) == 1 and files[0]["bytes"] == os.path.getsize(path), f"the server has {files}")
    ask(b, "<b>How</b> many scenes does the video have?")
    answered(b)
    check(b.text(".bubble") == "<b>How</b> many scenes does the video have?", "the question is not shown as it is")
    check(not b.run("return document.querySelector('#turns b, #turns img[src=x]')"), "text became HTML")
    b.run("document.querySelector('#list .small').click()")
    b.wait("that the file is removed", "return fetch('v1/files').then(r => r.json()).then(l => l.data.every(f => f.purpose === 'sample'))")


@test
def drop_a_file(b, server, tmp):
    fresh(b, server)
    b.run("""return fetch('v1/files/sample-16-frames/content').then(r => r.blob()).then(blob => {
        const data = new DataTransfer();
        data.items.add(new File([blob], 'dropped.mp4', { type: 'video/mp4' }));
        for (const type of ['dragenter', 'dragover', 'drop'])
            document.body.dispatchEvent(new DragEvent(type, { dataTransfer: data, bubbles: true, cancelable: true }));
    })""")
    b.wait("the frames", "return document.querySelectorAll('#clips .frame img').length === arguments[0]", FRAMES)
    check(b.text("#clips .clip-name") == "dropped.mp4", "another name")
    b.run("document.querySelector('#clips [aria-label=\"Remove dropped.mp4\"]').click()")
    check(b.run("return document.querySelectorAll('#clips .strip').length") == 0, "it is still there")


@test
def several_files(b, server, tmp):
    data = os.path.join(ROOT, "tests", "data", "video")
    names = ["bframes.mp4", "still.jpg", "flv1.flv"]
    fresh(b, server)
    b.type("#pick", "\n".join(os.path.join(data, n) for n in names))
    b.wait("three strips", "return document.querySelectorAll('#clips .reel').length === 3")
    b.wait("no field for the frames of a picture", "return document.querySelectorAll('#clips input.frames').length === 2")
    check(b.text("#clips .clip-name").splitlines() == names, f"they are {b.text('#clips .clip-name')!r}")
    ask(b, "Describe the video.")
    answered(b)
    check(not b.text(".actions .error"), f"it says {b.text('.actions .error')!r}")
    info = b.run("return JSON.parse(localStorage.getItem(Object.keys(localStorage).find(k => k.startsWith('prevue.conversation.')))).turns[1].info")
    check(info["frames"] >= 2 * FRAMES + 1, f"the model took {info['frames']} frames")


def write_wav(path, seconds):
    """A click in each second."""
    with wave.open(path, "wb") as w:
        w.setnchannels(1)
        w.setsampwidth(2)
        w.setframerate(16000)
        w.writeframes(b"".join(struct.pack("<h", 16384 if i % 16000 == 8000 else 0) for i in range(16000 * seconds)))


@test
def sound(b, server, tmp):
    """nano does not hear: nothing is asked for. With a model that does, which is pretended here, the track is drawn."""
    path = os.path.join(tmp, "clicks.wav")
    both = os.path.join(ROOT, "tests", "fuzz", "corpus", "video", "sound.mp4")
    write_wav(path, 2)
    fresh(b, server)
    b.type("#pick", both)
    b.wait("the frames", "return document.querySelectorAll('#clips .frame img').length > 0")
    check(b.run("return document.querySelectorAll('.sound').length") == 0, "a track is drawn for a model that does not hear")
    check(b.run("return !performance.getEntriesByType('resource').some(e => e.name.includes('/sound?'))"), "the sound was asked for")
    script = b.devtools("Page.addScriptToEvaluateOnNewDocument", source="""const get = window.fetch;
        window.fetch = async (url, ...rest) => {
            const reply = await get(url, ...rest);
            return String(url) === 'v1/models' ? new Response((await reply.text()).replace('"audio":false', '"audio":true')) : reply;
        };""")
    try:
        fresh(b, server)
        b.type("#pick", both + "\n" + path)
        b.wait("two tracks", "return document.querySelectorAll('#clips .sound').length === 2")
        b.wait("that only one strip has frames", "return document.querySelectorAll('#clips .reel').length === 1 && document.querySelectorAll('#clips .strip.heard').length === 1")
        check(not b.run("return document.querySelector('#clips .error')"), "sound alone is shown as an error")
        wide = b.run("""const film = document.querySelector('#clips .film'), width = (e) => e.getBoundingClientRect().width;
            return width(film.querySelector('.sound')) / width(film.querySelector('.shots'))""")
        file = next(f["id"] for f in json.loads(server.ask("/v1/files"))["data"] if f["filename"] == "sound.mp4")
        length = json.loads(server.ask(f"/v1/files/{file}/sound"))["samples"] / 16000 / json.loads(server.ask(f"/v1/files/{file}/frames"))["video"]["duration"]
        check(abs(wide - length) < 0.02 * length, f"the track is {wide} times as long as the frames, its sound {length} times")
        labels = b.run("return [...document.querySelectorAll('#clips .sound')].map(e => e.getAttribute('aria-label'))")
        check("Sound of clicks.wav, 2.00 s" in labels, f"the tracks are called {labels}")
        check(b.text("#clips .heard .about") == "2.00 s of sound", f"it says {b.text('#clips .heard .about')!r}")
        drawn = b.run("return document.querySelector('#clips .heard .sound path').getAttribute('d')")
        points = [p.split() for p in drawn[1:-1].split("L")]
        loud = [float(x) for x, y in points if float(y) < 0.5]
        check(loud == [100.5, 300.5], f"the clicks are drawn at {loud} of 400")
        check(b.run("return document.querySelector('#clips .heard .sound').getBoundingClientRect().width > 200"), "the track is too narrow")
    finally:
        b.devtools("Page.removeScriptToEvaluateOnNewDocument", identifier=script["identifier"])
    b.console()  # frames of a sound


@test
def frames_of_a_clip(b, server, tmp):
    fresh(b, server)
    take_sample(b, "64-frames")
    b.type("#clips input.frames", "5")
    b.press("Enter")
    b.wait("5 frames", "return document.querySelectorAll('#clips .frame img').length === 5")
    ask(b, "Describe the video.")
    answered(b)
    info = b.run("return JSON.parse(localStorage.getItem(Object.keys(localStorage).find(k => k.startsWith('prevue.conversation.')))).turns[1].info")
    check(info["frames"] == 5, f"the model took {info['frames']} frames")


@test
def how(b, server, tmp):
    fresh(b, server, method="specvlm")
    take_sample(b, "32-frames")
    ask(b, "Describe the video.")
    text = answered(b)
    check(not b.run("return document.querySelector('.how')"), "it shows how without being asked")
    plain = b.run("return getComputedStyle(document.querySelector('.words .drafted')).backgroundColor")
    b.press("Alt", "Shift", "H")
    b.wait("the panel", "return document.querySelector('.how')")
    check(b.run("return document.querySelector('#how').getAttribute('aria-checked')") == "true", "the switch is off")
    coloured = b.run("return ['drafted', 'decoded'].map(k => getComputedStyle(document.querySelector('.words .' + k)).backgroundColor)")
    check(len({plain, *coloured}) == 3, f"words are not coloured: {plain} {coloured}")
    check(b.run("return document.querySelector('.words').textContent") == text, "colours changed the text")
    turn = b.run("return JSON.parse(localStorage.getItem(Object.keys(localStorage).find(k => k.startsWith('prevue.conversation.')))).turns[1]")
    check(sum(turn["lengths"]) == len(text) and len(turn["drafted"]) == turn["info"]["tokens"], "tokens and text do not agree")
    check(f"{turn['info']['tokens_per_pass']:.1f}" in b.text(".tiles"), "tokens a pass are missing")
    bars = b.run("return document.querySelectorAll('.bars rect.decoded').length")
    check(bars == turn["drafted"].count("0"), f"{bars} passes are drawn")
    check(b.text(".lane .who").split() == ["Model", "Drafter"], "the timeline lacks a side")
    check(b.run("return document.querySelectorAll('.lane rect.verify').length && document.querySelectorAll('.lane rect.draft').length"), "the timeline is empty")
    b.press("Alt", "Shift", "H")
    check(not b.run("return document.querySelector('.how')"), "the switch does not turn it off")


@test
def views(b, server, tmp):
    fresh(b, server, method="specvlm", how=True)
    take_sample(b, "16-frames")
    ask(b, "Describe the video.")
    answered(b)
    counted = "return [...document.querySelectorAll('.how .veil .shown')].reduce((n, p) => n + p.getAttribute('d').split('M').length - 1, 0)"
    b.wait("the veil", "return document.querySelectorAll('.how .veil').length === arguments[0]", FRAMES)
    own = b.run("return JSON.parse(localStorage.getItem(Object.keys(localStorage).find(k => k.startsWith('prevue.conversation.')))).turns[1].info.view")
    check(b.run(counted) == own["kept"] > 0, f"{b.run(counted)} tokens are drawn, {own['kept']} were seen")
    shown = set()
    for view in ("holistic", "full", "text", "specvlm"):
        b.run("const s = document.querySelector('.how select'); s.value = arguments[0]; s.dispatchEvent(new Event('change'))", view)
        b.wait(f"view {view}", "return [...document.querySelectorAll('.how .note')].some(e => e.textContent.includes(`“${arguments[0]}”`))", view)
        shown.add(b.run("return [...document.querySelectorAll('.how .veil .shown')].map(p => p.getAttribute('d')).join()"))
        want = {"full": own["frames"] * own["height"] * own["width"], "text": 0, "specvlm": own["kept"]}.get(view)
        check(want is None or b.run(counted) == want, f"view {view} shows {b.run(counted)} tokens instead of {want}")
    check(len(shown) == 4, "two views look the same")


@test
def compare_with_plain(b, server, tmp):
    fresh(b, server, method="specvlm", how=True, temperature=0.8)
    take_sample(b, "16-frames")
    ask(b, "Describe the video.")
    answered(b)
    b.run("document.querySelector('.how .chart > button').click()")
    b.wait("the comparison", "return document.querySelectorAll('.versus').length === 2")
    check("The text is the same, token by token." in b.text(".how .chart"), "the texts differ")


@test
def stop_and_regenerate(b, server, tmp):
    fresh(b, server, method="ar")
    take_sample(b, "64-frames")
    b.run("""new MutationObserver((_, o) => { if (document.querySelector('.words')?.textContent.length > 20) { o.disconnect(); window.stopped = true; document.querySelector('#stop').click(); } })
        .observe(document.querySelector('#turns'), { subtree: true, childList: true, characterData: true })""")
    ask(b, "Describe the video.")
    part = answered(b)
    check(b.run("return window.stopped"), "the answer was too quick to be stopped")
    check("Stopped after" in b.text(".actions .note"), "it does not say that it was stopped")
    until = time.monotonic() + 5
    while server.running() and time.monotonic() < until:
        time.sleep(0.05)
    check(server.running() == 0, "the server goes on with the answer")
    b.run("[...document.querySelectorAll('.actions button')].pop().click()")
    whole = answered(b)
    check(len(whole) > len(part) and whole.startswith(part), "the answer is not the one that was stopped, to its end")
    ask(b, "How many scenes does the video have?")
    b.wait("the answer has begun", "return !document.querySelector('#stop').hidden")
    b.press("Escape")
    answered(b, 2)
    check(b.run("return document.querySelectorAll('.turn.model')[0].querySelectorAll('.actions button').length") == 1, "an older answer can be regenerated")


@test
def conversations(b, server, tmp):
    fresh(b, server)
    take_sample(b, "16-frames")
    ask(b, "Describe the video.")
    first = answered(b)
    ask(b, "How many scenes does the video have?")
    second = answered(b, 2)
    check(second and second != first, "the second answer is the first")
    b.press("Alt", "Shift", "N")
    b.wait("an empty conversation", "return document.querySelector('.welcome')")
    ask(b, "What is a mushroom?")
    answered(b)
    check(b.text("#list .label").splitlines() == ["What is a mushroom?", "Describe the video."], f"the list is {b.text('#list .label')!r}")
    b.press("Alt", "ArrowDown")
    check(b.text(".words") == first + "\n" + second, "the first conversation is not as it was")
    b.go(server.url + "/")
    b.wait("the list", "return document.querySelectorAll('#list .label').length === 2")
    b.run("document.querySelectorAll('#list .open')[1].click()")
    check(b.text(".words") == first + "\n" + second, "it is lost when the page is loaded again")
    b.wait("its film strip", "return document.querySelectorAll('.turn .frame img').length === arguments[0]", FRAMES)
    b.run("document.querySelectorAll('#list .small')[1].click()")
    check(b.text("#list .label") == "What is a mushroom?", "it cannot be deleted")


@test
def two_tabs(b, server, tmp):
    fresh(b, server)
    first = b.call("GET", "/window")
    second = b.call("POST", "/window/new", {"type": "tab"})["handle"]
    b.call("POST", "/window", {"handle": second})
    b.go(server.url + "/")
    ask(b, "What is a mushroom?")
    text = answered(b)
    b.call("DELETE", "/window")
    b.call("POST", "/window", {"handle": first})
    b.wait("the other tab's conversation", "return document.querySelector('#list .label')?.textContent === 'What is a mushroom?'")
    b.go(server.url + "/")
    b.run("document.querySelector('#list .open').click()")
    check(b.text(".words") == text, "the conversation of the other tab is lost")


@test
def video_header(b, server, tmp):
    fresh(b, server)
    b.run("""const real = window.fetch;
        window.sent = [];
        window.fetch = (path, options) => {
            if (String(path).endsWith('completions'))
                window.sent.push(options.headers['X-Prevue-Video'] || '');
            return real(path, options);
        }""")
    take_sample(b, "16-frames")
    ask(b, "Describe the video.")
    answered(b)
    sent = b.run("return window.sent")
    check(sent and all(s == "sample-16-frames" for s in sent), f"X-Prevue-Video was {sent}")


@test
def two_answers_at_once(b, server, tmp):
    fresh(b, server, method="ar")
    take_sample(b, "16-frames")
    ask(b, "Describe the video.")
    b.press("Alt", "Shift", "N")
    take_sample(b, "16-frames")
    ask(b, "How many scenes does the video have?")
    answered(b)
    b.press("Alt", "ArrowDown")
    text = answered(b)
    check(text == plain_answer(server, "sample-16-frames", "Describe the video."), "an answer in the background is not whole")


@test
def other_origins(b, server, tmp):
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()

        def log_message(self, *args):
            pass

    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    b.go(f"http://127.0.0.1:{other.server_port}/")
    b.run("""const form = new FormData();
        form.append('file', new File(['x'], 'planted.mp4', { type: 'video/mp4' }));
        return fetch(arguments[0] + '/v1/files', { method: 'POST', mode: 'no-cors', body: form }).then(() => 0)""", server.url)
    other.shutdown()
    names = [f["filename"] for f in json.loads(server.ask("/v1/files"))["data"]]
    check("planted.mp4" not in names, "a page of another origin uploaded a file")
    b.console()  # the refusal


@test
def markdown(b, server, tmp):
    fresh(b, server)
    text = "# Title\nA **bold** and *thin* `x<y`\nline\n\n- one\n- two **2**\n  more\n\n3. three\n4. four\n```c\nint x; /* **not** */\n```\n<img src=x onerror=alert(1)> 2 * 3 * 4 **open"
    shape = b.run("""return import('./page/markdown.js').then(m => {
        const show = (n) => n.nodeType === 3 ? n.data : `[${n.tagName.toLowerCase()}${n.className ? '.' + n.className : ''} ${[...n.childNodes].map(show).join('')}]`;
        return m.markdown(arguments[0]).map(show);
    })""", text)
    want = ["[p.heading Title]", "[p A [strong bold] and [em thin] [code x<y]\nline]", "[ul [li one][li two [strong 2]\nmore]]", "[ol [li three][li four]]",
            "[pre [code int x; /* **not** */]]", "[p <img src=x onerror=alert(1)> 2 * 3 * 4 **open]"]
    check(shape == want, f"it is laid out as {shape}")


@test
def copy(b, server, tmp):
    fresh(b, server)
    b.devtools("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    ask(b, "What is a mushroom?")
    text = answered(b)
    b.click(".actions button")
    b.wait("that it is copied", "return document.querySelector('#status').textContent === 'Copied.'")
    check(b.run("return navigator.clipboard.readText()") == text, "the clipboard has another text")


@test
def errors_in_words(b, server, tmp):
    path = os.path.join(tmp, "broken.mp4")
    with open(path, "wb") as f:
        f.write(b"this is no video" * 100)
    fresh(b, server)
    b.type("#pick", path)
    b.wait("an error at the strip", "return document.querySelector('#clips .error')?.textContent.length > 10")
    ask(b, "Describe the video.")
    answered(b)
    words = b.text(".actions .error")
    check(words.endswith(".") and "status" not in words and tmp not in words, f"the error says {words!r}")
    check(b.run("return document.querySelector('.actions .error').getAttribute('role')") == "alert", "it is not announced")
    b.console()  # requests that failed


@test
def themes_and_sizes(b, server, tmp):
    fresh(b, server, how=True)
    take_sample(b, "16-frames")
    ask(b, "Describe the video.")
    answered(b)
    papers = set()
    for scheme in ("light", "dark"):
        b.scheme(scheme)
        b.wait(f"theme {scheme}", "return document.documentElement.dataset.theme === arguments[0]", scheme)
        papers.add(b.run("return getComputedStyle(document.body).backgroundColor"))
        for width, height, mobile in ((1280, 900, False), (390, 844, True), (320, 640, True)):
            b.resize(width, height, mobile)
            wide = b.run("""return [...document.querySelectorAll('#turns *, #ask *, header *')].filter(e => !e.closest('.reel') && !e.closest('.strip') && !e.closest('svg') && e.getClientRects().length
                && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.tagName + '.' + e.className)""")
            check(not wide, f"at {width} pixels wide these are cut off: {wide}")
        low = b.run(CONTRAST)
        check(not low, f"{scheme}: too little contrast: {low}")
    check(len(papers) == 2, "dark and light look the same")
    b.click("#menu")
    b.wait("the list", "return getComputedStyle(document.querySelector('#side')).visibility === 'visible' && document.activeElement.id === 'new'")
    b.press("Escape")
    check(b.run("return document.activeElement.id") == "menu", "the focus is lost")
    b.resize(1280, 900)
    b.scheme("light")
    b.click("#theme")
    b.click("#theme")
    check(b.run("return document.documentElement.dataset.theme") == "dark", "the button does not change the theme")


# Text of which the contrast with what lies behind it is below WCAG's 4.5.
CONTRAST = """
const rgb = (c) => (c.match(/[0-9.]+/g) || []).map(Number);
const light = (c) => { const [r, g, b] = rgb(c).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const behind = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > 0.9) return getComputedStyle(e).backgroundColor; } return 'rgb(255, 255, 255)'; };
const bad = [];
for (const e of document.querySelectorAll('#app *')) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.getClientRects().length || e.closest('svg'))
        continue;
    const a = light(getComputedStyle(e).color), b = light(behind(e)), ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5 && getComputedStyle(e).opacity > 0.9)
        bad.push(`${e.tagName}.${e.className} ${ratio.toFixed(1)}`);
}
return [...new Set(bad)].slice(0, 5).join('; ');
"""


@test
def screen_reader(b, server, tmp):
    fresh(b, server, how=True)
    take_sample(b, "16-frames")
    ask(b, "Describe the video.")
    answered(b)
    b.devtools("Accessibility.enable")
    nodes = b.devtools("Accessibility.getFullAXTree")["nodes"]
    roles = {}
    for n in nodes:
        if not n.get("ignored"):
            roles.setdefault(n["role"]["value"], []).append(n.get("name", {}).get("value", ""))
    for role in ("button", "switch", "textbox", "combobox", "radio", "article", "radiogroup", "dialog", "spinbutton"):
        nameless = [x for x in roles.get(role, []) if not x.strip()]
        check(not nameless, f"{len(nameless)} of role {role} have no name")
    for role in ("main", "complementary", "navigation", "status", "heading", "article", "switch"):
        check(role in roles, f"nothing has the role {role}")
    live = b.run("return document.querySelector('.words').closest('[aria-live], [role=log], [role=status], [role=alert]')")
    check(not live, "every token is read aloud")
    b.click("#question")
    order = []
    for _ in range(12):
        b.press("Shift", "Tab")
        order.append(b.run("const e = document.activeElement; return e.id || e.getAttribute('aria-label') || e.textContent"))
    check(order[0] == "attach" and "body" not in order, f"the order of the focus is {order}")


@test
def api_key(b, server, tmp):
    keys = os.path.join(tmp, "keys")
    with open(keys, "w") as f:
        f.write("open-sesame\n")
    locked = Server(server.prevue, tmp, "--api-key-file", keys)
    try:
        b.go(locked.url + "/")
        b.wait("the question for a key", "return document.querySelector('#key').open")
        b.type("#key-input", "wrong")
        b.press("Enter")
        b.wait("that the key is refused", "return document.querySelector('#key').open && document.querySelector('#key-why').textContent.includes('does not know')")
        b.type("#key-input", "open-sesame")
        b.press("Enter")
        b.wait("the samples", "return document.querySelectorAll('.sample img').length === 16")
        take_sample(b, "16-frames")
        ask(b, "Describe the video.")
        check(len(answered(b)) > 20, "no answer")
        check(not b.run("return localStorage.getItem('prevue.key')"), "the key is kept although nobody asked for that")
    finally:
        locked.stop()
    b.console()  # requests without a key


@test
def server_goes_away(b, server, tmp):
    other = Server(server.prevue, tmp)
    try:
        fresh(b, other)
        other.stop()
        ask(b, "What is a mushroom?")
        answered(b)
        check("cannot be reached" in b.text(".actions .error"), f"it says {b.text('.actions .error')!r}")
        other = Server(server.prevue, tmp, port=other.port)
        b.run("[...document.querySelectorAll('.actions button')].pop().click()")
        b.wait("an answer", "return document.querySelector('.words').textContent.length > 0")
        answered(b)
    finally:
        other.stop()
    b.console()  # requests to nobody


# ---- all of them ----

def main():
    prevue, driver, chromium = sys.argv[1:4]
    word = sys.argv[4] if len(sys.argv) > 4 else ""
    passed = failed = 0
    tmp = tempfile.mkdtemp(prefix="prevue-page-")
    server = browser = None
    try:
        server = Server(prevue, tmp)
        server.prevue = prevue
        browser = Browser(driver, chromium)
        browser.resize(1280, 900)
        for f in TESTS:
            if word not in f.__name__:
                continue
            began = time.monotonic()
            try:
                f(browser, server, tmp)
                no_complaints(browser)
                passed += 1
                print(f"ok {f.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
            except (AssertionError, BrowserError) as e:
                failed += 1
                print(f"FAIL {f.__name__}: {e} (line {traceback.extract_tb(e.__traceback__)[1].lineno})", flush=True)
                browser.console()
    finally:
        if browser:
            browser.close()
        if server:
            server.stop()
        shutil.rmtree(tmp, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
