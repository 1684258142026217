# What every serial method does on the samples, counted: tokens, passes of the model, tokens drafted
# and accepted, rejections, video tokens seen by each side. With the reference kernels (--cpumask 0)
# a count is a function of the code, the models and the samples: tests/data/counts.csv has them all,
# and a row that changes was changed by a commit. Times are in no row.
#
#   UPDATE=1 tests/cli/run.sh counts     writes that file anew; look at what git diff says of it
#
# Reference kernels are slow. So the pair reads one sample; all four are for nano-draft alone, which
# then drafts for itself and errs only by what its view left out. Methods that ask the clock cannot
# be here: --schedule serial makes chains of hippo (view holistic), parallelvlm (alignment) and auto
# (specvlm). The C library's expf and its like and FFmpeg's decoder have a part in the bits
# as well: where another version of them moves a count, look before you renew.

counts_file=$root/tests/data/counts.csv
counts_draft=$root/models/nano-draft.gguf
counts_all=sd,sd-tree,sd-rand,sd-uniform,sd-window,sd-frame,sd-fastvid,sd-dycoke,onsd,std,specvlm
counts_all=$counts_all,ngram,hippo,parallelvlm,auto
counts_names=method,drafter,view,ratio,tokens,passes,proposed,accepted,rejections,video_tokens
counts_names=$counts_names,draft_video_tokens,identical

# rows MODEL: the counts of each clip and method in bench's JSON, as CSV.
rows()
{
    tr '{' '\n' <counts.json | awk -v model="$1" -v names="$counts_names" '
        BEGIN { n = split(names, name, ",") }
        function member(key,    at, rest) {
            at = index($0, "\"" key "\":")
            if (!at)
                return ""
            rest = substr($0, at + length(key) + 3)
            sub(/[,}].*/, "", rest)
            gsub(/"/, "", rest)
            return rest
        }
        /^"video":"/ { clip = member("video"); sub(/.*\//, "", clip); sub(/\.mp4$/, "", clip) }
        /^"method":/ && clip {
            line = model "," clip
            for (i = 1; i <= n; i++)
                line = line "," member(name[i])
            print line
        }'
}

# count MODEL CLIPS ARGS...: runs bench on the samples CLIPS and adds its rows to counts.csv; those
# of ar only once.
count()
{
    counts_model=$1
    counts_videos=
    for clip in $2; do
        counts_videos="$counts_videos --videos $root/samples/$clip-frames.mp4"
    done
    shift 2
    run bench $counts_videos -m "$root/models/$counts_model.gguf" -d "$counts_draft" --cpumask 0 \
        --schedule serial --repeat 1 --json counts.json "$@"
    [ "$status" -eq 0 ] || counts_why="exit status is not 0"
    rows "$counts_model" | grep -vxFf counts.csv >new.csv
    cat new.csv >>counts.csv
}

echo "model,clip,$counts_names" >counts.csv
counts_why=
if left_out "counts of all samples"; then
    count nano-draft 16 --frames 4 -n 32 --methods $counts_all
    grep -E '^(model|nano-draft,16-frames),?' "$counts_file" | grep -v ',attention,' >expected.csv
else # takes a minute
    count nano-draft "16 32 64 160" --frames 4 -n 32 --methods $counts_all
    count nano-draft "16 64" --frames 4 -n 32 --methods sd --view attention
    count nano 160 --frames 2 -n 24 --methods $counts_all
    [ -z "${UPDATE:-}" ] || [ -n "$counts_why" ] || cp counts.csv "$counts_file"
    cp "$counts_file" expected.csv
fi
[ "$(wc -l <counts.csv)" -gt 16 ] || counts_why="there are hardly any rows"
verdict counts_run "$counts_why"
verdict counts_identical "$(sed 1d counts.csv | grep -v ',true$')"
# Made on x86_64: elsewhere the C library and FFmpeg round otherwise, and only the answers are held.
why=
if [ "$(uname -m)" = x86_64 ] && ! diff expected.csv counts.csv >counts.diff; then
    why="$(grep -c '^>' counts.diff) rows differ; expected (<) and counted (>):
$(sed 's/^/    /' counts.diff | head -n 40)"
fi
verdict counts_are_those_committed "$why"
