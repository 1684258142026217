# Read by the runners of tests/cli and tests/server: counts results and prints one line for each.
# Before it is read, the runner defines show_failure, which prints what a failed test has left.
passed=0
failed=0

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
