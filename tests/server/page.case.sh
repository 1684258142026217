# The page: its files are those of server/page, with the types and headers that keep a browser safe.
# What the page does is tested by `make check-page`.
serve --samples "$samples"

for file in "$root"/server/page/*; do
    name=$(basename "$file")
    case $name in
    *.html) want='text/html; charset=utf-8' ;;
    *.css) want='text/css; charset=utf-8' ;;
    *.js) want='text/javascript; charset=utf-8' ;;
    esac
    fetch "/page/$name" -D head
    why=
    cmp -s out "$file" || why="other bytes"
    grep -qiF "content-type: $want" head || why="another type: $(grep -i '^content-type' head)"
    grep -qi '^x-content-type-options: nosniff' head || why="the type may be guessed"
    [ "$status" = 200 ] || why="status $status"
    verdict "page_$name" "$why"
done

fetch / -D head
why=
cmp -s out "$root/server/page/index.html" || why="it is not index.html"
grep -qi "^content-security-policy: default-src 'none'; script-src 'self';" head || why="no policy"
grep -qi 'unsafe' head && why="the policy allows inline scripts"
verdict page_policy "$why"

# What the policy would stop, or would ask somebody else.
why=
cat "$root"/server/page/* >all
grep -qiE '<script>|<style>| on[a-z]+="| style="' all && why="inline code in HTML"
grep -qE 'innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(' all && why="text becomes HTML"
grep -oE "(https?:)?//[a-z0-9-]+(\.[a-z0-9-]+)+" all | grep -vx "http://www\.w3\.org" >others && why="it names $(head -n 1 others)"
verdict page_alone "$why"

expect page_no_other_file 404 'there is no GET' /page/../serve.c --path-as-is
expect page_unknown_file 404 'no file' /page/other.js

# What it needs of the server: the methods that can run, and which part of a text each token is.
expect methods 200 '"methods":\[\{"name":"ar","drafter":"none".*"name":"specvlm","drafter":"model","view_name":"specvlm"' /v1/models
chat "{$(about sample-16-frames 'Describe the video.')}"
why=
sum=$(grep -oE '"lengths":\[[0-9,]*\]' out | sed 's/.*\[//; s/\]//' | tr , '\n' | awk '{ n += $1 } END { print n + 0 }')
[ "$sum" = "$(text_of | tr -d '\n' | wc -c)" ] || why="the lengths are $sum bytes of text, which has $(text_of | wc -c)"
verdict lengths "$why"
