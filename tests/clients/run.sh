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
    rm -rf "$venv"
    if ! python3 -m venv "$venv" || ! "$venv/bin/pip" install --quiet --disable-pip-version-check 'openai>=1.50,<3'; then
        echo "skip clients: the openai package could not be installed from PyPI"
        echo "0 passed, 0 failed"
        exit 0
    fi
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
status=0
"$venv/bin/python" "$here/openai_client.py" "$url/v1" secret-key "$root/samples/16-frames.mp4" >"$dir/log" || status=1
sed '$d' "$dir/log"
passed=$(sed -n '$s/ passed.*//p' "$dir/log")
failed=$(sed -n '$s/.*passed, \([0-9]*\) failed/\1/p' "$dir/log")

# The example of the README, as it stands there, but for the address and the key.
sed -n '/^```python$/,/^```$/p' "$root/README.md" | sed '/^```/d' |
    sed "s|http://127.0.0.1:8080|$url|; s|api_key=\"none\"|api_key=\"secret-key\"|" >"$dir/readme.py"
if (cd "$root" && "$venv/bin/python" "$dir/readme.py") >"$dir/text" 2>&1 && grep -qi video "$dir/text"; then
    echo "ok readme_example"
    passed=$((passed + 1))
else
    echo "FAIL readme_example:" && cat "$dir/text"
    failed=$((failed + 1))
    status=1
fi
echo "$passed passed, $failed failed"
exit $status
