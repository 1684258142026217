# Read by the tests of this folder: counts, and one line for each check.
passed=0
failed=0

check() # NAME COMMAND...
{
    name=$1
    shift
    if "$@" >"$dir/log" 2>&1; then
        passed=$((passed + 1))
        echo "ok $name"
    else
        failed=$((failed + 1))
        echo "FAIL $name:"
        tail -n 40 "$dir/log"
    fi
}
