#!/usr/bin/env python3
"""Hours of mixed work for `prevue serve`: does anything grow, leak or change an answer?

    bench/soak.py [--minutes M] [--prevue PROGRAM] [--seed N]

First one client asks one server everything by plain decoding, without caches on disk. Then a second server, with
every drafter, a cache on disk that is too small and room for the keys and values of one context, is asked the same by
several clients at once, with every method, streaming or not; beside that they ask about things nobody asked before
(twice, by two methods), upload clips, ask about them and delete them, leave in the middle of streams and uploads, and
send requests that are wrong. That goes on in rounds. After each round all is quiet, and memory, descriptors, child
processes and files are counted. At last the server is killed with SIGKILL in the middle of a round and started again
on the same directories, several times, and ended with SIGTERM.

Prints one line a round and one for each check, then "N passed, N failed". Python's standard library only."""
import argparse
import http.client
import itertools
import json
import os
import queue
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLIENTS = 4
ACTIONS = 24           # of all clients in one round
KILLS = 3              # at least
GROWTH_MB = 32         # the memory of later rounds may exceed that of earlier ones by this: malloc's fragments
CACHE_BYTES = 8 << 20  # less than what the clips need, so that entries are removed
WAIT = 120             # seconds for things that take one: only a hang reaches it
CLIPS = ["16-frames", "32-frames", "64-frames"]


# ---- requests ----

def ask(content, **more):
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 24, **more}


def about(file_id, question, **more):
    return ask([{"type": "video_url", "video_url": {"url": file_id, "num_frames": 2}}, {"type": "text", "text": question}],
               **more)


ABOUT_CLIPS = [about(f"sample-{clip}", question) for clip in CLIPS for question in ("Describe the video.", "What moves?")]
POOL = ABOUT_CLIPS + [ask(f"Tell me about scene {i}.", temperature=i % 2, seed=i) for i in range(4)] + [
    ask("Tell me everything.", max_tokens=160, ignore_eos=True),
    ask("Count the objects.", n=2, seed=5, temperature=0.8),
    about("sample-32-frames", "Tell me everything.", max_tokens=120, ignore_eos=True, logprobs=True, top_logprobs=3),
]
WRONG = [("POST", "/v1/chat/completions", b"{", 400), ("GET", "/v1/files/file-none", None, 404),
         ("POST", "/v1/chat/completions", json.dumps(about("file-none", "?")).encode(), 404),
         ("POST", "/v1/chat/completions", json.dumps(ask("?", temperature="hot")).encode(), 400),
         ("POST", "/v1/chat/completions", json.dumps(ask("word " * 4000)).encode(), 400), ("PUT", "/v1/models", b"", 405)]


class Lost(Exception):
    """No complete reply."""


def send(port, method, path, body=None, headers=None):
    """(status, body) of one request on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
    try:
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        return reply.status, reply.read()
    except (OSError, http.client.HTTPException) as e:
        raise Lost(f"{method} {path}: {type(e).__name__}: {e}") from e
    finally:
        connection.close()


def expect(port, status, method, path, body=None, headers=None):
    got, data = send(port, method, path, body, headers)
    if got != status:
        raise Lost(f"{method} {path}: status {got} instead of {status}: {data[:200]!r}")
    return data


def answer(port, request, method, stream):
    """[(text, ids)] of the choices."""
    body = json.dumps({**request, "stream": stream, "prevue": {"method": method}})
    data = expect(port, 200, "POST", "/v1/chat/completions", body)
    if not stream:
        return [(c["message"]["content"], c["prevue"]["ids"]) for c in json.loads(data)["choices"]]
    events = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        raise Lost("a stream ended too early")
    found = {}
    for piece in map(json.loads, events[:-1]):
        if "error" in piece:
            raise Lost(f"an error in a stream: {piece['error']}")
        for c in piece["choices"]:
            text, ids = found.get(c["index"], ("", []))
            found[c["index"]] = (text + (c["delta"].get("content") or ""), ids + c["prevue"].get("ids", []))
    return [found[i] for i in sorted(found)]


def upload_body(path):
    boundary = uuid.uuid4().hex
    with open(path, "rb") as f:
        clip = f.read()
    return (f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="clip.mp4"\r\n'
            "Content-Type: video/mp4\r\n\r\n").encode() + clip + f"\r\n--{boundary}--\r\n".encode(), {
                "Content-Type": f"multipart/form-data; boundary={boundary}"}


def leave(port, path, body, headers=(), sent=None, events=0):
    """Send a request, or its first `sent` bytes; wait for `events` events of its stream; go. Half of all leave without
    a goodbye."""
    head = "".join(f"{k}: {v}\r\n" for k, v in headers)
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT) as s:
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode())
        s.sendall(body[:sent])
        seen = b""
        while events and seen.count(b"data: ") < events:
            more = s.recv(4096)
            if not more:
                break
            seen += more
        if len(body) % 2:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


# ---- the server ----

def until(ready, what):
    """Ask again until something is so."""
    end = time.monotonic() + WAIT
    while not ready():
        if time.monotonic() > end:
            raise Lost(f"waited {WAIT} seconds for {what}")
        time.sleep(0.05)


class Server:
    """One process of `prevue serve`."""

    running = [] # those that have not ended

    def __init__(self, prevue, folder, *options):
        models = os.path.join(ROOT, "models", "nano")
        self.log = open(os.path.join(folder, "serve.err"), "a+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(
            [prevue, "serve", "-m", f"{models}.gguf", "-d", f"{models}-draft.gguf", "--head", f"{models}-head.gguf",
             "--samples", os.path.join(ROOT, "samples"), "--port", "0", "--context", "1024", "--access-log", "none",
             *options], stdout=subprocess.PIPE, stderr=self.log, text=True, env={**os.environ, "TMPDIR": folder})
        self.running.append(self)
        lines = queue.Queue()
        threading.Thread(target=lambda: [lines.put(line) for line in self.process.stdout] + [lines.put("")],
                         daemon=True).start()
        line = "-"
        while line and not re.search(r":(\d+)/?$", line.strip()):
            line = lines.get(timeout=WAIT)
        if not line:
            self.log.seek(0)
            raise Lost(f"the server did not start: {self.log.read()[-500:]}")
        self.port = int(re.search(r":(\d+)/?$", line.strip()).group(1))

    def proc(self, name):
        return f"/proc/{self.process.pid}/{name}"

    def memory(self):
        """MB that are not those of a file."""
        with open(self.proc("status"), encoding="ascii") as f:
            return int(re.search(r"RssAnon:\s+(\d+)", f.read()).group(1)) / 1024

    def descriptors(self):
        return len(os.listdir(self.proc("fd")))

    def children(self):
        found = []
        for task in os.listdir(self.proc("task")):
            try:
                with open(self.proc(f"task/{task}/children"), encoding="ascii") as f:
                    found += f.read().split()
            except OSError:
                pass # the thread has ended
        return found

    def metrics(self):
        found = {}
        for line in expect(self.port, 200, "GET", "/metrics").decode().split("\n"):
            name, _, value = line.partition(" ")
            if name.startswith("prevue:"):
                found[name[7:]] = float(value)
        return found

    def wait_quiet(self):
        """Until no request runs, and no connection is open but the one that asks."""
        def quiet():
            m = self.metrics()
            return m["num_requests_running"] == m["num_requests_waiting"] == 0 and m["http_connections"] <= 1
        until(quiet, "all requests to end")

    def kill(self):
        """SIGKILL; its children must end too."""
        children = self.children()
        self.process.kill()
        self.process.wait()
        self.running.remove(self)
        until(lambda: not any(os.path.exists(f"/proc/{c}") for c in children), "the helpers to end with the server")

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(WAIT)
        self.running.remove(self)
        return status


# ---- load ----

class Load:
    """Several clients, each in a thread, and what they found."""

    def __init__(self, expected, methods, seed):
        self.expected, self.methods, self.seed = expected, methods, seed
        self.port, self.killed = 0, False
        self.clients, self.numbers, self.lock = itertools.count(), itertools.count(), threading.Lock()
        self.turns = itertools.cycle(methods)
        self.counts, self.wrong, self.files = {}, [], set()

    def count(self, name):
        with self.lock:
            self.counts[name] = self.counts.get(name, 0) + 1

    def compare(self, name, got, want):
        self.count(name)
        if got != want:
            self.wrong.append(f"{name}: {got!r} instead of {want!r}")

    def known(self, r):
        i, method, stream = r.randrange(len(POOL)), next(self.turns), r.random() < 0.5
        self.compare(f"answers of {method}", answer(self.port, POOL[i], method, stream), self.expected[i])

    def new(self, r):
        """Something that nobody asked before, by two methods."""
        method = next(self.turns)
        words = " ".join(r.choice("red blue stone river house sky bird seven who what runs falls over".split())
                         for _ in range(r.randrange(8, 60)))
        request = ask(f"{words} {next(self.numbers)}?", temperature=r.choice((0, 0.8)), seed=3)
        self.compare(f"new of {method}", answer(self.port, request, method, True),
                     answer(self.port, request, "ar", False))

    def upload(self, r):
        k = r.randrange(len(CLIPS))
        body, headers = upload_body(os.path.join(ROOT, "samples", f"{CLIPS[k]}.mp4"))
        file_id = json.loads(expect(self.port, 200, "POST", "/v1/files", body, headers))["id"]
        with self.lock:
            self.files.add(file_id)
        self.compare("uploads", answer(self.port, about(file_id, "Describe the video."), next(self.turns), True),
                     self.expected[2 * k])
        if r.random() < 0.8:
            expect(self.port, 200, "DELETE", f"/v1/files/{file_id}")
            expect(self.port, 404, "GET", f"/v1/files/{file_id}")
            with self.lock:
                self.files.discard(file_id)

    def cut_stream(self, r):
        body = {**r.choice(POOL), "stream": True, "prevue": {"method": next(self.turns)}}
        leave(self.port, "/v1/chat/completions", json.dumps(body).encode(), events=r.randrange(4))
        self.count("left streams")

    def cut_upload(self, r):
        body, headers = upload_body(os.path.join(ROOT, "samples", "32-frames.mp4"))
        leave(self.port, "/v1/files", body, headers.items(), sent=r.randrange(len(body)))
        self.count("left uploads")

    def misuse(self, r):
        method, path, body, status = r.choice(WRONG)
        expect(self.port, status, method, path, body)
        self.count("refused")

    def client(self, number, actions):
        r = random.Random(f"{self.seed} {number}")
        work = [self.known] * 6 + [self.new] * 4 + [self.upload, self.upload, self.cut_stream, self.cut_stream,
                                                    self.cut_upload, self.misuse]
        for _ in range(actions):
            try:
                r.choice(work)(r)
            except (Lost, OSError) as e:
                if self.killed:
                    return
                self.wrong.append(f"lost: {e}")
            except Exception as e:  # pylint: disable=broad-except
                self.wrong.append(f"{type(e).__name__}: {e}")

    def start(self, port, actions):
        self.port, self.killed = port, False
        threads = [threading.Thread(target=self.client, args=(next(self.clients), actions)) for _ in range(CLIENTS)]
        for t in threads:
            t.start()
        return threads

    def round(self, port, actions=ACTIONS // CLIENTS):
        for t in self.start(port, actions):
            t.join()

    def total(self):
        return sum(self.counts.values())


# ---- checks ----

RESULTS = []


def check(name, reason=None):
    print(f"FAIL soak_{name}: {reason}" if reason else f"ok soak_{name}", flush=True)
    RESULTS.append(not reason)


def check_growth(memory):
    """The later half of the rounds against the earlier one."""
    half = len(memory) // 2
    if half:
        early, late = max(memory[:half]), max(memory[half:])
        check("memory_is_flat", late > early + GROWTH_MB and f"{early:.0f} MB in the first half, then {late:.0f} MB")


def check_files(folder, load):
    """What must be on disk whether the server was killed or not."""
    found = set(os.listdir(os.path.join(folder, "uploads")))
    want = {name for f in load.files for name in (f, f"{f}.info")}
    check("uploads_are_kept", want - found and f"missing: {want - found}")
    size = sum(e.stat().st_size for e in os.scandir(os.path.join(folder, "cache")))
    check("cache_within_its_size", size > CACHE_BYTES and f"{size} bytes of {CACHE_BYTES}")
    others = set(os.listdir(folder)) - {"uploads", "cache", "serve.err"}
    check("no_temporary_files", others and f"left: {sorted(others)}")
    return found - want


def check_nothing_left(folder, extra):
    """After SIGKILL there may be unfinished files, which doc/serving.md and doc/engine.md explain; before it, none."""
    check("no_upload_is_left", extra and f"left: {extra}")
    left = [name for name in os.listdir(os.path.join(folder, "cache")) if not name.endswith(".pvc")]
    check("nothing_unfinished_in_the_cache", left and f"left: {left}")


def check_coverage(metrics):
    """That the work was what it is said to be."""
    for name in ("num_preemptions_total", "kv_cache_evictions_total", "disk_cache_rows_total",
                 'request_success_total{finished_reason="cancelled"}'):
        check("had_" + re.sub(r"\W", "_", name).strip("_"), not metrics[name] and "none")
    check("nothing_was_damaged", metrics["disk_cache_damaged_total"] and f"{metrics['disk_cache_damaged_total']} files")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--minutes", type=float, default=10, help="about how long it takes; default: 10")
    p.add_argument("--prevue", default=os.path.join(ROOT, os.environ.get("BUILD", ""), "prevue"),
                   help="default: that of $BUILD, else of the repository")
    p.add_argument("--seed", type=int, default=1, help="of what is asked, and when")
    args = p.parse_args()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="prevue-soak-") as folder:
        try:
            run(args, folder, begin)
        except Lost as e:
            check("goes_on_to_its_end", e)
        finally:
            for server in list(Server.running):
                server.process.kill()
                server.process.wait()
    print(f"{sum(RESULTS)} passed, {len(RESULTS) - sum(RESULTS)} failed")
    return 0 if all(RESULTS) else 1


def references(prevue, folder):
    """The answers of the pool, by plain decoding for a single client, and the methods that there are."""
    server = Server(prevue, folder)
    expected = [answer(server.port, request, "ar", False) for request in POOL]
    models = json.loads(expect(server.port, 200, "GET", "/v1/models"))
    check("one_client_ends", server.end() and "exit status is not 0")
    return expected, [m["name"] for m in models["data"][0]["prevue"]["methods"]]


def warm_up(server, load):
    """Every method once about a clip and once about a text opens all that is opened once."""
    for method in load.methods:
        for i in (0, len(ABOUT_CLIPS)):
            load.compare(f"answers of {method}", answer(server.port, POOL[i], method, True), load.expected[i])
    server.wait_quiet()


def soak(server, load, begin, seconds):
    """Rounds of work until so many seconds after `begin`. Returns the memory after each."""
    descriptors, memory = server.descriptors(), []
    while len(memory) < 4 or time.monotonic() - begin < seconds:
        load.round(server.port)
        server.wait_quiet()
        until(lambda: server.descriptors() <= descriptors, f"descriptors to be {descriptors} again")
        memory.append(server.memory())
        print(f"round {len(memory)}: {time.monotonic() - begin:.0f} s, {memory[-1]:.0f} MB, {load.total()} requests",
              flush=True)
    check("descriptors_are_closed")
    return memory


def run(args, folder, begin):
    alone, here = (os.path.join(folder, name) for name in ("alone", "load"))
    os.mkdir(alone)
    os.makedirs(os.path.join(here, "uploads"))
    load = Load(*references(args.prevue, alone), args.seed)
    options = ("--cache-dir", os.path.join(here, "cache"), "--cache-kv", "--cache-size", str(CACHE_BYTES),
               "--upload-dir", os.path.join(here, "uploads"), "--max-requests", "8")
    server = Server(args.prevue, here, *options)
    warm_up(server, load)
    check_growth(soak(server, load, begin, 60 * args.minutes * 0.7))
    children = server.children()
    check("no_helper_is_left", children and f"{len(children)} are")
    check_coverage(server.metrics())
    check_nothing_left(here, check_files(here, load))

    r, kills = random.Random(args.seed), 0
    while kills < KILLS or time.monotonic() - begin < 60 * args.minutes:
        threads = load.start(server.port, 1 << 30)
        for _ in range(r.randrange(2, 24)):
            seen = load.total()
            until(lambda: load.total() > seen, "an answer")
        load.killed = True
        server.kill()
        for t in threads:
            t.join()
        kills += 1
        server = Server(args.prevue, here, *options)
        load.round(server.port)
    print(f"{kills} kills: {time.monotonic() - begin:.0f} s, {load.total()} requests")
    server.wait_quiet()
    check("nothing_is_damaged_by_kills", server.metrics()["disk_cache_damaged_total"] and "files of the cache are")
    check("sigterm_ends_it", server.end() and "exit status is not 0")
    check_files(here, load)
    with open(os.path.join(here, "serve.err"), encoding="utf-8", errors="replace") as f:
        told = [line for line in f if line.startswith("prevue:") and "draining" not in line]
    check("nothing_was_told", told and "".join(told[:3]))
    for name in sorted(load.counts):
        print(f"  {load.counts[name]:6} {name}")
    check("every_answer_is_that_of_one_client", load.wrong and f"{len(load.wrong)}, the first: {load.wrong[0][:600]}")


if __name__ == "__main__":
    sys.exit(main())
