# Doubtful heads of requests: refused with 400, and the connection is closed before a body, or a
# second request behind it, is read.
serve --upload-dir files
port=${url##*:}

# head_is NAME STATUS LINES: the lines after the first one, with a body of 14 bytes and a second
# request behind them. STATUS 400: refused. Another one: both requests are answered.
head_is()
{
    { printf 'POST /tokenize HTTP/1.1\r\n' && printf "$3" && printf '\r\n{"prompt":"x"}' &&
        printf 'GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'; } >raw
    judge_head "$1" "$2"
}

# target_is NAME STATUS LINE: a first line, with a Host header.
target_is()
{
    { printf "$3\r\nHost: localhost\r\n\r\n" &&
        printf 'GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'; } >raw
    judge_head "$1" "$2"
}

judge_head()
{
    timeout 5 "$client" "$port" raw raw >out
    ended=$?
    why=
    replies=$(grep -a -oE 'HTTP/1\.1 [0-9]{3} [A-Z]' out | cut -d ' ' -f 2 | tr '\n' ' ')
    expected=$2
    [ "$2" = 400 ] || expected="$2 200"
    [ "$replies" = "$expected " ] || why="replies '$replies' instead of '$expected '"
    [ "$2" != 400 ] || grep -q '{"error":{"message":"' out || why="no sentence"
    [ "$ended" -eq 0 ] || why="the connection stays open"
    verdict "head_$1" "$why"
}

host='Host: localhost\r\n'
length='Content-Length: 14\r\n'
head_is plain 200 "$host$length"
head_is two_lengths 400 "$host${length}Content-Length: 5\r\n"
head_is two_equal_lengths 400 "$host$length$length"
head_is length_before_colon 400 "${host}Content-Length : 14\r\n"
head_is length_folded 400 "${host}Content-Length:\r\n 14\r\n"
head_is length_folded_later 400 "${host}Content-Length: 1\r\n 4\r\n"
head_is encoding_and_length 400 "${host}Transfer-Encoding: chunked\r\n$length"
head_is length_and_encoding 400 "$host${length}Transfer-Encoding: chunked\r\n"
head_is encoding_before_colon 400 "$host${length}Transfer-Encoding : chunked\r\n"
head_is encoding_twice 400 "${host}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"
head_is encoding_other 400 "${host}Transfer-Encoding: gzip, chunked\r\n"
head_is encoding_unknown 400 "$host${length}Transfer-Encoding: xchunked\r\n"
head_is no_host 400 "$length"
head_is empty_host 400 "Host:\r\n$length"
head_is two_hosts 400 "$host$host$length"
for name in '[x' '[::1' '[::1]x' 'localhost:x' 'localhost,evil.example' 'a@localhost' 'local host'; do
    head_is "host_$name" 400 "Host: $name\r\n$length"
done
head_is host_6 200 "Host: [::1]:80\r\n$length"
head_is folded 400 "$host${length}X-A: b\r\n c\r\n"
head_is folded_first 400 " X-A: b\r\n$host$length"
head_is control 400 "$host${length}X-A: b\001c\r\n"
head_is tab 200 "$host${length}X-A: b\tc\r\n"
head_is name_with_bracket 400 "$host${length}X(: c\r\n"
head_is bare_cr 400 "Host: localhost\rX-A: b\r\n$length"
head_is expect_other 400 "$host${length}Expect: x\r\n"
target_is zero 400 'GET /health%%00x HTTP/1.1'
# Allowed: RFC 9112 lets a server take a bare LF for the end of a line.
head_is bare_lf 200 "Host: localhost\n$length"

# Such a request refuses an upload, too, and nothing of it is stored.
printf 'POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n--b\r\n' >raw
judge_head upload 400
# Those that the library refuses in its own words.
for length in +14 -1 0xe '1 4' '14, 14' ''; do
    printf 'POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %s\r\n\r\n{"prompt":"x"}GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n' "$length" >raw
    timeout 5 "$client" "$port" raw raw >out
    why=
    grep -q '^HTTP/1.1 400 ' out && ! grep -q '^HTTP/1.1 2' out || why="$(head -n 1 out)"
    verdict "head_length_$length" "$why"
done

# Pages of other origins, in browsers that do not send Sec-Fetch-Site (plain HTTP to a name of a
# local network): their Origin is another host than the one they ask.
here=${url#http://}
expect origin_other 403 'cors-origin allows them' /tokenize -d '{"prompt":"x"}' -H 'Origin: http://evil.example'
expect origin_null 403 'cors-origin allows them' /tokenize -d '{"prompt":"x"}' -H 'Origin: null'
expect origin_other_port 403 'cors-origin allows them' /tokenize -d '{"prompt":"x"}' -H 'Origin: http://127.0.0.1:1'
expect origin_longer 403 'cors-origin allows them' /tokenize -d '{"prompt":"x"}' -H "Origin: http://${here}0"
expect origin_file 403 'cors-origin allows them' /v1/files -F file=@raw -H 'Origin: http://evil.example'
expect origin_delete 403 'cors-origin allows them' /v1/files/file-none -X DELETE -H 'Origin: http://evil.example'
expect origin_same 200 'tokens' /tokenize -d '{"prompt":"x"}' -H "Origin: http://$here"
expect origin_default_port 200 'tokens' /tokenize -d '{"prompt":"x"}' -H 'Host: localhost:443' -H 'Origin: https://LOCALHOST'
expect origin_none 200 'tokens' /tokenize -d '{"prompt":"x"}'
expect origin_of_proxy 200 'tokens' /tokenize -d '{"prompt":"x"}' -H 'Origin: https://videos.example' -H 'Sec-Fetch-Site: same-origin'
expect origin_get 200 'nano' /v1/models -H 'Origin: http://evil.example'
