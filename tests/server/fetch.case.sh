# Media of other servers, fetched by libcurl: redirects, names whose addresses change, long and slow
# replies. The servers and their names are in a network namespace (fetch_world.py); public addresses
# are needed, and nothing here may reach real ones.
if ! "$prevue" version --verbose | grep -q '^server: .*libcurl/'; then
    echo "skip fetch: this build has no libcurl"
elif ! command -v ip >/dev/null || ! command -v python3 >/dev/null; then
    echo "skip fetch: needs ip (iproute2) and python3"
elif ! unshare -rnm true 2>/dev/null; then
    echo "skip fetch: namespaces cannot be made here (unshare -rnm)"
else
    : >out
    unshare -rnm --fork --kill-child python3 "$here/fetch_world.py" "$prevue" "$target" \
        "$samples/16-frames.mp4" >fetched 2>out
    why="exit status $?"
    while IFS='|' read -r name reason; do
        verdict "fetch_$name" "$reason"
    done <fetched
    grep -q '^slow_reply_left|' fetched && [ "$why" = "exit status 0" ] && why=
    verdict fetch_all "$why"
fi
