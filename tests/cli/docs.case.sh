# What README.md and the pages of doc/ name exists: files, headings, commands, options, targets of make.

pages=$(cd "$root" && find . -name '*.md' -not -path './build/*' -not -path './.*/*' | sed 's|^\./||' | LC_ALL=C sort)
ran="check_docs.pl, all pages"
perl "$here/check_docs.pl" "$root" "$prevue" "$lab" $pages >out 2>err
status=$? why=
[ "$(echo "$pages" | wc -l)" -ge 20 ] || why="there are few pages: $pages"
[ "$status" -eq 0 ] && [ ! -s err ] || why="a page names what does not exist"
verdict docs_exist "$why"

# The checker itself: each of these lines has one mistake, but for the last, which has none.
mkdir -p page/doc page/src
: >page/src/here.c
printf 'here:\nCC ?= cc\n\techo $(CC)\n' >page/Makefile
cat >page/wrong.md <<'EOF'
See [a page](doc/gone.md).

See [a heading](wrong.md#no-such-heading).

`src/gone.c` is a file.

So is `gone.c`.

Run `prevue frobnicate`.

Run `prevue describe clip.mp4 --frobnicate 3`.

Run `prevue describe clip.mp4 --kv-type f17`.

Use `--frobnicate`.

Run `make gone`.

Run `make GONE=1`.

    ./prevue describe clip.mp4 \
        --frobnicate

Run `prevue bench clips`.

Run `prevue-lab bench clips --frobnicate`.

`src/here.c`, `src/<name>.c`, `src/*.c`, [here](wrong.md), `prevue describe --frames 3`, `prevue-lab bench --frames 3`, `make here CC=gcc`
EOF
ran="check_docs.pl page/wrong.md"
perl "$here/check_docs.pl" "$dir/page" "$prevue" "$lab" wrong.md >out 2>err
status=$? why=
wrong=$(sed 's/^wrong.md:\([0-9]*\):.*/\1/' out | tr '\n' ' ')
[ "$wrong" = "1 3 5 7 9 11 13 15 17 19 22 24 26 " ] || why="mistakes on lines $wrong"
[ "$status" -eq 1 ] && [ ! -s err ] || why="exit status is not 1"
verdict docs_mistakes_are_found "$why"

# The README lists every member of the object that describe --json prints.
run describe "$root/samples/16-frames.mp4" -m "$root/models/nano.gguf" --frames 2 -n 2 --json
why=
[ "$status" -eq 0 ] || why="exit status is not 0"
# Members of the outermost object: what is nested is cut away, innermost first, and so are texts.
members=$(sed 's/"text":"[^"]*"/"text":0/; s/"file":"[^"]*"/"file":0/' out |
    sed -e ':again' -e 's/{[^{}]*}\([^$]\)/0\1/; s/\[[^][]*\]/0/' -e 't again' | grep -o '"[a-z_]*":' | tr -d '":')
for member in $members; do
    grep -q "\`$member\`" "$root/README.md" || why="the README does not list $member"
done
[ "$(echo "$members" | wc -w)" -ge 15 ] || why="there are few members: $members"
verdict readme_lists_json "$why"
