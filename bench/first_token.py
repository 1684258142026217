#!/usr/bin/env python3
"""Time to the first token, measured from outside: from the start of a process to its first byte on
standard output. Each command line is run --repeat times in turn; the table shows all times and
their median.

    bench/first_token.py [--repeat N] [--clear DIR] -- COMMAND...

--clear DIR removes the directory before every run: times with an empty cache. What follows the
first byte is not counted. Tokens of a model with random weights may have no text: give `-n 1
--json` to `prevue describe`, which then prints when its only token is there."""
import argparse
import shutil
import statistics
import subprocess
import sys
import time


def first_byte(command):
    """Seconds until the first byte, or None when none came."""
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
        got = process.stdout.read(1)
        seconds = time.monotonic() - start
        process.stdout.read()
    return seconds if got and process.returncode == 0 else None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--repeat", type=int, default=5)
    p.add_argument("--clear", metavar="DIR")
    p.add_argument("command", nargs="+")
    args = p.parse_args()
    times = []
    for _ in range(args.repeat):
        if args.clear:
            shutil.rmtree(args.clear, ignore_errors=True)
        seconds = first_byte(args.command)
        if seconds is None:
            sys.exit("first_token: the command failed or printed nothing")
        times.append(seconds)
        print(f"{seconds:.3f} s", flush=True)
    print(f"median {statistics.median(times):.3f} s of {len(times)}")


if __name__ == "__main__":
    main()
