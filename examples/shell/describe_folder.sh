#!/bin/sh
# Describe every video of a folder into a table: name, tab, text. Run again, it goes on where it was.
#
#   examples/shell/describe_folder.sh FOLDER TABLE.tsv [OPTIONS OF prevue describe...]
#
# For thousands of clips `prevue batch` is better: it loads the model once and answers several at a time (doc/batch.md).
set -eu
prevue=${PREVUE:-prevue}
folder=${1:?usage: describe_folder.sh FOLDER TABLE.tsv [OPTIONS...]}
table=${2:?usage: describe_folder.sh FOLDER TABLE.tsv [OPTIONS...]}
shift 2
touch "$table"
for video in "$folder"/*.mp4 "$folder"/*.mkv "$folder"/*.webm "$folder"/*.mov; do
    [ -f "$video" ] || continue
    name=${video##*/}
    ! cut -f 1 "$table" | grep -qxF -- "$name" || continue
    # A video that cannot be read is reported by prevue, and the others follow.
    text=$("$prevue" describe "$@" "$video") || continue
    printf '%s\t%s\n' "$name" "$(printf '%s' "$text" | tr '\n\t' '  ')" >>"$table"
done
