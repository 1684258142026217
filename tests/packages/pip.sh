#!/bin/sh
# `make check-python`: the package as pip installs it, in virtual environments: with a library that PREVUE_LIBRARY names, with
# an installed one, and with one that is built from the tree and copied into the package. Then the tests with numpy, and
# mypy, where PyPI can be reached.
#
#   tests/packages/pip.sh
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${BUILD:-build}
case $build in /*) ;; *) build=$root/$build ;; esac
dir=$(mktemp -d "${TMPDIR:-/tmp}/prevue-pip-XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
cd "$dir" || exit 1
python=${PYTHON:-/usr/bin/python3}
unset PREVUE_LIBRARY PYTHONPATH
. "$here/check.sh"

install() # VENV: no network is needed
{
    "$python" -m venv "$1" && "$1/bin/pip" install --quiet --no-index --disable-pip-version-check "$root/python"
}

# Describes a clip from a directory that has nothing, with the sandbox, and prints where the library is.
use() # VENV
{
    "$1/bin/python" -c '
import prevue, sys
with prevue.Model(sys.argv[1]) as model, prevue.Engine(model, max_context=4096) as engine:
    answer = engine.describe(prevue.Video(sys.argv[2], frames=4, sandbox="on"), max_tokens=8)
print(prevue.library_path(), prevue.__file__, answer.text)
assert len(answer.ids) == 8
' "$root/models/nano.gguf" "$root/samples/16-frames.mp4"
}

named()
{
    export PREVUE_LIBRARY="$build/libprevue.so.0"
    install named && use named && [ ! -e named/lib/python3*/site-packages/prevue/libprevue.so.0 ]
}

# As after `make install`, which the dynamic linker and pkg-config know about.
installed()
{
    unset PREVUE_LIBRARY
    make -s -C "$root" BUILD="$build" install PREFIX="$dir/usr" >/dev/null || return 1
    export PKG_CONFIG_PATH="$dir/usr/lib/pkgconfig"
    install installed && use installed >text || return 1
    cat text
    grep "^$dir/usr/lib/libprevue.so" text
}

bundled()
{
    unset PREVUE_LIBRARY PKG_CONFIG_PATH
    PREVUE_BUILD="$build" install bundled && use bundled >text || return 1
    cat text
    grep "^$dir/bundled/.*/prevue/libprevue.so.0" text
}

with_numpy()
{
    named/bin/python -c 'import numpy' && PREVUE_INSTALLED=1 PREVUE_LIBRARY="$build/libprevue.so.0" \
        named/bin/python "$root/python/tests/run.py" >tests || { cat tests && return 1; }
    ! grep '^skip ' tests
}

notebook()
{
    CC="${CC:-cc}" PYTHON="$dir/named/bin/python" BUILD="$build" "$root/tests/packages/examples.sh" >examples
    cat examples
    grep -q '^ok notebook_runs' examples
}

# The first block of code of its README, from the root of the repository.
readme()
{
    sed -n '/^```python$/,/^```$/p' "$root/python/README.md" | sed '/^```/d' >readme.py
    (cd "$root" && PREVUE_LIBRARY="$build/libprevue.so.0" "$dir/named/bin/python" "$dir/readme.py") | tee text
    grep -q 'length\|stop' text
}

types()
{
    (cd "$root/python" && "$dir/named/bin/mypy" --cache-dir "$dir/mypy" --python-executable "$dir/named/bin/python")
}

if ! "$python" -m venv "$dir/try" >/dev/null 2>&1; then
    echo "skip pip: python3 has no venv (apt-get install python3-venv)"
    echo "0 passed, 0 failed"
    exit 0
fi
check library_named_by_environment named
check library_installed installed
check library_built_and_copied bundled
check readme readme
if named/bin/pip install --quiet --disable-pip-version-check numpy mypy typing_extensions >"$dir/log" 2>&1; then
    check tests_with_numpy with_numpy
    check notebook notebook
    check types types
else
    echo "skip tests_with_numpy: numpy and mypy could not be installed from PyPI"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
