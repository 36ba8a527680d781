#!/usr/bin/env python3
"""Makes the computed files of this site and the precompressed siblings of its text files.

    python3 examples/site/.tools/make-files.py          write what has changed
    python3 examples/site/.tools/make-files.py --check  fail if a sibling doesn't hold its file's content

Run it after you have changed a file that has siblings. It needs the commands `brotli` and `zstd` (Debian's packages of
the same names). The directory's name starts with a dot, so leat doesn't serve this script.
"""

import gzip
import math
import struct
import subprocess
import sys
import wave
import zlib
from pathlib import Path

SITE = Path(__file__).resolve().parent.parent
FILES = SITE / "files"
WITH_SIBLINGS = ["assets/site.css", "files/mills.txt", "files/water-words.json", "files/offsets.txt"]


def offsets():
    """128 KiB in lines of 16 bytes, each beginning with its own offset."""
    return b"".join(b"%08d ~~~~~~\n" % offset for offset in range(0, 128 * 1024, 16))


def ripples(width=320, height=200):
    """A PNG of rings that spread from two drops."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            level = 0.0
            for centre_x, centre_y, pitch in ((110, 80, 9.0), (230, 130, 7.0)):
                distance = math.hypot(x - centre_x, (y - centre_y) * 1.6)
                level += math.sin(distance / pitch * 2) * math.exp(-distance / 90)
            # 12 levels: enough for the eye, and they compress well.
            shade = round((level + 1.2) / 2.4 * 12) / 12
            rows += bytes((int(24 + 90 * shade), int(96 + 104 * shade), int(112 + 104 * shade)))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(rows), 9))
        + chunk(b"IEND", b"")
    )


def drop(path, rate=16000, seconds=0.6):
    """A falling drop: a tone that rises quickly while it fades."""
    with wave.open(str(path), "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(rate)
        phase = 0.0
        for step in range(int(rate * seconds)):
            now = step / rate
            phase += 2 * math.pi * (500 + 900 * min(now / 0.12, 1.0)) / rate
            level = math.sin(phase) * math.exp(-now * 14) * min(now * 400, 1.0)
            sound.writeframesraw(struct.pack("<h", int(26000 * level)))


def siblings(path):
    """(suffix, command that writes the compressed form to stdout, command that reads it back) for one file."""
    return [
        (".gz", None, ["gzip", "-dc"]),
        (".br", ["brotli", "--quality=11", "--stdout", str(path)], ["brotli", "-dc"]),
        (".zst", ["zstd", "-19", "-q", "-c", "--no-check", str(path)], ["zstd", "-dcq"]),
    ]


def check():
    stale = []
    for name in WITH_SIBLINGS:
        path = SITE / name
        for suffix, _, unpack in siblings(path):
            sibling = path.with_name(path.name + suffix)
            done = subprocess.run(unpack, stdin=sibling.open("rb"), capture_output=True)
            if done.returncode != 0 or done.stdout != path.read_bytes():
                stale.append(str(sibling.relative_to(SITE)))
    if stale:
        sys.exit("out of date: " + ", ".join(stale) + "\nrun examples/site/.tools/make-files.py and commit the result")


def main():
    if "--check" in sys.argv[1:]:
        return check()
    (FILES / "empty.txt").write_bytes(b"")
    (FILES / "one-byte.txt").write_bytes(b"~")
    (FILES / "offsets.txt").write_bytes(offsets())
    (FILES / "ripples.png").write_bytes(ripples())
    drop(FILES / "drop.wav")
    for name in WITH_SIBLINGS:
        path = SITE / name
        for suffix, pack, _ in siblings(path):
            # No time in the gzip header: the same content gives the same bytes on every machine.
            data = gzip.compress(path.read_bytes(), 9, mtime=0) if pack is None else subprocess.check_output(pack)
            path.with_name(path.name + suffix).write_bytes(data)


main()
