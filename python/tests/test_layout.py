"""The generated layout against the header: as text, and as a C compiler sees it."""

import ctypes
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

from prevue import _abi, _engine, _media, _stats

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Layout(unittest.TestCase):
    def test_generated_file_is_current(self):
        done = subprocess.run(
            [sys.executable, os.path.join(ROOT, "python", "make_abi.py"), "--check"], stderr=subprocess.PIPE
        )
        self.assertEqual(done.returncode, 0, done.stderr.decode())

    def test_compiler_agrees(self):
        """Size, and offset and size of every field, and every constant."""
        lines = ["#include <prevue/prevue.h>", "#include <stdio.h>", "int main(void) {"]
        ours = []
        for struct in _abi.STRUCTS:
            name = struct.__name__
            lines.append('printf("%s %%zu\\n", sizeof(struct %s));' % (name, name))
            ours.append("%s %d" % (name, ctypes.sizeof(struct)))
            for field in struct._fields_:
                at = getattr(struct, field[0])
                lines.append(
                    'printf("%s.%s %%zu %%zu\\n", offsetof(struct %s, %s), sizeof((struct %s *)0)->%s);'
                    % (name, field[0], name, field[0], name, field[0])
                )
                ours.append("%s.%s %d %d" % (name, field[0], at.offset, at.size))
        constants = {k: v for k, v in vars(_abi).items() if re.match(r"PV_[A-Z0-9_]+$", k)}
        self.assertGreater(len(constants), 60)
        for name, value in constants.items():
            lines.append('printf("%s %%d\\n", (int)%s);' % (name, name))
            ours.append("%s %d" % (name, value))
        # A function that is declared otherwise than in the table's number of arguments does not compile.
        for name, (_, arguments) in _abi.FUNCTIONS.items():
            lines.append("(void)(0 ? (void)%s(%s) : (void)0);" % (name, ", ".join(["0"] * len(arguments))))
        lines += ["return 0;", "}"]
        compiler = shlex.split(os.environ.get("CC", "cc"))
        with tempfile.TemporaryDirectory() as place:
            source = os.path.join(place, "probe.c")
            with open(source, "w") as f:
                f.write("\n".join(lines))
            command = compiler + ["-w", "-I" + os.path.join(ROOT, "include"), "-o", os.path.join(place, "probe"), source]
            libraries = ["-Wl,--unresolved-symbols=ignore-all"]  # never called
            try:
                made = subprocess.run(command + libraries, stderr=subprocess.PIPE)
            except OSError:
                self.skipTest("there is no C compiler")
            self.assertEqual(made.returncode, 0, made.stderr.decode())
            theirs = subprocess.run([os.path.join(place, "probe")], stdout=subprocess.PIPE, check=True).stdout.decode()
        self.assertEqual(theirs.splitlines(), ours)

    def test_dataclasses_have_all_fields(self):
        for python, c in (
            (_stats.Stats, _abi.pv_stats),
            (_stats.EngineStats, _abi.pv_engine_counts),
            (_media.VideoInfo, _abi.pv_video_info),
        ):
            fields = [f[0] for f in c._fields_ if f[0] != "size"]
            self.assertEqual(sorted(python.__dataclass_fields__), sorted(fields))
        for field in ("frames", "height", "width", "kept", "visible", "scores"):
            self.assertTrue(hasattr(_abi.pv_view_map, field) and field in _engine.View.__dataclass_fields__, field)

    def test_unknown_fields_are_refused(self):
        params = _abi.pv_video_params()
        params.frames = 3
        with self.assertRaises(AttributeError):
            params.frame = 3

    def test_large_numbers_are_refused(self):
        params = _abi.pv_video_params()
        for number in (2**32 + 3, 10**12, -(2**31) - 1):
            with self.assertRaisesRegex(OverflowError, "frames: the number %d is too large" % number):
                params.frames = number
        params.frames = 2**31 - 1
        with self.assertRaises(OverflowError):
            _abi.pv_limits().memory_bytes = -1
