#!/bin/sh
# Three replicas behind HAProxy and behind nginx (examples/replicas), under load: one is killed, then
# all are restarted one after the other.
#
#   tests/replicas/run.sh [haproxy|nginx]
#
# PREVUE names the program (default: that of $BUILD). A balancer that is not installed is skipped.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=${BUILD:-build}
case $build in /*) ;; *) build=$root/$build ;; esac
PATH=$PATH:/usr/sbin
failed=0
for balancer in haproxy nginx; do
    case $balancer in *"${1:-}"*) ;; *) continue ;; esac
    if ! command -v $balancer >/dev/null || ! command -v python3 >/dev/null; then
        echo "SKIP $balancer: needs python3 and $balancer (apt-get install haproxy nginx-light)"
        continue
    fi
    python3 "$here/replicas_load.py" "${PREVUE:-$build/prevue}" "$root" $balancer || failed=1
done
exit $failed
