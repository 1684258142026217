#!/bin/sh
# The Python package with this machine's Python, in place and with the library of $BUILD; part of `make test`.
#
#   tests/packages/python.sh
#
# PYTHON names the interpreter.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD:-build}
case $build in /*) ;; *) build=$root/$build ;; esac
python=${PYTHON:-$(command -v /usr/bin/python3 || command -v python3)}
if [ -z "$python" ] || ! "$python" -c 'import sys, ctypes; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    echo "skip python: there is no python3 from 3.9 on"
    echo "0 passed, 0 failed"
    exit 0
fi
export PREVUE_LIBRARY="$build/libprevue.so.0" PREVUE="$build/prevue" PYTHONDONTWRITEBYTECODE=1
exec "$python" "$root/python/tests/run.py" "$@"
