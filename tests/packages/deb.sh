#!/bin/sh
# `make check-deb`: unpacks the Debian package below a directory of its own, runs what is in it, compiles a program against
# it, and, as root, installs and removes it there with dpkg.
#
#   tests/packages/deb.sh PACKAGE.deb
set -u
here=$(cd "$(dirname "$0")" && pwd)
deb=$(realpath "$1") || exit 1
cc=${CC:-cc}
dir=$(mktemp -d "${TMPDIR:-/tmp}/prevue-deb-XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
cd "$dir" || exit 1
. "$here/check.sh"

dpkg-deb -x "$deb" tree || exit 1
dpkg-deb -e "$deb" control || exit 1
lib=$(dirname "$(find tree/usr/lib -name 'libprevue.so')")
prevue=$dir/tree/usr/bin/prevue

# What a user expects where Debian looks for it, nothing that only root may read, nothing in /usr/local.
has_files()
{
    for f in bin/prevue libexec/prevue/prevue-media include/prevue/prevue.h share/man/man1/prevue.1.gz \
        share/bash-completion/completions/prevue share/zsh/vendor-completions/_prevue \
        share/fish/vendor_completions.d/prevue.fish share/prevue/models/nano.gguf share/prevue/models/nano-draft.gguf \
        share/prevue/models/nano-head.gguf share/prevue/samples/64-frames.mp4 share/doc/prevue/copyright \
        share/doc/prevue/examples/c/describe_clip.c; do
        [ -s "tree/usr/$f" ] || { echo "usr/$f is missing" && return 1; }
    done
    [ -f "$lib/pkgconfig/prevue.pc" ] || { echo "there is no prevue.pc in $lib/pkgconfig" && return 1; }
    ! dpkg-deb -c "$deb" | grep -vE '^(drwxr-xr-x|-rwxr-xr-x|-rw-r--r--|lrwxrwxrwx) root/root ' || return 1
    [ "$(ls tree tree/usr | tr '\n' ' ')" = "tree: usr  tree/usr: bin include lib libexec share " ]
}

architecture()
{
    machine=$(od -An -tu2 -j18 -N2 "$prevue" | tr -d ' ') # e_machine of the ELF header
    case $(dpkg-deb -f "$deb" Architecture) in
    amd64) [ "$machine" -eq 62 ] ;;
    arm64) [ "$machine" -eq 183 ] ;;
    *) return 1 ;;
    esac
}

# The library is known by its soname, and the package says so to others that are built against it.
soname()
{
    so=$(objdump -p "$lib/libprevue.so" | sed -n 's/ *SONAME *//p')
    echo "soname $so, shlibs: $(cat control/shlibs)"
    [ "$so" = "libprevue.so.0" ] && [ -e "$lib/$so" ] && grep -qx "libprevue ${so##*.} prevue" control/shlibs &&
        grep -q ldconfig control/triggers
}

# Without -m, from a directory that has nothing: models and helper come from the package.
describes()
{
    text=$("$prevue" describe --sandbox tree/usr/share/prevue/samples/16-frames.mp4 --frames 8 -n 24 --stats 2>err) ||
        { cat err && return 1; }
    echo "$text"
    [ "$(echo "$text" | wc -w)" -ge 10 ]
}

# An example of the package, by pkg-config alone.
compiles()
{
    export PKG_CONFIG_LIBDIR="$dir/$lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$dir/tree"
    $cc -Wall -Werror -o describe_clip tree/usr/share/doc/prevue/examples/c/describe_clip.c $(pkg-config --cflags --libs prevue) || return 1
    LD_LIBRARY_PATH=$dir/$lib ./describe_clip tree/usr/share/prevue/models/nano.gguf \
        tree/usr/share/prevue/samples/16-frames.mp4 >text || return 1
    cat text
    [ "$(wc -w <text)" -ge 10 ]
}

man_page()
{
    gzip -dc tree/usr/share/man/man1/prevue.1.gz | head -n 1 | grep '^\.TH PREVUE 1 '
}

# dpkg's own view, in a root of its own: installed, checked, removed with nothing left behind.
install_and_remove()
{
    mkdir -p fake/var/lib/dpkg/updates fake/var/lib/dpkg/info
    : >fake/var/lib/dpkg/status
    dpkg --root="$dir/fake" --force-depends --force-script-chrootless -i "$deb" || return 1
    [ -x fake/usr/bin/prevue ] && dpkg --root="$dir/fake" --verify prevue || return 1
    fake/usr/bin/prevue version || return 1
    dpkg --root="$dir/fake" --force-depends --purge prevue || return 1
    left=$(find fake -path fake/var -prune -o -type f -print)
    [ -z "$left" ] || { echo "left behind: $left" && return 1; }
}

check has_files has_files
check architecture architecture
check soname soname
check version "$prevue" version
check describes describes
check compiles compiles
check man_page man_page
if [ "$(id -u)" -eq 0 ]; then
    check install_and_remove install_and_remove
else
    echo "skip install_and_remove: needs root"
fi
# Errors only: that one package has everything, library and headers, is a choice. So is the maintainer's address where
# DEBEMAIL names none.
if command -v lintian >/dev/null; then
    check lintian lintian --fail-on error --no-tag-display-limit --allow-root \
        --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog "$deb"
else
    echo "skip lintian: it is not installed"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
