"""What `pip install ./python` runs: a small build backend (PEP 517) that needs nothing but Python.

The package is Python alone where libprevue is installed already, in the same version, or where PREVUE_LIBRARY names it.
Otherwise the library and its helper are built from the source tree around this directory, by make, and copied into the
package.
"""

import base64
import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
SONAME = "libprevue.so.0"


def _setting(name):
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as f:
        return re.search(r'^%s = "(.*)"$' % name, f.read(), re.M).group(1)


NAME = "prevue"
VERSION = _setting("version")


def _installed():
    """The installed library of this version, as the package would find it; None: there is none."""
    places = [SONAME, "/usr/local/lib/" + SONAME]
    try:
        found = subprocess.run(["pkg-config", "--variable=libdir", "prevue"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        places.append(os.path.join(found.stdout.decode().strip(), SONAME))
    except OSError:
        pass
    for place in places:
        try:
            library = ctypes.CDLL(place)
            library.pv_version.restype = ctypes.c_char_p
            if library.pv_version().decode() == VERSION:
                return place
        except (OSError, AttributeError):
            continue
    return None


def _build():
    """Library and helper, built by make; [(path, name in the package)]."""
    if not os.path.isfile(os.path.join(ROOT, "Makefile")):
        raise SystemExit("prevue: libprevue %s is not installed, and there is no source tree to build it from" % VERSION)
    print("prevue: building libprevue, which takes some minutes", file=sys.stderr)
    build = os.environ.get("PREVUE_BUILD", "build")
    command = ["make", "-C", ROOT, "-j%d" % (os.cpu_count() or 2), "BUILD=" + build, "lib", build + "/prevue-media"]
    try:
        failed = subprocess.call(command, stdout=sys.stderr)
    except OSError as e:  # there is no make
        print(e, file=sys.stderr)
        failed = True
    if failed:
        raise SystemExit(
            "prevue: libprevue could not be built: run 'make setup' in %s first, which installs what it needs on Debian, "
            "or install libprevue %s (make install, make deb)" % (ROOT, VERSION)
        )
    at = os.path.join(ROOT, build)
    return [(os.path.join(at, SONAME), SONAME), (os.path.join(at, "prevue-media"), "prevue-media")]


def _native():
    """What has to be copied into the package."""
    if os.environ.get("PREVUE_LIBRARY"):
        print("prevue: PREVUE_LIBRARY is set: nothing is built", file=sys.stderr)
        return []
    place = _installed()
    if place:
        print("prevue: using the installed library %s" % place, file=sys.stderr)
        return []
    return _build()


def _stripped(path):
    """The file's bytes without debugging information, where there is a strip."""
    copy = os.path.join(os.environ.get("TMPDIR", "/tmp"), "prevue-strip-%d" % os.getpid())
    shutil.copyfile(path, copy)
    try:
        if shutil.which("strip"):
            subprocess.call(["strip", "--strip-unneeded", copy])
        with open(copy, "rb") as f:
            return f.read()
    finally:
        os.remove(copy)


def _metadata():
    return (
        "Metadata-Version: 2.1\nName: %s\nVersion: %s\nSummary: %s\nRequires-Python: %s\nLicense: Apache-2.0\n"
        "Description-Content-Type: text/markdown\n\n%s"
        % (
            NAME, VERSION, _setting("description"), _setting("requires-python"),
            open(os.path.join(HERE, "README.md"), encoding="utf-8").read(),
        )
    )


def _write(directory, files, pure):
    tag = "py3-none-" + ("any" if pure else re.sub(r"[-.]", "_", sysconfig.get_platform()))
    info = "%s-%s.dist-info" % (NAME, VERSION)
    files = files + [
        (info + "/METADATA", _metadata().encode(), 0o644),
        (info + "/WHEEL", ("Wheel-Version: 1.0\nGenerator: prevue\nRoot-Is-Purelib: %s\nTag: %s\n"
                           % ("true" if pure else "false", tag)).encode(), 0o644),
    ]
    record = ""
    wheel = "%s-%s-%s.whl" % (NAME, VERSION, tag)
    with zipfile.ZipFile(os.path.join(directory, wheel), "w", zipfile.ZIP_DEFLATED) as out:
        for name, data, mode in files:
            entry = zipfile.ZipInfo(name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            out.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record += "%s,sha256=%s,%d\n" % (name, digest, len(data))
        out.writestr(info + "/RECORD", record + info + "/RECORD,,\n")
    return wheel


def get_requires_for_build_wheel(config_settings=None):
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = []
    package = os.path.join(HERE, "prevue")
    for name in sorted(os.listdir(package)):
        if name.endswith(".py") or name == "py.typed":
            with open(os.path.join(package, name), "rb") as f:
                files.append(("prevue/" + name, f.read(), 0o644))
    native = _native()
    for path, name in native:
        files.append(("prevue/" + name, _stripped(path), 0o755))
    return _write(wheel_directory, files, not native)


def get_requires_for_build_editable(config_settings=None):
    return []


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """pip install -e: the package is used where it lies, with the library of the tree's build directory."""
    return _write(wheel_directory, [("prevue-editable.pth", (HERE + "\n").encode(), 0o644)], True)
