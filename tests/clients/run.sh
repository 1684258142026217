#!/bin/sh
# `make check-clients`: the openai package, from PyPI, as a client of `prevue serve`.
#
#   tests/clients/run.sh
#
# The package goes into a virtual environment below $BUILD, once. Needs python3 with venv and access to
# PyPI (or PIP_INDEX_URL).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${BUILD:-build}
case $build in /*) ;; *) build=$root/$build ;; esac
prevue=${PREVUE:-$build/prevue}
venv=$build/clients
dir=$(mktemp -d "${TMPDIR:-/tmp}/prevue-clients-XXXXXX")
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM

if ! "$venv/bin/python" -c 'import openai' 2>/dev/null; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check 'openai>=1.50,<3'
fi

echo secret-key >"$dir/keys"
"$prevue" serve -m "$root/models/nano.gguf" -d "$root/models/nano-draft.gguf" --head "$root/models/nano-head.gguf" \
    --samples "$root/samples" --port 0 --api-key-file "$dir/keys" --access-log none --max-requests 8 \
    >"$dir/out" 2>"$dir/err" &
server=$!
for _ in $(seq 300); do
    grep -q http "$dir/out" && break
    sleep 0.1
done
url=$(sed -n 's/.* at \(http.*\)/\1/p' "$dir/out")
[ -n "$url" ] || { cat "$dir/err" && exit 1; }
"$venv/bin/python" "$here/openai_client.py" "$url/v1" secret-key "$root/samples/16-frames.mp4"
