#!/bin/sh
# The rules of CONTRIBUTING.md that a machine can check. Prints each violation as file:line and
# exits 1 when there is one.
set -u
cd "$(dirname "$0")/.." || exit 1
cc=${CC:-cc}
bad=0
list=$(mktemp) || exit 1
trap 'rm -f "$list"' EXIT

if git rev-parse --git-dir >/dev/null 2>&1; then
    files=$(git ls-files -co --exclude-standard)
else
    files=$(find . -name .git -prune -o -path ./build -prune -o -type f -print | sed 's|^\./||')
fi
existing=
for f in $files; do
    [ ! -f "$f" ] || existing="$existing $f"
done
sources=$(printf '%s\n' $existing | grep -E '\.(c|h|cu|cuh|cpp)$')
headers=$(printf '%s\n' $sources | grep -E '\.(h|cuh)$')

# C, and CUDA's C++: includes, banned calls, lengths, guards, names, white space.
perl tools/lint_text.pl $existing || bad=1

# Every test is run by a target.
perl tools/lint_tests.pl $existing || bad=1

# Prose: phrases to avoid, and Markdown lines of more than 120 columns.
perl tools/lint_words.pl $existing || bad=1

# Formatting. CUDA files start kernels through launch.h, so there is no <<<...>>> that clang-format
# could mistake for shifts.
if command -v clang-format >/dev/null; then
    clang-format --dry-run $sources 2>&1 | sed -n 's/^\([^:]*:[0-9]*\):.*clang-formatted.*/\1/p' |
        sort -u -t: -k1,1 -k2,2n | sed 's/$/: not formatted ("make format")/' >"$list"
    cat "$list"
    [ ! -s "$list" ] || bad=1
else
    echo "clang-format is missing: 'tools/setup.sh lint' installs it"
    bad=1
fi

# Each header compiles alone, and the public one as C++ too.
flags="-std=c11 -D_POSIX_C_SOURCE=200809L -Iinclude -Isrc -Itests -Icli -Iserver
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Werror -fsyntax-only
    $(pkg-config --cflags jansson libpcre2-8 libutf8proc 2>/dev/null)"
case $($cc -dumpmachine) in
x86_64*) other=arm isa="-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx512bf16
    -mavx2 -mfma -mf16c -mamx-tile -mamx-bf16 -mamx-int8" ;;
aarch64*) other=x86 isa="-march=armv8.2-a+dotprod+fp16+i8mm+bf16" ;;
*) other="arm|x86" isa= ;;
esac
for h in $headers; do
    extra=
    case $h in
    *hopper.h | *hopper.cuh) continue ;; # needs the toolkit
    src/kernels/cuda/* | tests/cudasim/*) # C++, with the simulator in the place of CUDA
        command -v g++ >/dev/null || continue
        if ! echo "#include \"$h\"" | g++ -std=c++17 -DPV_CUDASIM -Iinclude -Isrc -Itests -I. \
            -Wall -Wno-unused-function -Wno-unknown-pragmas -fsyntax-only -x c++ -; then
            echo "$h:1: does not compile alone"
            bad=1
        fi
        continue
        ;;
    src/kernels/arm/* | src/kernels/x86/*)
        ! echo "$h" | grep -qE "^src/kernels/($other)/" || continue
        extra=$isa
        ;;
    esac
    # -Wno-unused-function: tests/test.h is all static.
    if ! echo "#include \"$h\"" | $cc $flags $extra -Wno-unused-function -I. -x c -; then
        echo "$h:1: does not compile alone"
        bad=1
    fi
done
if command -v g++ >/dev/null; then
    if ! echo '#include "prevue/testing.h"' |
        g++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c++ -; then
        echo "include/prevue:1: the public headers do not compile as C++"
        bad=1
    fi
fi

# Builds with and without libraries share the objects of files that do not ask which one it is.
for file in $(grep -rl PV_CORE src cli include --include=*.h); do
    echo "$file:1: asks for PV_CORE, which only .c files may (Makefile, PLAIN)"
    bad=1
done

# Subjects of commits. Older ones are as they are.
since=2026-11-19T09:00Z
git log --since=$since --no-merges --format='%h %s' 2>/dev/null |
    grep -vE '^[0-9a-f]+ (Revert |[a-z][a-z0-9, _/.-]*: ).{0,58}$' |
    sed 's|^\([0-9a-f]*\) \(.*\)|commit \1:1: the subject is not "area: what it does": \2|' >"$list"
git log --since=$since --no-merges --format='%h %s' 2>/dev/null | grep -E '^[0-9a-f]+ .{61}' |
    sed 's|^\([0-9a-f]*\) \(.*\)|commit \1:1: the subject has more than 60 characters: \2|' >>"$list"
[ ! -s "$list" ] || { cat "$list" && bad=1; }

# The Python package has the layout of the public header.
if command -v python3 >/dev/null; then
    python3 python/make_abi.py --check || bad=1
fi

[ "$bad" -ne 0 ] || echo "lint: $(printf '%s\n' $sources | wc -l) files, no violation"
exit $bad
