#!/bin/sh
# The programs of examples/ are compiled and run, as their head comments say, with the small model and the clips of the
# repository; part of `make test`.
#
#   tests/packages/examples.sh
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD:-build}
case $build in /*) ;; *) build=$root/$build ;; esac
cc=${CC:-cc}
python=${PYTHON:-$(command -v /usr/bin/python3 || command -v python3)}
prevue=$build/prevue
model=$root/models/nano.gguf
clip=$root/samples/16-frames.mp4
examples=$root/examples
dir=$(mktemp -d "${TMPDIR:-/tmp}/prevue-examples-XXXXXX") || exit 1
server=
trap '[ -z "$server" ] || kill -9 "$server" 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
cd "$dir" || exit 1
passed=0
failed=0

# says NAME PATTERN COMMAND...: it succeeds, and its output matches; nothing is on stderr.
says()
{
    name=$1 pattern=$2
    shift 2
    timeout 120 "$@" >"$dir/out" 2>"$dir/err" </dev/null
    status=$?
    if [ $status -eq 0 ] && [ ! -s "$dir/err" ] && grep -qE -- "$pattern" "$dir/out"; then
        passed=$((passed + 1))
        echo "ok $name"
    else
        failed=$((failed + 1))
        echo "FAIL $name: status $status, expected '$pattern'"
        head -n 20 "$dir/out" "$dir/err"
    fi
}

# The tree as if it were installed: headers and library by pkg-config.
sed -e "s|@prefix@|$root|; s|@libdir@|$build|; s|@incdir@|$root/include|; s|@version@|0|" "$root/prevue.pc.in" >prevue.pc
export PKG_CONFIG_PATH="$dir" LD_LIBRARY_PATH="$build"
for source in "$examples"/c/*.c; do
    program=$(basename "$source" .c)
    says "compile_$program" '^done$' sh -c "$cc -std=c11 -Wall -Wextra -Wshadow -Werror -o $program $source \
        \$(pkg-config --cflags --libs prevue) && echo done"
done

sed -n '/^```c$/,/^```$/p' "$root/README.md" | sed '/^```/d' >readme.c
says compile_readme '^done$' sh -c "$cc -Wall -Wextra -Werror -o readme readme.c \$(pkg-config --cflags --libs prevue) && echo done"

# A still picture has few tokens: quicker than a clip.
"$prevue" frames "$clip" --frames 1 -o stills >/dev/null || exit 1
still=$(echo stills/*.png)
says c_describe_clip '^This video shows .*mushroom' ./describe_clip "$model" "$clip" "Describe the video."
says c_ask_many '[1-9][0-9]* of [0-9]+ prompt tokens were there' ./ask_many "$model" "$still" "Describe the video." "What is there?"
says c_stream_requests '^2: \[' ./stream_requests "$model" "$still" "$still"
says c_own_frames 'grey background' ./own_frames "$model"
says c_readme '[a-z]' ./readme "$model" "$still"
says c_failure_is_reported '^cannot|no-such-model' sh -c "! ./describe_clip no-such-model.gguf $clip 2>&1"

if [ -n "$python" ] && "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))'; then
    export PYTHONPATH="$root/python" PREVUE_LIBRARY="$build/libprevue.so.0" PYTHONDONTWRITEBYTECODE=1
    says python_describe_clip '[0-9] tokens in [0-9]+ passes' "$python" "$examples/python/describe_clip.py" "$clip" \
        --head "$root/models/nano-head.gguf" --frames 4 --max-tokens 32
    says python_ask_many '[1-9][0-9]* of [0-9]+ prompt tokens reused' "$python" "$examples/python/ask_many.py" "$model" "$still" \
        "Describe the video." "What is there?"
    says python_own_frames 'grey background' "$python" "$examples/python/own_frames.py" "$model"
    # The notebook's code, cell after cell, without a notebook.
    says notebook_is_small '^yes$' sh -c "[ \$(wc -c <'$examples/python/tour.ipynb') -lt 150000 ] && echo yes"
    says notebook_code '^# ' "$python" -c 'import json, sys
cells = json.load(open(sys.argv[1]))["cells"]
print("# the notebook\n" + "\n".join("".join(c["source"]) + "\n" for c in cells if c["cell_type"] == "code"))' \
        "$examples/python/tour.ipynb"
    cp out tour.py
    if "$python" -c 'import numpy' 2>/dev/null; then
        says notebook_runs 'tokens per pass' env PREVUE_ROOT="$root" "$python" tour.py
    else
        says notebook_compiles '^yes$' "$python" -c 'compile(open("tour.py").read(), "tour.py", "exec"); print("yes")'
        echo "skip notebook_runs: numpy is not installed"
    fi
else
    echo "skip python: there is no python3 from 3.9 on"
fi

# The server, on a free port.
"$prevue" serve -m "$model" --port 0 --access-log none >serve.out 2>serve.err &
server=$!
for _ in $(seq 300); do
    grep -q http serve.out && break
    sleep 0.1
done
url=$(sed -n 's/.* at \(http.*\)/\1/p' serve.out)
if [ -n "$url" ] && command -v curl >/dev/null; then
    export PREVUE_URL="$url"
    says curl_upload_and_ask '^This video shows' "$examples/curl/upload_and_ask.sh" "$clip" "Describe the video."
    says curl_stream_answer '^This video shows .* scene' "$examples/curl/stream_answer.sh" "$clip"
    says curl_quotes '^[a-z]+$' "$examples/curl/upload_and_ask.sh" "$still" 'How many "objects" are there?'
    for script in upload_and_ask stream_answer; do
        says "curl_refused $script" '^status 1$' sh -c "'$examples/curl/$script.sh' '$root/README.md' x 2>&1; echo status \$?"
    done
else
    echo "skip curl: there is no curl, or no server: $(cat serve.err)"
fi

mkdir clips
cp "$clip" clips/a.mp4
echo "not a video" >clips/b.mp4
export PREVUE="$prevue"
# The broken one is reported each time, the other described once.
cat >folder.sh <<EOF
for _ in 1 2; do
    "$examples/shell/describe_folder.sh" clips table.tsv -m "$model" --frames 2 -n 8 2>>reports
done
echo "\$(grep -c '^a.mp4.This' table.tsv) of \$(wc -l <table.tsv), \$(grep -c b.mp4 reports) reports"
EOF
says shell_describe_folder '^1 of 1, 2 reports$' sh folder.sh
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
