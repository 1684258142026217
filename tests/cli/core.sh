#!/bin/sh
# The build without libraries (make CORE=1) reads GGUF files and gives the ids that the full build
# gives, and says what it left out.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD:-build}
case $build in /*) ;; *) build=$root/$build ;; esac
core=$build/core/prevue
core_lab=$build/core/prevue-lab
full=$build/prevue
dir=$(mktemp -d "${TMPDIR:-/tmp}/prevue-core-XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
passed=0
failed=0

check() # NAME COMMAND...
{
    name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
        echo "ok $name"
    else
        failed=$((failed + 1))
        echo "FAIL $name"
    fi
}

no_libraries()
{
    ! ldd "$core" | grep -E 'jansson|pcre2|utf8proc|libav|libsw|libz'
}

same_ids()
{
    args="generate -m $dir/m.gguf --prompt-ids 3,1,4,1,5 -n 16 --ignore-eos --json"
    a=$("$core" $args | sed -n 's/.*"ids":\[\([0-9,]*\)\].*/\1/p')
    b=$("$full" $args | sed -n 's/.*"ids":\[\([0-9,]*\)\].*/\1/p')
    echo "  core $a"
    echo "  full $b"
    [ -n "$a" ] && [ "$a" = "$b" ]
}

one_sentence() # STATUS ARGS...: fails with that status and one line on stderr
{
    fails_with "$core" "$@"
}

lab_sentence() # the same of prevue-lab
{
    fails_with "$core_lab" "$@"
}

fails_with() # PROGRAM STATUS ARGS...
{
    program=$1
    want=$2
    shift 2
    "$program" "$@" >"$dir/out" 2>"$dir/err"
    got=$?
    cat "$dir/err"
    [ $got -eq "$want" ] && [ "$(wc -l <"$dir/err")" -eq 1 ]
}

# A question that the full build prepared, in words there and in ids here.
prepared()
{
    . "$root/tests/cli/video.sh"
    make_clip "$dir/film.y4m" 8 4 64 48
    "$build/core/make_model" --shape tiny-ov --type q8_0 "$dir/v.gguf" >"$dir/out" || return 1
    "$full" prepare "$dir/film.y4m" --frames 4 -m "$dir/v.gguf" -o "$dir/film.pvin" || return 1
    a=$("$full" describe "$dir/film.y4m" --frames 4 -m "$dir/v.gguf" -n 16 --ignore-eos --temp 1 --json |
        sed -n 's/.*"ids":\[\([0-9,]*\)\].*/\1/p' | tr ',' ' ')
    b=$("$core" describe "$dir/film.pvin" -m "$dir/v.gguf" -n 16 --ignore-eos --temp 1)
    c=$("$core" describe "$dir/film.pvin" -m "$dir/v.gguf" -n 16 --ignore-eos --temp 1 -d self --json |
        sed -n 's/^{"ids":\[\([0-9,]*\)\].*/\1/p' | tr ',' ' ')
    echo "  full $a"
    echo "  core $b"
    echo "  core $c"
    [ -n "$a" ] && [ "$a" = "$b" ] && [ "$a" = "$c" ]
}

prepared_bench()
{
    "$core_lab" bench "$dir/film.pvin" -m "$dir/v.gguf" -d "$dir/v.gguf" --methods sd,specvlm,pearl \
        -n 16 --ignore-eos -r 1 >"$dir/out" && [ "$(grep -c ' yes ' "$dir/out")" -eq 4 ]
}

check libraries no_libraries
check make_model "$build/core/make_model" --shape micro --type q8_0 "$dir/m.gguf"
check version "$core" version
check inspect "$core" inspect "$dir/m.gguf"
check same_ids same_ids
check directory_is_refused one_sentence 1 inspect "$root/tests/golden/qwen2"
check frames_is_left_out one_sentence 2 frames x -o y
check video_is_refused one_sentence 1 describe x -m "$dir/m.gguf"
check prepared prepared
check prepared_bench prepared_bench
check serve_is_left_out one_sentence 1 serve
check view_is_left_out lab_sentence 2 view x
check prepare_is_left_out one_sentence 2 prepare x -o y.pvin
check video_is_still_refused one_sentence 1 describe "$dir/film.y4m" -m "$dir/v.gguf"
check text_is_refused one_sentence 1 generate -m "$dir/m.gguf" -p hello
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
