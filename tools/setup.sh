#!/bin/sh
# Install what building and testing prevue needs and this machine lacks (Debian and its kin, as
# root or through sudo). Silent when nothing is missing.
#
#   tools/setup.sh [lint]
#   tools/setup.sh deb                  what `make deb` needs
#   tools/setup.sh page                 a browser and its driver, for `make check-page`
#   tools/setup.sh cross PACKAGE...     these packages instead, as tools/cross.sh needs them
#   tools/setup.sh libraries ARCH       the libraries and headers of another architecture, beside
#                                       those of this one
set -u
tools="gcc g++ make pkg-config curl"
libraries="libc6-dev libjansson-dev libpcre2-dev libutf8proc-dev
    libavformat-dev libavcodec-dev libswscale-dev libswresample-dev libavutil-dev zlib1g-dev libmicrohttpd-dev"
foreign=
case ${1:-} in
'') need="$tools $libraries" ;;
lint) need="$tools $libraries clang-format" ;;
deb) need="dpkg-dev" ;;
page) need="python3 chromium chromium-driver" ;;
cross) shift && need="$*" ;;
libraries)
    foreign=$2
    need=$(for l in $libraries; do echo "$l:$foreign"; done)
    ;;
esac

die()
{
    echo "prevue: $*" >&2
    exit 1
}

# Without dpkg: can the thing itself be found?
present()
{
    case $1 in
    gcc) command -v "${CC:-cc}" >/dev/null || command -v gcc >/dev/null ;;
    libc6-dev) echo '#include <stdio.h>' | "${CC:-cc}" -E - >/dev/null 2>&1 ;;
    libjansson-dev) pkg-config --exists jansson 2>/dev/null ;;
    libpcre2-dev) pkg-config --exists libpcre2-8 2>/dev/null ;;
    libutf8proc-dev) pkg-config --exists libutf8proc 2>/dev/null ;;
    libav*-dev | libsw*-dev) pkg-config --exists "${1%-dev}" 2>/dev/null ;;
    dpkg-dev) command -v dpkg-shlibdeps >/dev/null ;;
    chromium-driver) command -v chromedriver >/dev/null ;;
    zlib1g-dev) pkg-config --exists zlib 2>/dev/null ;;
    libmicrohttpd-dev) pkg-config --exists libmicrohttpd 2>/dev/null ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

installed()
{
    if command -v dpkg-query >/dev/null; then
        # A package may be there under another name (pkgconf for pkg-config, clang for gcc).
        dpkg-query -W -f='${db:Status-Status}\n' "$1" 2>/dev/null | grep -qx installed && return 0
    fi
    present "$1"
}

# Packages of another architecture never take the place of those installed. If they cannot be
# installed, the architecture is not left behind in the lists.
failed()
{
    [ -z "$added" ] || $root dpkg --remove-architecture "$foreign" 2>/dev/null
    die "apt-get could not install $missing"
}

# Nothing fails without Open MPI: the tests under mpirun are left out.
if [ -z "${1:-}" ] && ! command -v mpirun >/dev/null && command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ]; then
    echo "prevue: installing Open MPI for the tests under mpirun"
    DEBIAN_FRONTEND=noninteractive timeout 120 apt-get -o Acquire::http::Timeout=10 -o Acquire::Retries=0 \
        install -y -qq --no-install-recommends openmpi-bin libopenmpi-dev >/dev/null 2>&1 </dev/null ||
        echo "prevue: no Open MPI; the tests under mpirun are left out"
fi

missing=
for package in $need; do
    installed "$package" || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
missing=${missing# }

command -v apt-get >/dev/null ||
    die "this machine lacks $missing (names of Debian packages) and has no apt-get:" \
        "install them by hand, or build with 'make CORE=1', which needs a C compiler and make only"
root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null ||
        die "this machine lacks $missing; run 'apt-get install $missing' as root," \
            "or build with 'make CORE=1', which needs a C compiler and make only"
    root="sudo"
fi

echo "prevue: installing $missing"
added=
if [ -n "$foreign" ] && ! dpkg --print-foreign-architectures | grep -qx "$foreign"; then
    $root dpkg --add-architecture "$foreign" && added=yes
fi
export DEBIAN_FRONTEND=noninteractive
$root apt-get update -qq || echo "prevue: apt-get update failed; trying with the lists that are there" >&2
$root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    ${foreign:+--no-remove} $missing || failed
