#!/bin/sh
# Print C source that holds the given files as struct page_file (server/page.h).
#
#   tools/embed.sh FILE...
set -eu
printf '#include "server/page.h"\n'
i=0
for file; do
    printf '\nstatic const unsigned char file%d[] = {\n' $i
    od -An -v -tx1 "$file" | sed 's/ *\([0-9a-f][0-9a-f]\)/0x\1,/g'
    printf '};\n'
    i=$((i + 1))
done
printf '\nconst struct page_file page_files[] = {\n'
i=0
for file; do
    printf '    { "%s", file%d, sizeof file%d },\n' "$(basename "$file")" $i $i
    i=$((i + 1))
done
printf '};\nconst int n_page_files = sizeof page_files / sizeof *page_files;\n'
