#!/bin/sh
# Build everything for the other architecture (aarch64 on x86_64, x86_64 on aarch64) and run kernel
# checks and unit tests of that build under qemu-user. Called by `make check-cross`.
#
#   tools/cross.sh [full]
#
# Installs Debian's cross compiler, qemu and the foreign libraries where they are missing. Without
# the libraries it compiles every file with this machine's headers, links what needs no library,
# and says what it left out. "full" runs every kernel check and unit test; without it the slow
# ones below are left out. Tests with very many combinations try fewer (TEST_BRIEF of tests/test.h).
#
# gcc 12 for aarch64 has two bugs that matter here. It dies with an internal error on some loops
# that reduce with fmax(): tests use larger() of tests/larger.h instead. And at -O2 it miscompiles
# constant bf16 vectors, which no native test on x86 could show: see src/kernels/arm/matmul_bf16.c.
set -u
cd "$(dirname "$0")/.." || exit 1
out=build/cross
# Each of these needs half a minute or more under qemu, test_lossless and test_speculate more
# than ten minutes.
slow="test_columns test_decoder_joint test_decoder_layers test_decoder_rows test_device_cpu
    test_disk_media test_drafting test_engine test_engine_nano test_full_attention test_golden
    test_golden_vision test_lossless test_media_loader test_prompt_file test_schedule_parallel
    test_ranks test_ranks_answers
    test_session_task test_sound_av test_speculate test_speculate_head test_stack test_vision"
quick=--quick
[ "${1:-}" != full ] || slow='' quick=''
# It starts itself as the media helper, which the kernel refuses: see below.
slow="$slow test_media_lies"

die()
{
    echo "check-cross: $*" >&2
    exit 1
}

case $(uname -m) in
x86_64) arch=arm64 cpu=aarch64 compiler=aarch64-linux-gnu ;;
aarch64) arch=amd64 cpu=x86_64 compiler=x86-64-linux-gnu ;;
*) die "no other architecture is known for $(uname -m)" ;;
esac
triple=$cpu-linux-gnu
tools/setup.sh cross make pkg-config "gcc-$compiler" "g++-$compiler" qemu-user || exit 1

unset MAKEFLAGS MFLAGS # what the make that called this was given is in the environment too
build() # ARGUMENTS OF make
{
    make --no-print-directory -j"${JOBS:-$(nproc)}" CC="$triple-gcc" CXX="$triple-g++" \
        AR="$triple-ar" CUDA= CUDASIM= SAN= "$@"
}

run="qemu-$cpu -cpu max"
brief=-DPV_TEST_BRIEF
left_out=
if tools/setup.sh libraries "$arch"; then
    found=/usr/lib/$triple/pkgconfig:/usr/share/pkgconfig
    build BUILD=$out CORE= CPPFLAGS=$brief PKG_CONFIG="env PKG_CONFIG_LIBDIR=$found pkg-config" programs ||
        die "the build for $cpu failed"
else
    echo "check-cross: NO LIBRARIES OF $arch. Compiling every file with this machine's headers," \
        "linking only what needs no library (CORE=1)."
    tools/setup.sh || exit 1
    build BUILD=$out/headers CORE= \
        CPPFLAGS="$brief -idirafter /usr/include -idirafter /usr/include/$(uname -m)-linux-gnu" objects ||
        die "a file does not compile for $cpu"
    out=$out/core
    # Some unit tests call what CORE=1 lacks; those that do not link are listed below.
    build BUILD=$out CORE=1 CPPFLAGS=$brief -k programs >/dev/null 2>&1
    build BUILD=$out CORE=1 CPPFLAGS=$brief core-programs || die "the build for $cpu with CORE=1 failed"
    run="$run -L /usr/$triple"
    missing=
    for source in tests/unit/test_*.c; do
        name=$(basename "$source" .c)
        [ -x "$out/unit/$name" ] || missing="$missing $name"
    done
    echo "check-cross: compiled, but not linked for want of libraries: prevue without CORE=1,$missing"
fi

# The kernel starts a program of the other architecture only where an emulator is registered for it, so the
# tests' media helper is a script that starts it.
helper=$out/unit/prevue-media
if [ -x "$helper" ]; then
    rm -f "$helper"
    printf '#!/bin/sh\nexec %s %s "$@"\n' "$(command -v "${run%% *}") ${run#* }" "$PWD/$out/prevue-media" >"$helper"
    chmod +x "$helper"
fi

set -- "$run $out/check_kernels $quick"
for source in tests/unit/test_*.c; do
    name=$(basename "$source" .c)
    [ -x "$out/unit/$name" ] || continue
    case " $(echo $slow) " in
    *" $name "*) left_out="$left_out $name" ;;
    *) set -- "$@" "$run $out/unit/$name" ;;
    esac
done
TEST_TIMEOUT=${TEST_TIMEOUT:-7200} tests/run.sh "$@"
status=$?
[ -z "$left_out" ] || echo "check-cross: built, but not run for $cpu:$left_out"
exit $status
