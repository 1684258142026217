# Command lines that make no sense: exit 2, one sentence that names the option.

run
why=
[ "$status" -eq 2 ] || why="exit status is not 2"
grep -q '^usage: prevue' err || why="no usage on stderr"
[ ! -s out ] || why="stdout is not empty"
verdict no_command "$why"

misuse unknown_command 'unknown command "generat" .did you mean generate' generat
misuse unknown_far_command 'unknown command "xyzzy"' xyzzy
misuse empty_command 'unknown command ""' ''
# The commands of the laboratory were commands of prevue.
for words in 'bench --videos x' 'view x -o y.png' 'help bench' 'help view'; do
    run_program "$prevue" $words
    name=${words#help }
    why=$(one_sentence "^prevue: the command ${name%% *} has moved: it is now 'prevue-lab ${name%% *}'; see 'prevue help'\$")
    [ "$status" -eq 2 ] || why="exit status is not 2"
    verdict "moved_$(echo "$words" | cut -d ' ' -f 1,2 | tr ' ' _)" "$why"
done
for words in describe --help version; do
    run_program "$lab" $words
    why=
    case $words-$status in
    describe-2 | version-2) why=$(one_sentence '^prevue-lab: unknown command ') ;;
    --help-0) grep -q '^usage: prevue-lab COMMAND' out || why="no usage" ;;
    *) why="exit status is $status" ;;
    esac
    verdict "lab_$words" "$why"
done
run_program "$lab" --version
why=
grep -qE '^prevue-lab [0-9]+\.[0-9]+' out || why="no version"
verdict lab_version_option "$why"
run_program "$lab" help bench extra
why=$(one_sentence 'unexpected argument "extra"; see .prevue-lab help help')
[ "$status" -eq 2 ] || why="exit status is not 2"
verdict lab_help_two_commands "$why"

misuse unknown_option 'unknown option --temprature .did you mean --temperature' generate --temprature 1
misuse unknown_letter 'unknown option -Z' generate -Z
misuse unknown_option_with_value 'unknown option --colour;' generate --colour=red
misuse missing_value 'option --model needs a value' generate -p x --model
misuse option_for_a_value 'option -m needs a value .*-p is an option' generate -m -p x
misuse flag_with_value 'option --json takes no value' generate --json=1
misuse unexpected_argument 'unexpected argument "word"' generate -m x -p y word
misuse no_model 'no model' generate -p x
misuse no_prompt 'no prompt' generate -m x
misuse two_prompts 'more than one prompt' generate -m x -p a -f b
misuse ids_with_system '--system cannot be combined with --prompt-ids' generate -m x --prompt-ids 1 --system y
misuse raw_with_system '--system cannot be combined with --raw' generate -m x -p z --raw --system y
misuse ids_without_thinking '--no-thinking cannot be combined with --prompt-ids' generate -m x --prompt-ids 1 --no-thinking
misuse raw_without_thinking '--no-thinking cannot be combined with --raw' generate -m x -p z --raw --no-thinking
misuse prepared_without_thinking '--no-thinking cannot be used with a prepared prompt' describe a.pvin --no-thinking

for value in 0 -1 '' abc 1.5 1e3 ' 7' '7 ' 0x10 2147483648 99999999999999999999999; do
    misuse "max_tokens_$value" 'option -n takes a whole number from 1 to' \
        generate -m x -p y -n "$value"
done
misuse threads_negative 'option --threads takes a whole number from 0 to 256, not "-4"' \
    generate -m x -p y --threads -4
misuse threads_huge 'option -t takes .*not "100000"' generate -m x -p y -t 100000
misuse threads_attached 'option -t takes .*not "x"' generate -m x -p y -tx
misuse context_huge 'option -c takes' generate -m x -p y -c 999999999
for value in nan inf -1 101 1e999 '' x 0.5x; do
    misuse "temperature_$value" 'option --temp takes a number from 0 to 100' \
        generate -m x -p y --temp "$value"
done
misuse top_p_above_one 'option --top-p takes a number from 0 to 1' generate -m x -p y --top-p 1.01
misuse min_p_negative 'option --min-p takes a number from 0 to 1' generate -m x -p y --min-p -0.1
misuse top_k_negative 'option --top-k takes' generate -m x -p y --top-k -1
for value in -1 '' 0x 18446744073709551616 12a; do
    misuse "seed_$value" 'option --seed takes' generate -m x -p y --seed "$value"
done
for value in -1 '' K 1Q 1KK 18446744073709551616 16777216T; do
    misuse "bytes_$value" 'option --limit-memory takes a number of bytes' \
        generate -m x -p y --limit-memory "$value"
done
misuse kv_type 'option -ctk takes one of: auto f16 bf16 f32; not "q4"' generate -m x -p y -ctk q4
misuse cpumask 'option --cpumask takes' generate -m x -p y --cpumask sse9
misuse cpumask_empty 'option --cpumask takes' generate -m x -p y --cpumask ''
for value in '' , 1,,2 1,x -1 1,-2 99999999999999999999 2147483648 1,2, '1;2'; do
    misuse "ids_$value" 'option --prompt-ids takes' generate -m x --prompt-ids "$value"
done

misuse tokenize_no_text 'either a text or --file' tokenize -m x
misuse tokenize_two_texts 'unexpected argument' tokenize -m x a b
misuse tokenize_text_and_file 'either a text or --file' tokenize -m x a -f b
misuse tokenize_no_model 'no model' tokenize a
misuse inspect_no_model 'no model' inspect
misuse inspect_twice 'given twice' inspect -m a b
misuse inspect_two 'unexpected argument' inspect a b
misuse convert_nothing 'source is missing' convert
misuse convert_no_output 'output file is missing' convert a --type f16
misuse convert_no_type 'no type' convert a b
misuse convert_type '--type takes one of: f32 f16 bf16 q8_0 q4_0 q4_1 q5_1; not "q9"' convert a b --type q9
misuse help_unknown 'unknown command "me"' help me
misuse help_two_commands 'unexpected argument "batch"' help serve batch
misuse help_of_two_kinds 'one of a command, --man and --completions' help serve --man
misuse help_shell 'takes one of: bash zsh fish; not "tcsh"' help --completions tcsh
misuse version_argument 'unexpected argument' version 2

succeeds help '^usage: prevue COMMAND' help
succeeds help_option '^usage: prevue COMMAND' --help
succeeds version '^prevue [0-9]+\.[0-9]+' version
succeeds version_option '^prevue [0-9]+\.[0-9]+' --version
for command in serve describe chat models bench view frames generate tokenize inspect convert; do
    succeeds "help_$command" "^usage: prevue(-lab)? $command" help "$command"
    cp out help.txt
    output "help_all_of_$command" help.txt "$command" --help-all
    run "$command" --help
    cp out short.txt
    output "help_letter_of_$command" short.txt "$command" -h
    why=$(awk 'length > 80 { print "line " NR " is wider than 80" }' help.txt short.txt)
    verdict "help_width_of_$command" "$why"
done

# serve
misuse serve_port '--port' serve --port 70000
misuse serve_requests '--max-requests' serve --max-requests 65
misuse serve_queue '--max-queue' serve --max-queue 0
misuse serve_connections '--max-connections' serve --max-connections many
misuse serve_tokens '--max-tokens' serve --max-tokens 0
misuse serve_body '--max-body' serve --max-body much
misuse serve_upload '--max-upload' serve --max-upload -1
misuse serve_files '--max-files' serve --max-files x
misuse serve_memory '--kv-memory' serve --kv-memory x
misuse serve_drain '--drain-seconds' serve --drain-seconds -1
misuse serve_timeout '--client-timeout' serve --client-timeout 0
misuse serve_media_path 'there is no directory "none-such"' serve --media-path none-such
misuse serve_samples '--samples: there is no directory "none-such"' serve --samples none-such
for domain in '' . 'http://example.org' example.org/clips 'example.org ' 'a b' '*.example.org' example.org: \
    example.org:0 example.org:65536 example.org:http user@example.org a..b ..example.org ::1 '[::1' '[x]' \
    127.1 0x7f.1 2130706433 .8.8 'example.org,example.net'; do
    misuse "serve_domain_$domain" '--allow-domain: expected a host' serve -m x.gguf --port 0 --allow-domain "$domain"
done
for domain in example.org .example.org:8080 example.org. 127.0.0.1.example.com 8.8.8.8 '[2600::1]:81' 4chan.example; do
    failure "serve_domain_$domain" 'x.gguf' serve -m x.gguf --port 0 --access-log none --allow-domain "$domain"
done
misuse serve_operand 'clip.mp4' serve clip.mp4
misuse serve_cache_kv '--cache-dir' serve -m x.gguf --cache-kv
failure serve_keys 'none-such' serve -m x.gguf --api-key-file none-such --port 0
usual_tmpdir=${TMPDIR-}
export TMPDIR=/none/such
failure serve_tmpdir '/none/such: cannot be written' serve -m x.gguf --port 0 --access-log none
if [ -n "$usual_tmpdir" ]; then TMPDIR=$usual_tmpdir; else unset TMPDIR; fi
failure serve_model 'x.gguf' serve -m x.gguf --port 0 --access-log none
misuse two_drafters '--draft self and --head are two drafters' describe a.mp4 -m x -d self --head h

# The kernel checkers: a word that no test's name contains is misuse, whatever the other words choose.
for checker in check_kernels check_cudasim; do
    [ -x "$build/$checker" ] || continue
    ran="$checker rmsnorm none-such"
    level=
    [ $checker = check_cudasim ] || level='--level ref'
    "$build/$checker" $level rmsnorm none-such >"$dir/out" 2>"$dir/err"
    status=$?
    why=
    grep -q "no test has 'none-such' in its name; there are .*rmsnorm" "$dir/err" || why="no list of tests"
    grep -q '^1 passed, 0 failed' "$dir/out" || why="the other word chose nothing"
    [ "$status" -eq 2 ] || why="exit status is not 2"
    verdict "word_of_$checker" "$why"
done
