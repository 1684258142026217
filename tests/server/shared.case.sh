# Two servers that share --upload-dir: each finds what the other was given, while both run and after
# either has ended.
serve --samples "$samples" --upload-dir together
one_server=$server one_url=$url server=
serve --samples "$samples" --upload-dir together
two_url=$url

url=$one_url
fetch /v1/files -F purpose=user_data -F "file=@$samples/16-frames.mp4;type=video/mp4;filename=a \"clip\".mp4"
id=$(member id)
chat "{$(about "$id" 'Describe the video.')}"
text_of >one.text
url=$two_url
expect shared_found 200 '"filename":"a .*clip.*mp4","purpose":"user_data"' "/v1/files/$id"
fetch "/v1/files/$id/content" -D head
why=
cmp -s out "$samples/16-frames.mp4" || why="other bytes"
grep -qi '^content-type: video/mp4' head || why="another type"
verdict shared_content "$why"
chat "{$(about "$id" 'Describe the video.')}"
why=
[ -s one.text ] && [ "$(text_of)" = "$(cat one.text)" ] || why="another text than the first server's"
verdict shared_answer "$why"

# Listed without having been asked for, and counted.
fetch /v1/files -F "file=@$samples/32-frames.mp4"
other=$(member id)
url=$one_url
expect shared_listed 200 "$other" /v1/files

# What one removes is gone for all.
expect shared_removed 200 '"deleted":true' "/v1/files/$other" -X DELETE
url=$two_url
expect shared_gone 404 'there is no file' "/v1/files/$other"
fetch /v1/files
why=
grep -q "$other" out && why="it is still listed"
grep -q "$id" out || why="the other file is not listed"
verdict shared_gone_from_list "$why"

# Ids that are none: not complete, half a description, a link out of the directory, a path.
zeros=000000000000000000000000
cp "$samples/16-frames.mp4" "together/file-1${zeros#0}"
cp "$samples/16-frames.mp4" "together/file-2${zeros#0}"
printf 'prevue-file 1\nvision\nvideo' >"together/file-2${zeros#0}.info"
ln -s "$samples/16-frames.mp4" "together/file-3${zeros#0}"
cp "together/$id.info" "together/file-3${zeros#0}.info"
cp "together/$id.info" outside.info
cp "$samples/16-frames.mp4" outside
for bad in "file-1${zeros#0}" "file-2${zeros#0}" "file-3${zeros#0}" ..%2Foutside outside file- "$id.info"; do
    expect "shared_not_$bad" 404 'there is no' "/v1/files/$bad" --path-as-is
done
fetch /v1/files
why=
grep -qE 'file-[123]000' out && why="a file that is not complete is listed"
verdict shared_not_listed "$why"

# A graceful end of the first leaves its files; a new server knows them.
kill -TERM "$one_server"
wait "$one_server" || true
expect shared_outlives 200 "$id" "/v1/files/$id"
stop_server
serve --samples "$samples" --upload-dir together
expect shared_next_server 200 "$id" /v1/files
expect shared_cleared 200 '"deleted":true' "/v1/files/$id" -X DELETE
why=
[ -z "$(find together -name "$id*")" ] || why="something of the file stayed behind"
verdict shared_nothing_left "$why"
stop_server
