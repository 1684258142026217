"""A small internet for tests/server/fetch.case.sh: names, public and private servers, all on the
loopback device of a network namespace, where `prevue serve --allow-domain` fetches media.

    unshare -rnm python3 fetch_world.py PREVUE MODEL CLIP

Prints NAME|REASON for each test; without a reason it has passed. Every row asks for one URL; the
private servers must not get a connection, whatever it leads to. Standard library only."""

import http.client
import http.server
import json
import os
import re
import resource
import select
import socket
import struct
import subprocess
import sys
import threading
import urllib.parse

prevue, model, clip_path = sys.argv[1:4]
PUBLIC, PRIVATE = "8.8.4.4", "10.1.2.3"  # addresses of this namespace alone
LIMIT = 1 << 20
brief = bool(os.environ.get("TEST_LEFT_OUT"))
with open(clip_path, "rb") as clip_file:
    clip = clip_file.read()

# Names: what the first question for an address is answered with, what the next one, and so on; the
# last answer stays.
NAMES = {
    "good.example": [[PUBLIC]],
    "other.example": [[PUBLIC]],
    "inside.example": [[PRIVATE]],
    "both.example": [[PUBLIC, "127.0.0.1"]],
    "moves.example": [[PUBLIC], ["127.0.0.1"]],
    "moves-later.example": [[PUBLIC], ["127.0.0.1"]],
    "six.example": [["::1"]],
    "mapped.example": [["::ffff:127.0.0.1"]],
}
ALLOWED = ["good.example", "inside.example", "both.example:8082", "moves.example", "moves-later.example",
           "moves-later.example:8081", "six.example", "mapped.example", "127.0.0.1", PRIVATE, "[::1]", "none.example",
           "good.example:8083", PUBLIC]


# ---- names ----

def reply_to(question):
    """A DNS reply: the addresses of the name, of the kind asked for."""
    end = question.index(0, 12)
    labels, at = [], 12
    while at < end:
        labels.append(question[at + 1:at + 1 + question[at]].decode())
        at += 1 + question[at]
    kind = struct.unpack(">H", question[end + 1:end + 3])[0]
    name, family = ".".join(labels).lower(), {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
    turns, records = NAMES.get(name), []
    if turns and family:
        for address in turns[0]:
            if (":" in address) == (family == socket.AF_INET6):
                data = socket.inet_pton(family, address)
                records.append(struct.pack(">HHHIH", 0xc00c, kind, 1, 0, len(data)) + data)
        if records and len(turns) > 1:
            turns.pop(0)
    flags = 0x8580 if turns else 0x8583  # no such name
    return question[:2] + struct.pack(">HHHHH", flags, 1, len(records), 0, 0) + question[12:end + 5] + b"".join(records)


def serve_names(s):
    while True:
        question, client = s.recvfrom(512)
        s.sendto(reply_to(question), client)


# ---- servers ----

class Public(http.server.BaseHTTPRequestHandler):
    """What anybody may reach. It sends its clients wherever their URL says."""
    requests = 0
    endless_sent = 0
    drip_begun, drip_left = threading.Event(), threading.Event()

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        pass

    def head(self, status, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def do_GET(self):
        Public.requests += 1
        what, _, rest = self.path[1:].partition("?")
        getattr(self, f"reply_{what}")(urllib.parse.unquote(rest))

    def reply_clip(self, _):
        self.head(200, Content_Length=len(clip))
        self.wfile.write(clip)

    def reply_to(self, url):
        self.head(302, Location=url, Content_Length=0)

    def reply_turns(self, n):
        self.reply_to(f"/turns?{int(n) - 1}" if int(n) > 1 else "/clip")

    def reply_long(self, _):
        self.head(200, Content_Length=LIMIT + 1)

    def reply_endless(self, _):
        self.head(200)
        try:
            while True:
                self.wfile.write(bytes(1 << 16))
                Public.endless_sent += 1 << 16
        except OSError:
            pass

    def reply_status(self, status):
        self.head(int(status), Content_Length=0)

    def reply_nothing(self, _):
        pass  # closes the connection

    def reply_cut(self, _):
        self.head(200, Content_Length=len(clip))
        self.wfile.write(clip[:1000])

    def reply_silence(self, _):
        self.head(200, Content_Length=len(clip))
        self.connection.recv(1)  # until the client leaves

    def reply_drip(self, _):
        """As slow as it may be."""
        self.head(200, Content_Length=LIMIT)
        Public.drip_begun.set()
        try:
            while not select.select([self.connection], [], [], 0.25)[0]:
                self.wfile.write(bytes(1 << 10))
        except OSError:
            pass
        Public.drip_left.set()


class Trap(http.server.ThreadingHTTPServer):
    """A private server: it counts its connections, and gives all of them the clip."""
    connections = 0

    def get_request(self):
        Trap.connections += 1
        return super().get_request()


class Trap6(Trap):
    address_family = socket.AF_INET6


def start(kind, address, port):
    server = kind((address, port), Public)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def build_world():
    for command in ("link set lo up", f"addr add {PUBLIC}/32 dev lo", f"addr add {PRIVATE}/32 dev lo"):
        subprocess.run(["ip", *command.split()], check=True)
    for path, text in (("resolv.conf", "nameserver 127.0.0.1\n"), ("nsswitch.conf", "hosts: dns\n")):
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        subprocess.run(["mount", "--bind", path, f"/etc/{path}"], check=True)
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 53))
    threading.Thread(target=serve_names, args=(names,), daemon=True).start()
    for port in (80, 8081):
        start(http.server.ThreadingHTTPServer, PUBLIC, port)
    for address in ("127.0.0.1", PRIVATE):
        for port in (80, 8081, 8082):
            start(Trap, address, port)
    start(Trap6, "::1", 80)


# ---- tests ----

GOOD, NOT_PUBLIC = '"finish_reason"', "leads to an address that is not public"
ROWS = [  # name, URL or what good.example redirects to, status, pattern
    ("plain", "http://good.example/clip", 200, GOOD),
    ("three_turns", "http://good.example/turns?3", 200, GOOD),
    ("redirect_too_often", "http://good.example/turns?4", 400, "redirected more than 3 times"),
    ("name_of_private", "http://inside.example/clip", 400, NOT_PUBLIC),
    ("name_of_loopback_6", "http://six.example/clip", 400, NOT_PUBLIC),
    ("name_of_mapped", "http://mapped.example/clip", 400, NOT_PUBLIC),
    ("name_of_both", "http://both.example:8082/clip", 400, NOT_PUBLIC),
    ("rebound_first", "http://moves.example/clip", 200, GOOD),
    ("rebound_then", "http://moves.example/clip", 400, NOT_PUBLIC),
    ("rebound_by_redirect", "http://moves-later.example/to?http://moves-later.example:8081/clip", 400, NOT_PUBLIC),
    ("redirect_private", "> http://127.0.0.1/clip", 400, NOT_PUBLIC),
    ("redirect_private_10", f"> http://{PRIVATE}/clip", 400, NOT_PUBLIC),
    ("redirect_private_6", "> http://[::1]/clip", 400, NOT_PUBLIC),
    ("redirect_private_name", "> http://inside.example/clip", 400, NOT_PUBLIC),
    ("redirect_private_number", "> http://2130706433/clip", 400, NOT_PUBLIC),
    ("redirect_user", "> http://good.example@127.0.0.1/clip", 400, "not an http.s. URL|are not allowed here"),
    ("redirect_host", "> http://other.example/clip", 400, "other.example, port 80, are not allowed here"),
    ("redirect_host_alone", "> //other.example/clip", 400, "other.example, port 80, are not allowed here"),
    ("redirect_port", "> http://good.example:8081/clip", 400, "good.example, port 8081, are not allowed here"),
    ("redirect_file", "> file:///etc/passwd", 400, "not an http.s. URL"),
    ("redirect_gopher", "> gopher://127.0.0.1:80/_GET", 400, "not an http.s. URL"),
    ("redirect_ftp", "> ftp://127.0.0.1:80/clip", 400, "not an http.s. URL"),
    ("no_host", "http://none.example/clip", 400, "cannot be fetched: no address of its host was found"),
    ("no_connection", "http://good.example:8083/clip", 400, "cannot be fetched: its server takes no connection"),
    ("reply_404", "http://good.example/status?404", 400, "cannot be fetched: its server answers with status 404"),
    ("reply_500_of_redirect", "> /status?500", 400, "cannot be fetched: its server answers with status 500"),
    ("reply_none", "http://good.example/nothing", 400, "its server closed the connection before the end"),
    ("reply_cut", "http://good.example/cut", 400, "its server closed the connection before the end"),
    ("redirect_secret", "> ftp://inside.example/secret", 400, "redirected to what is not an http.s. URL"),
    ("reply_too_long", "http://good.example/long", 400, f"longer than {LIMIT} bytes"),
    ("reply_without_end", "http://good.example/endless", 400, f"longer than {LIMIT} bytes"),
]


def report(name, reason):
    print(f"{name}|{' '.join(reason.split())}", flush=True)


def post(port, url, frames=2):
    """A question about the URL: a connection on which it is asked."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    content = [{"type": "video_url", "video_url": {"url": url, "num_frames": frames}}]
    body = {"max_tokens": 1, "messages": [{"role": "user", "content": content}]}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    return connection


def judge(port, url, status, pattern, frames=2):
    Trap.connections = 0
    reply = post(port, url, frames).getresponse()
    text = reply.read().decode()
    if Trap.connections:
        return f"a private server got {Trap.connections} connections"
    if reply.status != status or not re.search(pattern, text):
        return f"{reply.status} instead of {status} and '{pattern}': {text[:300]}"
    return ""


def no_descriptors(server, port):
    """Descriptors that this process lacks for now are no fault of the URL."""
    limits = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    frames = 2
    for spare in (1, 2, 3, 5):  # of which the connection takes one
        used = max(int(fd) for fd in os.listdir(f"/proc/{server.pid}/fd")) + 1
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (used + spare, limits[1]))
        for name, host in (("name", "good.example"), ("address", PUBLIC)):
            # With some of them the URL is fetched, but then the helper cannot be started, which a number of
            # frames that was not asked for before needs.
            frames += 1
            report(f"descriptors_{spare}_{name}", judge(
                port, f"http://{host}/clip", 503, "cannot be fetched now: |media helper|to share with", frames))
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, limits)
    report("descriptors_again", judge(port, "http://good.example/clip", 200, GOOD))


def slow_reply(port):
    """The server stops fetching when its own client has left."""
    connection = post(port, "http://good.example/drip")
    begun = Public.drip_begun.wait(20)
    connection.close()
    report("slow_reply_left", "" if begun and Public.drip_left.wait(20) else "it was still fetched")
    if not brief:  # takes ten seconds
        report("slow_reply", judge(port, "http://good.example/silence", 400, "its server took too long"))


def main():
    build_world()
    options = ["--access-log", "access.log", "--limit-video-bytes", str(LIMIT)]
    for domain in ALLOWED:
        options += ["--allow-domain", domain]
    # A proxy of the environment is not used: this one is a private server.
    with open("serve.err", "w", encoding="ascii") as errors:
        server = subprocess.Popen([prevue, "serve", "-m", model, "--port", "0", *options], stdout=subprocess.PIPE,
                                  stderr=errors, text=True, env={**os.environ, "http_proxy": "http://127.0.0.1:80"})
    try:
        line = next((line for line in server.stdout if " at http" in line), None)
        if not line:
            report("server", "the server did not start")
            return
        port = int(line.rsplit(":", 1)[1])
        for name, url, status, pattern in ROWS:
            if url.startswith("> "):
                url = "http://good.example/to?" + urllib.parse.quote(url[2:], safe="")
            report(name, judge(port, url, status, pattern))
        sent = Public.endless_sent
        report("reply_without_end_sent", "" if sent < 32 * LIMIT else f"{sent} bytes were sent")
        slow_reply(port)
        no_descriptors(server, port)
    finally:
        server.kill()
        server.wait()


main()
