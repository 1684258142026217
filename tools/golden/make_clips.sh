#!/bin/sh
# Makes the clips of tests/data/video with the ffmpeg command (5.1, with libx264, libx265, libaom,
# libvpx and libtheora). `make test` reads the committed clips and needs none of this.
#
#   tools/golden/make_clips.sh [DIR]
#
# Each frame shows its number: eight columns, the lowest bit left, white for 1. The lower half is
# the upper one inverted, so that a turned or mirrored picture does not read right. A grey gradient
# that moves lies over it, so that frames depend on each other.
set -eu
out=${1:-tests/data/video}
mkdir -p "$out"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
exact="-threads 1 -fflags +bitexact -flags:v +bitexact -map_metadata -1"

ff()
{
    ffmpeg -v error -nostdin -y "$@"
}

# counter FRAMES SIZE PIXFMT: options that make the film. 8-bit levels 40 and 200, and +-12 of
# gradient; scaled where there are more bits.
counter()
{
    case $3 in *10*) k=4 ;; *12*) k=16 ;; *) k=1 ;; esac
    bit="mod(floor(N/pow(2,floor(X*8/W)))+gte(Y,H/2),2)"
    echo "-f lavfi -i nullsrc=s=$2:r=25:d=$(awk "BEGIN { print $1 / 25 }")," \
        "format=$3,geq=lum='$k*(40+160*$bit+mod(X+3*N+2*Y,24)-12)':cb=$k*128:cr=$k*128" |
        sed 's/, /,/'
}

film=$(counter 40 64x48 yuv420p)
x264="-c:v libx264 -preset slow -crf 20 -x264-params"

# Groups of pictures with B-frames; open ones; one long group that refreshes gradually.
ff $film $x264 keyint=12:min-keyint=12:scenecut=0:bframes=3:b-pyramid=2 $exact "$out/bframes.mp4"
ff -i "$out/bframes.mp4" -c copy $exact "$out/bframes.mkv"
ff -i "$out/bframes.mp4" -c copy $exact "$out/bframes.ts"
ff -i "$out/bframes.mp4" -c copy $exact "$out/bframes.mov"
ff -i "$out/bframes.mp4" -c copy $exact "$out/bframes.flv"
ff $film $x264 keyint=12:min-keyint=12:scenecut=0:bframes=3:open-gop=1 $exact "$out/opengop.mp4"
ff $film -c:v libx265 -x265-params \
    log-level=error:keyint=12:min-keyint=12:scenecut=0:bframes=3:open-gop=1:pools=1:info=0 -crf 20 \
    $exact "$out/opengop_hevc.mkv"
ff $film $x264 keyint=12:intra-refresh=1:bframes=0:scenecut=0 $exact "$out/refresh.mkv"

# B-frames that refer to each other or not at all; frames of two fields; frames that are not shown.
ff $film $x264 keyint=40:scenecut=0:bframes=3:b-pyramid=0:b-adapt=0 $exact "$out/leaves.mp4"
ff $film $x264 keyint=20:scenecut=0:bframes=7:b-pyramid=2:b-adapt=0 $exact "$out/pyramid.ts"
ff $film $x264 keyint=12:scenecut=0:bframes=3:tff=1 -flags:v +ildct+ilme $exact "$out/interlaced.mp4"
ff $film -c:v libaom-av1 -cpu-used 8 -g 20 -crf 30 -lag-in-frames 16 $exact "$out/av1.mkv"

# Other codecs and containers.
ff $film -c:v mpeg2video -g 12 -bf 2 -q:v 3 $exact "$out/mpeg2.mpg"
ff $film -c:v mpeg4 -g 12 -bf 2 -q:v 3 $exact "$out/mpeg4.avi"
ff $film -c:v flv1 -g 12 -q:v 3 $exact "$out/flv1.flv"
ff $film -c:v libvpx -g 12 -b:v 200k -auto-alt-ref 1 -lag-in-frames 8 $exact -f null -pass 1 \
    -passlogfile "$tmp/vp8" -
ff $film -c:v libvpx -g 12 -b:v 200k -auto-alt-ref 1 -lag-in-frames 8 $exact -pass 2 \
    -passlogfile "$tmp/vp8" "$out/vp8.webm"
ff $film -c:v libvpx-vp9 -g 12 -crf 30 -b:v 0 -auto-alt-ref 1 -lag-in-frames 8 $exact "$out/vp9.webm"
ff $film -c:v libtheora -g 12 -q:v 8 $exact "$out/theora.ogv"
ff $(counter 10 64x48 yuv420p) -vf "format=rgb24" $exact "$out/anim.gif"

# Times that are not regular: every fifth frame stays four times as long.
ff $film -vf "setpts=round((N+3*floor((N+4)/5))/25/TB)" -fps_mode passthrough $x264 \
    keyint=12:bframes=2 $exact "$out/vfr.mkv"
# Turned by the container; cut by an edit list, before which frames are decoded and not shown.
ff -i "$out/bframes.mp4" -c copy -metadata:s:v rotate=90 -fflags +bitexact "$out/rotated.mp4"
ff -ss 0.7 -i "$out/bframes.mp4" -c copy $exact "$out/editlist.mp4"

# Sizes and samples.
ff $(counter 14 61x47 yuv444p10le) $x264 keyint=6:bframes=2 $exact "$out/odd444p10.mkv"
ff $(counter 3 63x49 yuv420p12le) -c:v ffv1 $exact "$out/odd420p12.mkv"
ff $(counter 3 64x48 gray) -c:v ffv1 $exact "$out/gray.mkv"
ff $(counter 6 64x48 yuv422p) $x264 keyint=6 $exact "$out/yuv422.mkv"
ff $(counter 8 64x48 yuv420p) $x264 keyint=4:bframes=0 $exact "$tmp/a.h264"
ff $(counter 8 96x80 yuv420p) $x264 keyint=4:bframes=0 $exact "$tmp/b.h264"
cat "$tmp/a.h264" "$tmp/b.h264" >"$out/two_sizes.h264"

# Pictures.
ff $(counter 6 64x48 yuv420p) -vf "select=eq(n\,5)" -frames:v 1 $exact "$out/still.png"
ff $(counter 6 64x48 yuv420p) -vf "select=eq(n\,5),format=pal8" -frames:v 1 $exact "$out/pal8.png"
ff $(counter 6 64x48 yuv420p) -vf "select=eq(n\,5),format=rgba" -frames:v 1 $exact "$out/rgba.png"
ff $(counter 6 64x48 yuv420p) -vf "select=eq(n\,5)" -frames:v 1 -q:v 2 $exact -f mjpeg "$out/still.jpg"

# Four colours (red, green, blue, grey, each a quarter of the width) by the matrix's own formula.
# bars NAME KR KB FULL TAGS
bars()
{
    awk -v kr="$2" -v kb="$3" -v full="$4" 'BEGIN {
        split("200 30 40 20 180 60 30 60 190 128 128 128", c, " ")
        for (i = 0; i < 4; i++) {
            r = c[3 * i + 1]; g = c[3 * i + 2]; b = c[3 * i + 3]
            y = kr * r + (1 - kr - kb) * g + kb * b
            u = (b - y) / (2 * (1 - kb)); v = (r - y) / (2 * (1 - kr))
            if (!full) { y = 16 + y * 219 / 255; u *= 224 / 255; v *= 224 / 255 }
            Y = Y s int(y + 0.5); U = U s int(u + 128.5); V = V s int(v + 128.5); s = " "
        }
        print Y; print U; print V
    }' >"$tmp/bars"
    plane()
    {
        set -- $(sed -n "$1p" "$tmp/bars")
        echo "if(lt(X,W/4),$1,if(lt(X,W/2),$2,if(lt(X,W*3/4),$3,$4)))"
    }
    ff -f lavfi -i "nullsrc=s=64x16:r=25:d=0.08,format=yuv420p,geq=lum='$(plane 1)':cb='$(plane 2)':cr='$(plane 3)'" \
        -c:v libx264 -qp 0 $5 $exact "$out/bars_$1.mp4"
}
bars 601 0.299 0.114 0 "-colorspace smpte170m -color_range tv"
bars 709 0.2126 0.0722 0 "-colorspace bt709 -color_range tv"
bars 2020 0.2627 0.0593 0 "-colorspace bt2020nc -color_range tv"
bars 601_full 0.299 0.114 1 "-colorspace smpte170m -color_range pc"
bars 709_full 0.2126 0.0722 1 "-colorspace bt709 -color_range pc"
bars none 0.299 0.114 0 ""
