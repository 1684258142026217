#!/bin/sh
# `make deb`: one Debian package with the command, the library, its headers, the manual page, the completions and the
# small models. Needs dpkg-dev; neither root nor debhelper.
#
#   tools/deb.sh STAGE OUT.deb VERSION MULTIARCH
#
# STAGE holds what `make install` wrote for PREFIX=/usr; MULTIARCH is the compiler's name of the machine
# (x86_64-linux-gnu), from which Debian's name of the architecture follows. STAGE/DEBIAN is written here. DEBFULLNAME
# and DEBEMAIL name the maintainer.
set -eu
stage=$1 out=$2 version=$3 multiarch=$4
root=$(cd "$(dirname "$0")/.." && pwd)
maintainer="${DEBFULLNAME:-The authors of prevue} <${DEBEMAIL:-prevue@localhost}>"

die()
{
    echo "make deb: $*" >&2
    exit 1
}

case $multiarch in
x86_64-*) arch=amd64 ;;
aarch64-*) arch=arm64 ;;
*) die "unknown architecture $multiarch (amd64 and arm64 are supported)" ;;
esac
for tool in dpkg-deb dpkg-shlibdeps; do
    command -v $tool >/dev/null || die "$tool is missing: apt-get install dpkg-dev"
done
# After a build for another machine its own strip is needed.
strip=strip
! command -v "$multiarch-strip" >/dev/null || strip=$multiarch-strip

bin=$stage/usr/bin/prevue
helper=$stage/usr/libexec/prevue/prevue-media
library=$(echo "$stage/usr/lib/$multiarch"/libprevue.so.*.*.*)
for file in "$bin" "$helper" "$library"; do
    [ -f "$file" ] || die "$file was not installed (a CORE=1 build has no package)"
    $strip --strip-unneeded --remove-section=.comment --remove-section=.note "$file"
done
chmod 644 "$library"
gzip -9nf "$stage/usr/share/man/man1/prevue.1"

# The date of the sources, so that the same sources give the same package.
when=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH="$when"
doc=$stage/usr/share/doc/prevue
mkdir -p "$doc" "$stage/DEBIAN"
{
    echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
    echo "Upstream-Name: prevue"
    echo
    echo "Files: *"
    echo "Copyright: $(date -u -d "@$when" +%Y) the authors of prevue"
    echo "License: Apache-2.0"
    echo " The licence is in /usr/share/common-licenses/Apache-2.0."
} >"$doc/copyright"
printf 'prevue (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- %s  %s\n' \
    "$version" "$maintainer" "$(LC_ALL=C date -u -R -d "@$when")" | gzip -9n >"$doc/changelog.gz"
cp "$root/CHANGELOG.md" "$doc/CHANGELOG.md"
mkdir "$doc/examples"
cp -r "$root"/examples/* "$root/server/deploy/prevue.service" "$doc/examples"
find "$doc" -type f -exec chmod 644 {} +
find "$doc/examples" -name '*.sh' -exec chmod 755 {} +

# The libraries that the programs need, as packages: dpkg-shlibdeps wants a source package around it.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/debian"
printf 'Source: prevue\n\nPackage: prevue\nArchitecture: any\nDescription: x\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O -l"$(dirname "$library")" --ignore-missing-info "$bin" "$helper" "$library" \
    2>"$work/log" | sed -n 's/^shlibs:Depends=//p') || { cat "$work/log" >&2 && die "dpkg-shlibdeps failed"; }
[ -n "$depends" ] || die "dpkg-shlibdeps found no libraries"

cat >"$stage/DEBIAN/control" <<EOF
Package: prevue
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(du -sk --exclude=DEBIAN "$stage" | cut -f 1)
Depends: $depends
Section: video
Priority: optional
Description: describe videos with language models, several times faster
 prevue runs video language models (Qwen-VL, LLaVA-OneVision, LLaVA-Video and
 others) on CPUs and GPUs. A small drafter proposes the next words, the model
 verifies several of them at once, and the answer stays the same to the bit.
 .
 This package has the command, the C library libprevue with its headers, and
 small models to try it with.
EOF
echo "activate-noawait ldconfig" >"$stage/DEBIAN/triggers"
echo "libprevue ${library##*/libprevue.so.} prevue" | sed 's/ \([0-9]*\)\.[0-9.]* / \1 /' >"$stage/DEBIAN/shlibs"
(cd "$stage" && find usr -type f | LC_ALL=C sort | xargs md5sum) >"$stage/DEBIAN/md5sums"
chmod 644 "$stage/DEBIAN"/*
find "$stage" -newermt "@$when" -exec touch -h -d "@$when" {} +
mkdir -p "$(dirname "$out")"
# Quantised weights, most of the package, hardly get smaller: xz would take half a minute for nothing.
dpkg-deb --root-owner-group -Zgzip --build "$stage" "$out" >/dev/null
echo "$out: $(stat -c %s "$out") bytes, needs $depends"
