#!/usr/bin/env python3
"""CPU seconds to read frames of a video, evenly spaced, beside decord and torchcodec.

    python3 bench/peer_video.py --prevue build/bench_video --frames 32,128 --runs 5 VIDEO...

Every run is a process of its own; the readers take turns. CPU seconds are those of reading: of the
whole process for prevue (its helper included), without the import of the package for the others.
Writes CSV to stdout: the median and all runs.
"""
import argparse
import os
import resource
import statistics
import subprocess
import sys


def cpu():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return u.ru_utime + u.ru_stime


def indices(total, n):
    return [int((total - 1) * i / max(n - 1, 1)) for i in range(n)]


def read_decord(path, n):
    import decord

    start = cpu()
    reader = decord.VideoReader(path, num_threads=int(os.environ.get("THREADS", 0)))
    reader.get_batch(indices(len(reader), n)).asnumpy()
    return cpu() - start


def read_torchcodec(path, n):
    import torch  # noqa: F401
    from torchcodec.decoders import VideoDecoder

    start = cpu()
    decoder = VideoDecoder(path, num_ffmpeg_threads=int(os.environ.get("THREADS", 1)))
    decoder.get_frames_at(indices(len(decoder), n))
    return cpu() - start


def one_run(reader, path, n):
    if reader.startswith("prevue"):
        command = [reader.split("=", 1)[1], path, str(n)]
        return float(subprocess.check_output(command, text=True).split(",")[-2])
    command = [sys.executable, __file__, "--reader", reader, "--frames", str(n), path]
    return float(subprocess.check_output(command, text=True))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--prevue", action="append", default=[], help="NAME=PROGRAM or PROGRAM")
    p.add_argument("--peers", default="decord,torchcodec")
    p.add_argument("--frames", default="32,128")
    p.add_argument("--runs", type=int, default=5)
    p.add_argument("--reader", help="read once with this package, and print the seconds")
    p.add_argument("videos", nargs="+")
    a = p.parse_args()
    if a.reader:
        read = {"decord": read_decord, "torchcodec": read_torchcodec}[a.reader]
        print(f"{read(a.videos[0], int(a.frames)):.3f}")
        return
    readers = ["prevue=" + x if "=" not in x else "prevue-" + x for x in a.prevue]
    readers += [x for x in a.peers.split(",") if x]
    print("video,frames,reader,median_cpu_s,runs_cpu_s", flush=True)
    for video in a.videos:
        for n in a.frames.split(","):
            runs = {r: [] for r in readers}
            for _ in range(a.runs):
                for r in readers:
                    runs[r].append(one_run(r, video, int(n)))
            for r in readers:
                times = " ".join(f"{t:.3f}" for t in runs[r])
                name = r.split("=")[0]
                print(f"{os.path.basename(video)},{n},{name},{statistics.median(runs[r]):.3f},"
                      f"{times}", flush=True)


if __name__ == "__main__":
    main()
