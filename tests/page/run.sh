#!/bin/sh
# Tests of the page in Chromium: make check-page
#
#   tests/page/run.sh [WORD]     only the tests whose name contains WORD
#
# PREVUE, CHROMEDRIVER and CHROMIUM name the programs (default: that of $BUILD, and those found). Debian's
# packages of the browser and its driver are installed when they are missing. When that is not
# possible the tests fail, or with OPTIONAL=1 are skipped, with a sentence in either case.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${BUILD:-build}
case $build in /*) ;; *) build=$root/$build ;; esac

# The first of these commands that is there.
first()
{
    for name; do
        command -v "$name" && return
    done
}

find_all()
{
    driver=${CHROMEDRIVER:-$(first chromedriver)}
    chromium=${CHROMIUM:-$(first chromium chromium-browser google-chrome-stable google-chrome)}
    python=$(first python3)
    [ -n "$driver" ] && [ -n "$chromium" ] && [ -n "$python" ]
}

find_all || "$root/tools/setup.sh" page
if ! find_all; then
    echo "check-page: cannot run: it needs python3, Chromium and chromedriver, which are missing here and could not be installed"
    [ -n "${OPTIONAL:-}" ] && exit 0
    exit 1
fi
exec "$python" "$here/check_page.py" "${PREVUE:-$build/prevue}" "$driver" "$chromium" "$@"
