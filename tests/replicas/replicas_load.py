"""Clients of three replicas behind a balancer. Every answer must be that of a single server, whatever
happens to the replicas; a graceful restart of all of them must not fail one request.

    replicas_load.py PREVUE ROOT haproxy|nginx

Standard library only. Prints one line for each check and the counts of each phase."""

import http.client
import itertools
import json
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid

prevue, root, balancer = sys.argv[1:4]
CLIENTS = 8
ATTEMPTS = 8
failures = []


def check(name, reason=None):
    print(f"FAIL {balancer}_{name}: {reason}" if reason else f"ok {balancer}_{name}", flush=True)
    if reason:
        failures.append(name)


class Failed(Exception):
    """An attempt without a complete, good reply."""


# ---- requests ----

def ask(content, video=None, **more):
    return {"body": {"messages": [{"role": "user", "content": content}], "max_tokens": 16, **more}, "video": video}


def about(file_id, question, frames=4):
    return [{"type": "video_url", "video_url": {"url": file_id, "num_frames": frames}},
            {"type": "text", "text": question}]


CLIPS = ["sample-16-frames", "sample-32-frames", "sample-64-frames"]
REQUESTS = [ask(about(clip, question), video=clip)
            for clip in CLIPS for question in ("Describe the video.", "What moves?")]
REQUESTS += [ask(f"Tell me about scene {i}.", temperature=i % 2, seed=i) for i in range(6)]


def send(port, method, path, body=None, headers=None):
    """One request on a connection of its own; returns (reply, the replica's name)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers or {})
        reply = connection.getresponse()
        data = reply.read()
    except (OSError, http.client.HTTPException) as e:
        raise Failed(f"{method} {path}: {type(e).__name__}: {e}") from e
    finally:
        connection.close()
    if reply.status != 200:
        raise Failed(f"{method} {path}: status {reply.status}: {data[:200]!r}")
    return data, reply.getheader("X-Served-By", "")


def answer(port, request, stream, video=None):
    """The text of an answer and who gave it."""
    video = video or request["video"]
    headers = {"Content-Type": "application/json", **({"X-Prevue-Video": video} if video else {})}
    data, served = send(port, "POST", "/v1/chat/completions", json.dumps({**request["body"], "stream": stream}), headers)
    if not stream:
        return json.loads(data)["choices"][0]["message"]["content"], served
    lines = [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]
    if not lines or lines[-1] != "[DONE]":
        raise Failed("the stream ended too early")
    pieces = [json.loads(line) for line in lines[:-1]]
    if any("error" in p for p in pieces):
        raise Failed(f"an error in the stream: {lines[-2][:200]}")
    return "".join(p["choices"][0]["delta"].get("content") or "" for p in pieces if p["choices"]), served


def upload(port, path):
    boundary = uuid.uuid4().hex
    with open(path, "rb") as f:
        clip = f.read()
    body = (f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="clip.mp4"\r\n'
            "Content-Type: video/mp4\r\n\r\n").encode() + clip + f"\r\n--{boundary}--\r\n".encode()
    data, _ = send(port, "POST", "/v1/files", body, {"Content-Type": f"multipart/form-data; boundary={boundary}"})
    return json.loads(data)["id"]


# ---- load ----

class Load:
    """Clients that ask until they are stopped, and what became of it in each phase."""

    def __init__(self, port, expected):
        self.port, self.expected = port, expected
        self.phase, self.running, self.lock = "steady", True, threading.Lock()
        self.numbers = itertools.count()
        self.counts, self.times, self.wrong, self.lost, self.reasons, self.served = {}, {}, [], [], {}, {}
        self.threads = [threading.Thread(target=self.run, args=(self.question,)) for _ in range(CLIENTS)]
        self.threads.append(threading.Thread(target=self.run, args=(self.uploading,)))
        for t in self.threads:
            t.start()

    def add(self, name, n=1):
        with self.lock:
            phase = self.counts.setdefault(self.phase, {})
            phase[name] = phase.get(name, 0) + n

    def attempt(self, run):
        """A request, repeated while it fails."""
        for _ in range(ATTEMPTS):
            try:
                begun = time.monotonic()
                result = run()
                with self.lock:
                    self.times.setdefault(self.phase, []).append(time.monotonic() - begun)
                self.add("answered")
                return result
            except Failed as e:
                self.add("repeated")
                with self.lock:
                    self.reasons.setdefault(self.phase, []).append(str(e))
                time.sleep(0.2)
        self.lost.append(self.phase)
        return None

    def run(self, work):
        try:
            while self.running:
                work()
        except Exception as e:  # pylint: disable=broad-except
            self.wrong.append(f"a client ended with {type(e).__name__}: {e}")

    def question(self):
        n = next(self.numbers)
        i, stream, phase = n % len(REQUESTS), n // len(REQUESTS) % 2 == 0, self.phase
        result = self.attempt(lambda: answer(self.port, REQUESTS[i], stream))
        if result and result[0] != self.expected[i]:
            self.wrong.append(f"request {i} in phase {phase}: {result[0]!r}")
        if result and phase == "steady" and REQUESTS[i]["video"]:
            with self.lock:
                self.served.setdefault(REQUESTS[i]["video"], set()).add(result[1])

    def uploading(self):
        """A file is given to one replica and asked about at any other."""
        file_id = self.attempt(lambda: upload(self.port, f"{root}/samples/16-frames.mp4"))
        if not file_id:
            return
        for _ in range(3):
            request = ask(about(file_id, "Describe the video."))
            result = self.attempt(lambda: answer(self.port, request, True, video=str(random.random())))
            if result and result[0] != self.expected[0]:
                self.wrong.append(f"an uploaded clip in phase {self.phase}: {result[0]!r}")
        self.attempt(lambda: send(self.port, "DELETE", f"/v1/files/{file_id}"))

    def wait_answers(self, n, seconds=30):
        """Until the phase has so many answers; a slow machine has fewer."""
        until = time.monotonic() + seconds
        while self.counts.get(self.phase, {}).get("answered", 0) < n and time.monotonic() < until:
            time.sleep(0.1)

    def stop(self):
        self.running = False
        for t in self.threads:
            t.join()


# ---- processes ----

def reader(stream):
    lines = queue.Queue()

    def read():
        for line in stream:
            lines.put(line)
        lines.put("")
    threading.Thread(target=read, daemon=True).start()
    return lines


def wait_for(lines, words, seconds=60):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            line = lines.get(timeout=1)
        except queue.Empty:
            continue
        if words in line:
            return line
        if not line:
            break
    raise SystemExit(f"FAIL {balancer}: no line with '{words}' came in {seconds} s")


def expected_texts(options):
    server = subprocess.Popen([prevue, "serve", "--port", "0", *options], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.DEVNULL)
    port = int(wait_for(reader(server.stdout), " at http").rsplit(":", 1)[1])
    texts = [answer(port, r, False)[0] for r in REQUESTS]
    server.terminate()
    server.wait()
    return texts


def free_ports():
    """The first of four free ports in a row."""
    while True:
        first = random.randrange(20000, 30000)
        try:
            for port in range(first, first + 4):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue


def replica(directory, number):
    with open(f"{directory}/{number}.pid", encoding="ascii") as f:
        return int(f.read())


def alive(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


def kill_one(load, directory, lines):
    load.phase = "kill"
    time.sleep(0.5)
    os.kill(replica(directory, 2), signal.SIGKILL)
    wait_for(lines, "started again")
    load.wait_answers(100)


def report(load):
    for phase, counts in load.counts.items():
        times = sorted(load.times.get(phase, [0]))
        print(f"   {balancer} {phase}: {counts.get('answered', 0)} answered, {counts.get('repeated', 0)} repeated; "
              f"seconds p50 {times[len(times) // 2]:.3f}, p99 {times[len(times) * 99 // 100]:.3f}, most {times[-1]:.3f}")
        for reason in load.reasons.get(phase, [])[:8]:
            print(f"      {reason}")


def judge(load):
    served = load.served
    check("all_answered", f"{len(load.lost)} requests were never answered: {load.lost[:5]}" if load.lost else None)
    check("same_texts", f"{len(load.wrong)} differ; first {load.wrong[0]}" if load.wrong else None)
    check("affinity", None if len(served) == len(CLIPS) and all(len(s) == 1 for s in served.values())
          else f"videos and the replicas that served them: {served}")
    for phase in ("steady", "rolling"):
        counts = load.counts.get(phase, {})
        check(f"{phase}_without_failure", f"{counts}" if counts.get("repeated") or not counts.get("answered") else None)
    check("kill_answered", None if load.counts.get("kill", {}).get("answered") else "nothing was asked meanwhile")


def main():
    options = ["-m", f"{root}/models/nano.gguf", "--samples", f"{root}/samples", "-t", "1"]
    expected = expected_texts(options)
    with tempfile.TemporaryDirectory(prefix="prevue-replicas-") as directory:
        port = free_ports()
        runner = subprocess.Popen([f"{root}/examples/replicas/run.sh", balancer, *options], stdout=subprocess.PIPE,
                                  text=True, env={**os.environ, "PREVUE": prevue, "PORT": str(port), "DIR": directory})
        lines = reader(runner.stdout)
        load = None
        try:
            wait_for(lines, "serving at")
            time.sleep(1.5)
            load = Load(port, expected)
            load.wait_answers(100)
            kill_one(load, directory, lines)
            load.phase = "between"
            time.sleep(3)
            load.phase = "rolling"
            runner.send_signal(signal.SIGHUP)
            wait_for(lines, "all replicas are restarted", 120)
        finally:
            if load:
                load.stop()
            runner.terminate()
            ended = runner.wait(90)
        judge(load)
        report(load)
        left = [n for n in (1, 2, 3) if alive(replica(directory, n))]
        check("ends_cleanly", f"exit status {ended}, replicas left: {left}" if ended or left else None)
    return 1 if failures else 0


sys.exit(main())
