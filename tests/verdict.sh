# Read by the runners of tests/cli and tests/server: counts results and prints one line for each.
# Before it is read, the runner defines show_failure, which prints what a failed test has left.
passed=0
failed=0

# left_out CASE: whether `make test` leaves this case out ("tests/cli: CASE" in tests/only_all.txt); a
# runner names itself in $suite. A runner that is started without TEST_LEFT_OUT runs everything.
left_out()
{
    [ -n "${TEST_LEFT_OUT:-}" ] && grep -qxF "$suite: $1" "$TEST_LEFT_OUT"
}

# verdict NAME [REASON]: the test has passed, or it has failed for this reason.
verdict()
{
    if [ -z "${2:-}" ]; then
        passed=$((passed + 1))
        echo "ok $1"
    else
        failed=$((failed + 1))
        echo "FAIL $1: $2"
        show_failure
    fi
}
