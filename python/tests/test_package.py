"""The package with the small models of the repository: answers, streams, frames, errors, lifetimes."""

import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import weakref

import prevue
from prevue import _handle, _library

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
NANO = os.path.join(ROOT, "models", "nano.gguf")
CLIP = prevue.Video(os.path.join(ROOT, "samples", "16-frames.mp4"), frames=4)
LONG = {"max_tokens": 300, "method": "ar"}

model = None
engine = None


def setUpModule():
    global model, engine
    model = prevue.Model(NANO, head=os.path.join(ROOT, "models", "nano-head.gguf"))
    engine = prevue.Engine(model, max_context=4096, kv_tokens=16384)


def tearDownModule():
    engine.close()
    model.close()


def run(test, code):
    """Python code in a process of its own, which may crash."""
    # A shell that starts a job in the background makes it ignore Ctrl-C, and so all that it starts.
    begin = "import prevue, sys, os, gc, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    code = begin + "sys.argv[1:] = %r\n" % [NANO, CLIP.source] + code
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path), PYTHONFAULTHANDLER="1", PYTHONWARNINGS="ignore")
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True
    )
    test.addCleanup(end, process)
    return process


def end(process):
    """Whatever became of it, and of its children."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        pass
    process.wait()
    process.stdout.close()
    process.stderr.close()


class Models(unittest.TestCase):
    def test_facts(self):
        self.assertTrue(model.has_vision and model.has_head and model.has_tokenizer and not model.has_audio)
        self.assertEqual(model.vocab_size, 3072)
        self.assertEqual(model.info()["vocab"], model.vocab_size)
        self.assertEqual(prevue.default_model(), NANO)
        self.assertEqual(prevue.library_version(), prevue.__version__)
        self.assertIn("specvlm", prevue.methods())
        self.assertIn("full", prevue.views())

    def test_tokens(self):
        ids = model.tokenize("A duck comes in.")
        self.assertEqual(model.detokenize(ids), "A duck comes in.")
        with self.assertRaises(prevue.ArgumentError):
            model.token_bytes(1 << 20)

    def test_errors(self):
        with self.assertRaisesRegex(OSError, "there-is-none.gguf") as caught:
            prevue.Model("there-is-none.gguf")
        self.assertIsInstance(caught.exception, prevue.FileError)
        with self.assertRaisesRegex(prevue.FormatError, "Makefile"):
            prevue.Model(os.path.join(ROOT, "Makefile"))
        with self.assertRaisesRegex(prevue.ArgumentError, "no-such-method"):
            prevue.Method("no-such-method")
        with self.assertRaisesRegex(prevue.ArgumentError, "Method has no shpae"):
            prevue.Method("specvlm", shpae=1)
        with self.assertRaisesRegex(prevue.FileError, "no-such-clip.mp4"):
            engine.describe("no-such-clip.mp4")
        with self.assertRaisesRegex(ValueError, "frame_rule"):
            engine.describe(prevue.Video(CLIP.source, frame_rule="none"))
        with self.assertRaisesRegex(prevue.PrevueError, "the video in memory"):
            engine.describe(b"not a video at all")
        with self.assertRaises(TypeError):
            engine.describe(CLIP, max_token=3)


class Answers(unittest.TestCase):
    def test_describe_and_methods(self):
        plain = engine.describe(CLIP, max_tokens=24, method="ar")
        self.assertEqual(len(plain.ids), 24)
        self.assertEqual((plain.finish, plain.stats.tokens, plain.stats.frames), ("length", 24, 4))
        self.assertEqual(model.detokenize(plain.ids), plain.text)
        for method in (None, "sparrow", prevue.Method("ngram", window=3)):
            drafted = engine.describe(CLIP, max_tokens=24, method=method)
            self.assertEqual((drafted.ids, drafted.text), (plain.ids, plain.text), method)
        self.assertGreater(engine.describe(CLIP, max_tokens=24, method="sparrow").stats.tokens_per_pass, 1.5)
        command = os.environ.get("PREVUE")
        if command:
            said = subprocess.run(
                [command, "describe", CLIP.source, "-m", NANO, "--frames", "4", "-n", "24"], stdout=subprocess.PIPE
            ).stdout.decode()
            self.assertEqual(said.strip(), plain.text.strip())

    def test_stream(self):
        whole = engine.describe(CLIP, max_tokens=16)
        with engine.stream(CLIP, max_tokens=16) as stream:
            pieces = list(stream)
            self.assertGreater(len(pieces), 8)
            self.assertEqual("".join(pieces), whole.text)
            self.assertEqual(stream.answer().ids, whole.ids)
            view = stream.view()
            self.assertEqual(view.visible.shape, (view.frames, view.height, view.width))
        self.assertEqual(list(engine.stream(CLIP, max_tokens=2))[:2], pieces[:2])

    def test_many_at_once(self):
        questions = ["Describe the video.", "How many scenes does the video have?", "What comes first?"]
        alone = [engine.describe(CLIP, q, max_tokens=12).ids for q in questions]
        streams = [engine.stream(CLIP, q, max_tokens=12) for q in questions]
        self.assertEqual([s.answer().ids for s in streams], alone)

    def test_stop_and_logprobs(self):
        word = engine.describe(CLIP, max_tokens=12).text.split()[4]
        answer = engine.describe(CLIP, max_tokens=12, stop=["no such words", word], logprobs=2)
        self.assertEqual((answer.finish, answer.stopped_by), ("stop_string", word))
        self.assertNotIn(word, answer.text)
        self.assertEqual(len(answer.tokens[0].top), 2)
        self.assertAlmostEqual(answer.tokens[0].logprob, answer.tokens[0].top[0][1])
        self.assertLessEqual(answer.tokens[0].logprob, 0)

    def test_progress(self):
        seen = []
        clip = prevue.Video(CLIP.source, frames=3)  # of CLIP the engine has the pixels already
        engine.describe(clip, "Which colours are there?", max_tokens=2, on_progress=lambda *p: seen.append(p))
        self.assertIn(("video", 3, 3), seen)

    def test_progress_that_fails(self):
        def fail(*_):
            raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            engine.describe(CLIP, max_tokens=2, on_progress=fail)

    def test_cancel(self):
        stream = engine.stream(CLIP, **LONG)
        first = next(stream)
        other = threading.Thread(target=stream.cancel)
        other.start()
        other.join()
        rest = list(stream)
        answer = stream.answer()
        self.assertEqual(answer.finish, "cancelled")
        self.assertEqual(answer.text, first + "".join(rest))
        stream.close()
        with self.assertRaisesRegex(prevue.ArgumentError, "closed"):
            stream.cancel()

    def test_messages(self):
        with engine.submit(
            [
                {"role": "user", "content": [{"video": CLIP}, {"text": "Describe the video."}]},
                {"role": "assistant", "content": "There is a mushroom."},
                {"role": "user", "content": "How many scenes does the video have?"},
            ],
            max_tokens=8,
        ) as stream:
            self.assertTrue(stream.answer().text)

    def test_gil_is_released(self):
        stream = engine.stream(CLIP, **LONG)
        handle = stream._use()
        state = []

        def wait():
            state.append("waiting")
            try:
                _library.library().call("pv_request_wait", handle.pointer)
            except prevue.CancelledError:
                state.append("over")

        thread = threading.Thread(target=wait)
        thread.start()
        # With the GIL held by the wait, nothing here would run before the answer's end, and the cancellation would come
        # too late.
        while not state:
            time.sleep(0.001)
        stream.cancel()
        thread.join(60)
        self.assertEqual(state, ["waiting", "over"])
        self.assertEqual(stream.answer().finish, "cancelled")


class OwnFrames(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.frames = prevue.frames(CLIP)
        cls.shape = (len(cls.frames), cls.frames[0].height, cls.frames[0].width, 3)
        cls.bytes = b"".join(f.rgb for f in cls.frames)
        cls.text = engine.describe(CLIP, max_tokens=24).text

    def test_frames_out(self):
        self.assertEqual([f.index for f in self.frames], [0, 5, 10, 15])
        self.assertEqual(self.frames[0].pixels.shape, (256, 256, 3))
        self.assertEqual([f.time for f in prevue.frames(CLIP, model)], [f.time for f in self.frames])
        self.assertEqual(len(prevue.sound(CLIP)), 0)

    def test_buffers(self):
        for raw in (self.bytes, bytearray(self.bytes)):
            frames = prevue.Frames(memoryview(raw).cast("B", self.shape), 2.0)
            self.assertEqual(engine.describe(frames, max_tokens=24).text, self.text)
        picture = prevue.Frames(self.frames[0].pixels)
        self.assertTrue(engine.describe(picture, "Which objects are there?", max_tokens=4).text)

    def test_bytes_of_a_file(self):
        with open(CLIP.source, "rb") as f:
            data = f.read()
        self.assertEqual(engine.describe(prevue.Video(data, frames=4), max_tokens=24).text, self.text)

    def test_wrong_arrays(self):
        for array, sentence in (
            (b"12345", "shape must be"),
            (memoryview(self.bytes[:192]).cast("B", (1, 8, 6, 4)), "shape must be"),
            (memoryview(bytes(192)).cast("f", (1, 4, 4, 3)), "elements must be"),
            ([1, 2, 3], "buffer protocol|elements must be|shape must be"),
        ):
            with self.assertRaisesRegex(prevue.ArgumentError, sentence):
                engine.describe(prevue.Frames(array, 1.0))

    def test_numpy(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        array = numpy.frombuffer(self.bytes, numpy.uint8).reshape(self.shape)
        self.assertEqual(engine.describe(prevue.Frames(array, 2.0), max_tokens=24).text, self.text)
        # Channels the other way round in memory, as OpenCV has them: not contiguous, and read right.
        turned = numpy.ascontiguousarray(array[..., ::-1])[..., ::-1]
        self.assertEqual(engine.describe(prevue.Frames(turned, 2.0), max_tokens=24).text, self.text)
        with engine.session() as session:
            session.add_frames(array, 2.0)
            self.assertEqual(session.ask("Describe the video.", max_tokens=24).text, self.text)
        self.assertEqual(numpy.asarray(self.frames[0].pixels).shape, (256, 256, 3))


class Sessions(unittest.TestCase):
    def test_conversation(self):
        with engine.session() as session:
            info = session.add_video(CLIP)
            self.assertEqual((info.width, info.frames, info.total_frames), (256, 4, 16))
            first = session.ask("Describe the video.", max_tokens=24)
            self.assertEqual(first.text, engine.describe(CLIP, max_tokens=24).text)
            second = session.ask("How many scenes does the video have?", max_tokens=8)
            self.assertGreater(second.stats.reused_tokens, 100)
            session.reset()
            session.add_video(CLIP)
            self.assertEqual(session.ask("Describe the video.", max_tokens=24).ids, first.ids)

    def test_cancel_and_busy(self):
        session = engine.session()
        session.add_video(CLIP)
        stream = session.stream("Describe the video.", **LONG)
        next(stream)
        with self.assertRaisesRegex(prevue.ArgumentError, "still answering"):
            session.ask("And?")
        stream.cancel()
        self.assertEqual(stream.answer().finish, "cancelled")
        self.assertTrue(session.ask("How many scenes does the video have?", max_tokens=4).text)

    def test_errors(self):
        with engine.session() as session:
            with self.assertRaisesRegex(prevue.FileError, "no-such-clip"):
                session.add_video("no-such-clip.mp4")
            with self.assertRaises(prevue.ArgumentError):
                session.add_text("nobody", "x")


class Lifetimes(unittest.TestCase):
    def test_closed(self):
        one = prevue.Model(NANO)
        one.close()
        one.close()
        with self.assertRaisesRegex(prevue.ArgumentError, "this model is closed"):
            prevue.Engine(one)

    def test_any_order(self):
        """Dropped in every order, in the middle of an answer: no crash, and everything is closed in the end."""
        closed = []
        for order in itertools.permutations(("model", "engine", "stream", "session")):
            own = {"model": prevue.Model(NANO, threads=1)}
            own["engine"] = prevue.Engine(own["model"], max_context=2048)
            own["session"] = own["engine"].session()
            own["stream"] = own["engine"].stream(None, "What is a duck?", max_tokens=300)
            for thing in list(own.values()):
                weakref.finalize(thing._use(), closed.append, 1)
            del thing
            for name in order:
                del own[name]
        gc.collect()
        self.assertEqual(len(closed), 4 * 24)

    def test_exit_in_a_stream(self):
        code = """
engine = prevue.Engine(prevue.Model(sys.argv[1]), max_context=4096)
stream = engine.stream(prevue.Video(sys.argv[2], frames=4), max_tokens=400)
session = engine.session()
session.add_video(prevue.Video(sys.argv[2], frames=4))
other = session.stream("Describe the video.", max_tokens=400)
print(next(stream), next(other))
engine.loop = engine  # a cycle: only the exit closes it
"""
        process = run(self, code)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err), (0, b""))
        self.assertIn(b"This", out)

    def test_fork(self):
        code = """
model = prevue.Model(sys.argv[1])
engine = prevue.Engine(model, max_context=4096)
stream = engine.stream(None, "What is a duck?", max_tokens=300)
pid = os.fork()
if pid == 0:
    del stream, engine, model
    gc.collect()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), len(stream.answer().ids) > 0)
"""
        process = run(self, code)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, err, out), (0, b"", b"7 True\n"))

    def test_ctrl_c(self):
        for ask in ("engine.describe(clip, max_tokens=4000, method='ar')", "session.ask('x', max_tokens=4000, method='ar')"):
            code = """
engine = prevue.Engine(prevue.Model(sys.argv[1]), max_context=8192)
clip = prevue.Video(sys.argv[2], frames=4)
session = engine.session()
session.add_video(clip)
print("ready", flush=True)
try:
    for _ in range(100): %s
except KeyboardInterrupt:
    print("stopped")
""" % ask
            process = run(self, code)
            self.assertEqual(process.stdout.readline(), b"ready\n")
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out, err), (0, b"stopped\n", b""))

    def test_ctrl_c_while_reading(self):
        """The exception is neither lost nor printed. (While an object is being closed it can still be: not tested.)"""
        code = """
engine = prevue.Engine(prevue.Model(sys.argv[1]), max_context=8192)
clip = prevue.Video(sys.argv[2], frames=4)
session = engine.session()
for read in (
    lambda: engine.describe(clip, max_tokens=1), lambda: prevue.frames(clip),
    lambda: (session.reset(), session.add_video(clip)),
) * 5:
    try:
        print("ready", flush=True)
        while True: read()
    except KeyboardInterrupt:
        print("stopped", flush=True)
"""
        process = run(self, code)
        limit = threading.Timer(120, process.kill)  # readline waits for ever
        limit.start()
        self.addCleanup(limit.cancel)
        for i in range(15):
            self.assertEqual(process.stdout.readline(), b"ready\n", i)
            time.sleep(0.02 + 0.006 * i)
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.stdout.readline(), b"stopped\n", i)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out, err), (0, b"", b""))

    def test_closing_in_a_callback(self):
        """What the garbage collector closes on the engine's own thread is closed elsewhere: it would wait for itself."""
        held = [engine.stream(CLIP, **LONG)]
        next(held[0])

        def callback():
            _handle.engine_thread.inside = True
            held.clear()

        thread = threading.Thread(target=callback)
        thread.start()
        thread.join(20)
        self.assertFalse(thread.is_alive())
        self.assertIn("prevue-closer", [t.name for t in threading.enumerate()])
        end = time.time() + 20
        while engine.stats().running and time.time() < end:
            time.sleep(0.01)
        self.assertEqual(engine.stats().running, 0)

    def test_no_leak(self):
        def resident():
            gc.collect()
            with open("/proc/self/statm") as f:
                return int(f.read().split()[1]) * os.sysconf("SC_PAGESIZE")

        def turn():
            for _ in range(10):
                next(engine.stream(prevue.Frames(bytes_of_frames, 2.0), "Which objects?", max_tokens=50))

        bytes_of_frames = memoryview(bytearray(4 * 256 * 256 * 3)).cast("B", (4, 256, 256, 3))
        turn()
        before = resident()
        turn()
        turn()
        # Each has 786 KB of pixels, and the engine its own copy of them: 30 MB if 20 of them leaked.
        self.assertLess(resident() - before, 10 << 20)


# Makes the system refuse filters of system calls, to this process and its children: prctl(PR_SET_SECCOMP) and seccomp
# fail with EINVAL, as on a kernel without them.
NO_FILTERS = """
import ctypes, platform, struct
numbers = {"x86_64": (157, 317), "aarch64": (167, 277)}[platform.machine()]
rows = [
    (0x20, 0, 0, 0), (0x15, 5, 0, numbers[1]), (0x15, 0, 3, numbers[0]),
    (0x20, 0, 0, 16), (0x15, 2, 0, 22), (0x06, 0, 0, 0x7fff0000), (0x06, 0, 0, 0x7fff0000), (0x06, 0, 0, 0x00050016),
]
rules = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *row) for row in rows))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rows), ctypes.addressof(rules)))
libc = ctypes.CDLL(None, use_errno=True)
filtered = libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
"""


class Sandbox(unittest.TestCase):
    def run_without(self, code):
        """Python code where the system has no sandbox: its output."""
        process = run(self, NO_FILTERS + "import warnings\nwarnings.simplefilter('always')\n" + code)
        out, err = process.communicate(timeout=60)
        if b"no filter" in out:
            self.skipTest("this system filters no calls")
        self.assertEqual(process.returncode, 0, err)
        return out.decode(), err.decode()

    def test_warning(self):
        """One warning, in the line of the program, however many files are decoded; none where it was asked for."""
        code = """
if not filtered: print("no filter"), sys.exit()
clip = prevue.Video(sys.argv[2], frames=2)
print(len(prevue.frames(prevue.Video(sys.argv[2], frames=2, sandbox="off"))))
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for _ in range(3): prevue.frames(clip)
    engine = prevue.Engine(prevue.Model(sys.argv[1]), max_context=2048)
    engine.describe(clip, max_tokens=1)
    for w in said: print(w.category.__name__, w.filename, w.message)
try:
    prevue.frames(prevue.Video(sys.argv[2], frames=2, sandbox="on"))
except prevue.PrevueError as e:
    print(type(e).__name__, e)
"""
        out, _ = self.run_without(code)
        self.assertRegex(
            out, r"\A2\nRuntimeWarning <string> decoding without a sandbox: system calls cannot be filtered here: .*\n"
            r"UnsupportedError .*system calls cannot be filtered here.*\n\Z"
        )

    def test_warning_as_error(self):
        """Who makes errors of warnings gets one, and nothing is decoded."""
        code = """
if not filtered: print("no filter"), sys.exit()
warnings.simplefilter("error")
try:
    print(len(prevue.frames(prevue.Video(sys.argv[2], frames=2))))
except RuntimeWarning as e:
    print("raised", e)
"""
        out, _ = self.run_without(code)
        self.assertRegex(out, r"\Araised decoding without a sandbox: .*\n\Z")


class Finding(unittest.TestCase):
    def test_library_is_named(self):
        code = "import os; os.environ['PREVUE_LIBRARY'] = '/no/such.so'\nprevue.library_version()"
        process = run(self, code)
        _, err = process.communicate(timeout=60)
        self.assertIn(b"PREVUE_LIBRARY names /no/such.so, which cannot be loaded", err)
        code = "import os; os.environ['PREVUE_LIBRARY'] = os.environ['HERE']\nprint(prevue.library_path())"
        os.environ["HERE"] = prevue.library_path()
        process = run(self, code)
        out, _ = process.communicate(timeout=60)
        self.assertEqual(out.decode().strip(), prevue.library_path())
