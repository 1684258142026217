#!/usr/bin/env python3
"""Runs the tests of this directory; the last line is "N passed, N failed", as tests/run.sh wants it.

    python/tests/run.py [NAME...]     names of test modules or cases, as unittest takes them
"""

import os
import sys
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


class Result(unittest.TestResult):
    passed = 0

    def startTest(self, test):
        super().startTest(test)
        self.began = time.time()

    def addSuccess(self, test):
        self.passed += 1
        print("ok %s (%.1f s)" % (test.id(), time.time() - self.began), flush=True)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print("skip %s: %s" % (test.id(), reason))


def main():
    sys.path[:0] = [HERE] + ([] if os.environ.get("PREVUE_INSTALLED") else [os.path.dirname(HERE)])
    sys.path = list(dict.fromkeys(os.path.abspath(p) for p in sys.path))
    loader = unittest.TestLoader()
    suite = loader.loadTestsFromNames(sys.argv[1:]) if sys.argv[1:] else loader.discover(HERE)
    result = Result()
    suite.run(result)
    for test, text in result.failures + result.errors:
        print("FAIL %s\n%s" % (test.id(), text))
    failed = len(result.failures) + len(result.errors)
    print("%d passed, %d failed" % (result.passed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
