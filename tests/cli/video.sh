# Videos and pictures made from nothing but the shell, for the cases that read them: every frame is
# one shade of grey, so which frame was taken can be seen.

# bytes N VALUE: N bytes of that value.
bytes()
{
    head -c "$1" /dev/zero | tr '\0' "\\$(printf '%03o' "$2")"
}

# make_clip FILE FRAMES FPS WIDTH HEIGHT: a YUV4MPEG2 file of full range, so that frame i,
# from 0, is exactly the grey 16 + i % 200.
make_clip()
{
    printf 'YUV4MPEG2 W%d H%d F%d:1 Ip A1:1 C420jpeg XCOLORRANGE=FULL\n' "$4" "$5" "$3" >"$1"
    i=0
    while [ $i -lt "$2" ]; do
        printf 'FRAME\n'
        bytes $(($4 * $5)) $((16 + i % 200))
        bytes $(($4 * $5 / 2)) 128
        i=$((i + 1))
    done >>"$1"
}

# make_picture FILE VALUE WIDTH HEIGHT: a PPM file of one grey.
make_picture()
{
    printf 'P6\n%d %d\n255\n' "$3" "$4" >"$1"
    bytes $(($3 * $4 * 3)) "$2" >>"$1"
}

# The indices of `prevue frames --json`, as words.
json_indices()
{
    grep -o '"index":[0-9]*' out | cut -d: -f 2 | tr '\n' ' ' | sed 's/ $//'
}
