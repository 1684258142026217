#!/bin/sh
# Three prevue serve processes behind HAProxy or nginx, on the loopback.
#
#   examples/replicas/run.sh haproxy|nginx [OPTIONS of prevue serve]
#
# PORT (8080) is the balancer's; the replicas have the next three. PREVUE names the program (prevue).
# DIR keeps logs, process ids, uploads and the cache; without it a temporary directory does.
#
# SIGHUP restarts the replicas one after the other: each finishes its requests, and the next one
# follows when it is ready again. A replica that dies is started anew. SIGINT and SIGTERM end
# everything: first the balancer, when its requests have ended, then the replicas.
set -u
here=$(cd "$(dirname "$0")" && pwd)
prevue=${PREVUE:-prevue}
port=${PORT:-8080}
kind=${1:-}
[ $# -gt 0 ] && shift
PATH=$PATH:/usr/sbin
case $kind in
haproxy) config=haproxy.cfg ;;
nginx) config=nginx-replicas.conf ;;
*)
    echo "usage: examples/replicas/run.sh haproxy|nginx [OPTIONS of prevue serve]" >&2
    exit 2
    ;;
esac
for program in "$kind" "$prevue"; do
    command -v "$program" >/dev/null && continue
    echo "run.sh: $program is not installed" >&2
    exit 1
done
made=
[ -n "${DIR:-}" ] || made=$(mktemp -d "${TMPDIR:-/tmp}/prevue-replicas-XXXXXX") || exit 1
dir=${DIR:-$made}
mkdir -p "$dir" && dir=$(cd "$dir" && pwd) || exit 1
balancer=
stopping=
rolling=
trap 'stopping=1' INT TERM
trap 'rolling=1' HUP

say()
{
    echo "replicas: $*"
}

# start N OPTIONS...
start()
{
    n=$1
    shift
    # Their own signals come from here, not from the terminal.
    (trap '' INT && exec "$prevue" serve --port $((port + n)) --upload-dir "$dir/files" --cache-dir "$dir/cache" "$@") \
        >"$dir/$n.out" 2>>"$dir/$n.err" &
    echo $! >"$dir/$n.pid"
}

pid_of()
{
    cat "$dir/$1.pid"
}

alive()
{
    kill -0 "$1" 2>/dev/null
}

# Until replica N has loaded its model.
ready()
{
    until grep -q ' at http' "$dir/$1.out"; do
        alive "$(pid_of "$1")" || return 1
        [ -z "$stopping" ] || return 1
        sleep 0.1
    done
}

# Until a process has ended.
ended()
{
    while alive "$1"; do
        sleep 0.1
    done
}

start_balancer()
{
    sed "s/127\.0\.0\.1:808\([0-3]\)/127.0.0.1:PORT\1/
         s/PORT0/$port/; s/PORT1/$((port + 1))/; s/PORT2/$((port + 2))/; s/PORT3/$((port + 3))/" \
        "$here/$config" >"$dir/$config"
    if [ "$kind" = haproxy ]; then
        (trap '' INT && exec haproxy -db -f "$dir/$config") >"$dir/balancer.log" 2>&1 &
    else
        user=
        [ "$(id -u)" -ne 0 ] || user="user root;"
        (trap '' INT && exec nginx -p "$dir/" -c "$dir/$config" -e "$dir/balancer.log" -g "daemon off; $user") 2>/dev/null &
    fi
    balancer=$!
}

stop_balancer()
{
    [ -n "$balancer" ] || return 0
    # Both: no new connections, and the end when the open ones have ended.
    kill -"$([ "$kind" = haproxy ] && echo USR1 || echo QUIT)" "$balancer" 2>/dev/null
    ended "$balancer"
    balancer=
}

restart_all()
{
    rolling=
    for i in 1 2 3; do
        ready $i || return # one that was started again just now
    done
    for i in 1 2 3; do
        [ -z "$stopping" ] || return
        say "replica $i drains"
        kill -TERM "$(pid_of $i)"
        ended "$(pid_of $i)"
        start $i "$@"
        ready $i || return
        say "replica $i is ready again"
        sleep 3 # longer than a balancer keeps away from a replica that has failed
    done
    say "all replicas are restarted"
}

for i in 1 2 3; do
    start $i "$@"
done
for i in 1 2 3; do
    ready $i && continue
    [ -n "$stopping" ] || say "replica $i did not start: $(tail -n 1 "$dir/$i.err")" >&2
    stopping=failed
done
if [ -z "$stopping" ]; then
    start_balancer
    say "serving at http://127.0.0.1:$port behind $kind; files are in $dir"
fi
while [ -z "$stopping" ]; do
    sleep 0.2
    if ! alive "$balancer"; then
        say "$kind has ended: $(tail -n 1 "$dir/balancer.log")" >&2
        stopping=failed
    fi
    for i in 1 2 3; do
        alive "$(pid_of $i)" && continue
        [ -z "$stopping" ] || continue
        say "replica $i has died and is started again"
        start $i "$@"
    done
    [ -z "$rolling" ] || restart_all "$@"
done
stop_balancer
for i in 1 2 3; do
    kill -TERM "$(pid_of $i)" 2>/dev/null
done
for i in 1 2 3; do
    ended "$(pid_of $i)"
done
[ -z "$made" ] || rm -rf "$made"
say "ended"
[ "$stopping" != failed ]
