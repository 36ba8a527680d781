#!/usr/bin/env python3
"""run.py LEAT [--seconds S] [--pause S] [--seed N] [--clients N] [--out FOLDER]

What leat passes on to other servers, while it is upgraded again and again: requests, replies and uploads behind `proxy`, WebSockets, and conversations
at a TCP port. nginx, reloaded as often, does the same but for the port. Every byte is compared. Writes result.json; exits with 1 if a mark is missed.
"""

import argparse
import asyncio
import contextlib
import datetime
import json
import os
import pathlib
import platform
import random
import signal
import socket
import subprocess
import sys
import tempfile

CONTENT = random.Random(5).randbytes(4 << 20)
# A client that hears nothing for so long is as good as cut.
PATIENCE_S = 20
FAREWELL = b"that is all"


class Counts:
    """What came of everything that one server was asked."""

    def __init__(self):
        self.exchanges = self.bytes = self.cut = self.wrong = self.closed_at_rest = 0

    def failed(self, what, error):
        self.cut += 1
        print(f"  cut: {what}: {error!r}", flush=True)

    def differs(self, what):
        self.wrong += 1
        print(f"  wrong: {what}", flush=True)


# The servers behind.


async def read_head(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")[:-2]
    return first, {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}


async def read_body(reader, fields):
    if fields.get("transfer-encoding") == "chunked":
        parts = []
        while size := int(await reader.readline(), 16):
            parts.append((await reader.readexactly(size + 2))[:-2])
        await reader.readexactly(2)
        return b"".join(parts)
    if "content-length" in fields:
        return await reader.readexactly(int(fields["content-length"]))
    return await reader.read()


async def send_in_parts(writer, body, is_slow, wrap=lambda part: part):
    """Parts of all sizes, some after a while."""
    at = 0
    while at < len(body):
        size = random.choice([1, 1_000, 20_000, 65_536, 300_000])
        writer.write(wrap(body[at : at + size]))
        await writer.drain()
        at += size
        if is_slow and random.random() < 0.2:
            await asyncio.sleep(random.random() / 5)


def chunk(part):
    return b"%x\r\n%s\r\n" % (len(part), part)


async def answer(reader, writer):
    """GET /FRAMING/FROM/TO/SLOW has a part of the content; an upload comes back as it was; WebSockets are echoed."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        while True:
            first, fields = await read_head(reader)
            if "upgrade" in fields:
                writer.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
                await echo(reader, writer)
                return
            method, path, _ = first.split(" ")
            if method == "POST":
                body = await read_body(reader, fields)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
                await send_in_parts(writer, body, False)
                continue
            _, framing, start, end, slow = path.split("/")
            body, is_slow = CONTENT[int(start) : int(end)], slow == "slow"
            if is_slow:
                await asyncio.sleep(random.random() * 1.5)
            if framing == "length":
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
                await send_in_parts(writer, body, is_slow)
            elif framing == "chunks":
                writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                await send_in_parts(writer, body, is_slow, chunk)
                writer.write(b"0\r\n\r\n")
            else:
                writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
                await send_in_parts(writer, body, is_slow)
                break
    writer.close()


async def echo(reader, writer):
    """Until the client has said farewell, so that an end from elsewhere isn't taken for this one's."""
    last = b""
    with contextlib.suppress(ConnectionError, asyncio.CancelledError):
        while last != FAREWELL and (part := await reader.read(65_536)):
            last = (last + part)[-len(FAREWELL) :]
            writer.write(part)
            await writer.drain()
    writer.close()


# The clients.


async def request(chance, reader, writer, counts):
    """One request; whether the connection goes on."""
    start = chance.randrange(len(CONTENT))
    expected = CONTENT[start : start + chance.choice([0, 1, 100, 10_000, 300_000, 2_000_000])]
    is_slow = chance.random() < 0.4
    if chance.random() < 0.3:
        what = f"an upload of {len(expected)}"
        is_chunked = chance.random() < 0.5
        framing = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % len(expected)
        writer.write(b"POST /upload HTTP/1.1\r\nHost: a\r\n" + framing + b"\r\n\r\n")
        upload = asyncio.create_task(send_upload(writer, expected, is_slow, is_chunked))
    else:
        framing = chance.choice(["length", "chunks", "end"])
        what = f"{len(expected)} by {framing}"
        pace = "slow" if is_slow else "fast"
        writer.write(f"GET /{framing}/{start}/{start + len(expected)}/{pace} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
        upload = None
    try:
        first, fields = await asyncio.wait_for(read_head(reader), PATIENCE_S)
        body = await asyncio.wait_for(read_body(reader, fields), 3 * PATIENCE_S)
    finally:
        if upload:
            await asyncio.gather(upload, return_exceptions=True)
    if " 200 " not in first or body != expected:
        counts.differs(f"{what}: {first}, {len(body)}")
    counts.exchanges += 1
    counts.bytes += len(body)
    return fields.get("connection", "").lower() != "close"


async def send_upload(writer, body, is_slow, is_chunked):
    await send_in_parts(writer, body, is_slow, chunk if is_chunked else lambda part: part)
    if is_chunked:
        writer.write(b"0\r\n\r\n")


async def ask(address, chance, counts, until):
    """Requests over one connection."""
    reader, writer = await asyncio.open_connection(*address, limit=1 << 20)
    try:
        for number in range(chance.randrange(1, 12)):
            if asyncio.get_running_loop().time() > until:
                break
            if number and reader.at_eof():
                counts.closed_at_rest += 1
                break
            if not await request(chance, reader, writer, counts):
                break
            if chance.random() < 0.3:
                await asyncio.sleep(chance.random())
    finally:
        writer.close()


async def converse(address, is_websocket, chance, counts, until):
    """Says something, hears it again, and so on; then says farewell."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        if is_websocket:
            writer.write(b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            first, _ = await asyncio.wait_for(read_head(reader), PATIENCE_S)
            if " 101 " not in first:
                raise ConnectionError(first)
        loop = asyncio.get_running_loop()
        end = min(until, loop.time() + chance.uniform(0.2, 8))
        while loop.time() < end:
            said = chance.randbytes(chance.choice([1, 10, 1_000, 70_000, 1_000_000]))
            sending = asyncio.create_task(send_in_parts(writer, said, chance.random() < 0.3))
            heard = await asyncio.wait_for(reader.readexactly(len(said)), 3 * PATIENCE_S)
            await sending
            if heard != said:
                counts.differs(f"a conversation, is_websocket={is_websocket}")
            counts.bytes += len(heard)
            if chance.random() < 0.3:
                await asyncio.sleep(chance.random() * 3)
        writer.write(FAREWELL)
        last = await asyncio.wait_for(reader.read(), PATIENCE_S)
        if last != FAREWELL:
            raise ConnectionError(f"an end without a farewell: {last[:40]!r}")
        counts.exchanges += 1
    finally:
        writer.close()


async def client(what, one, chance, counts, until):
    while asyncio.get_running_loop().time() < until:
        try:
            await one(chance, counts, until)
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, ValueError) as error:
            counts.failed(what, error)
            await asyncio.sleep(0.2)


# The servers in front.


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Front:
    """A server in front that is asked for a new process by a signal."""

    def __init__(self, command, renewal, log):
        self.renewal = renewal
        self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.most = 0

    def children(self):
        listed = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False)
        return len(listed.stdout.split())

    def renew(self):
        self.process.send_signal(self.renewal)

    def look(self):
        self.most = max(self.most, self.children())

    def end(self):
        self.process.terminate()
        self.process.wait()


def fronts_of(subject, leat, folder, log, behind, echoes):
    """The server itself, its address, and where conversations at a port are held."""
    address = ("127.0.0.1", free_port())
    file = folder / subject
    if subject == "nginx":
        file.write_text(
            f"daemon off; worker_processes 2; pid {folder}/pid; error_log {folder}/errors; events {{}}\n"
            f"http {{ access_log off; client_max_body_size 64m; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n"
            f"fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n"
            f"map $http_upgrade $kept {{ default upgrade; '' ''; }}\n"
            f"upstream behind {{ server 127.0.0.1:{behind}; keepalive 16; }}\n"
            f"server {{ listen 127.0.0.1:{address[1]}; location / {{ proxy_pass http://behind; proxy_http_version 1.1;\n"
            f"proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $kept; proxy_request_buffering off; }} }} }}\n"
        )
        return [Front(["nginx", "-c", str(file), "-e", str(folder / "errors")], signal.SIGHUP, log)], address, None
    reactor = subject.removeprefix("leat-")
    file.write_text(
        f'reactor = "{reactor}"\nworkers = 2\n[limits]\nbody_size = "64MiB"\n[admin]\nlisten = ""\nsocket = "{folder}/site.sock"\n'
        f'[[site]]\nlisten = "127.0.0.1:{address[1]}"\n[[site.handler]]\npath = "/*"\nproxy = {{ to = "127.0.0.1:{behind}" }}\n'
    )
    port = ("127.0.0.1", free_port())
    ports = folder / f"{subject}-port"
    ports.write_text(
        f'role = "dispatcher"\nreactor = "{reactor}"\nworkers = 2\n[admin]\nlisten = ""\nsocket = "{folder}/port.sock"\n'
        f'[[cluster.node]]\nname = "n1"\naddress = "127.0.0.1"\n'
        f'[[cluster.port]]\nname = "echo"\nlisten = "127.0.0.1:{port[1]}"\nnode_port = {echoes}\nprotocol = "tcp"\n'
    )
    commands = [[leat, "serve", "--config", str(file)], [leat, "dispatch", "--config", str(ports)]]
    return [Front(command, signal.SIGUSR2, log) for command in commands], address, port


async def await_listener(address):
    for _ in range(200):
        try:
            _, writer = await asyncio.open_connection(*address)
            return writer.close()
        except OSError:
            await asyncio.sleep(0.05)
    raise SystemExit(f"nobody listens at {address}")


async def measure(subject, options, folder, log):
    """Counts of one subject under load, the renewals, and the most processes at a time, and those left in the end."""
    behind = await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 20)
    echoes = await asyncio.start_server(echo, "127.0.0.1", 0)
    port_of = lambda server: server.sockets[0].getsockname()[1]
    fronts, address, port = fronts_of(subject, options.leat, folder, log, port_of(behind), port_of(echoes))
    try:
        for listener in filter(None, [address, port]):
            await await_listener(listener)
        counts = Counts()
        until = asyncio.get_running_loop().time() + options.seconds
        kinds = [("requests", lambda *of: ask(address, *of)), ("a WebSocket", lambda *of: converse(address, True, *of))]
        if port:
            kinds.append(("a port", lambda *of: converse(port, False, *of)))
        clients = [
            asyncio.create_task(client(what, one, random.Random(options.seed * 1000 + number * 10 + kind), counts, until))
            for kind, (what, one) in enumerate(kinds)
            for number in range(options.clients)
        ]
        renewals, chance = 0, random.Random(options.seed)
        while asyncio.get_running_loop().time() < until - 2:
            await asyncio.sleep(options.pause * chance.uniform(0.5, 1.5))
            for front in fronts:
                front.look()
                front.renew()
            renewals += 1
        await asyncio.gather(*clients)
        # Nothing is under way any more: what is left is what there is at rest.
        await asyncio.sleep(1)
        return counts, renewals, max(front.most for front in fronts), max(front.children() for front in fronts)
    finally:
        for front in fronts:
            front.end()
        behind.close()
        echoes.close()


def marks_of(subject, counts, renewals, left):
    def mark(text, value, limit, unit):
        return {
            "case": "passed-on", "subject": subject, "mark": text, "value": value, "limit": limit, "unit": unit, "met": value <= limit,
            "note": f"{renewals} upgrades, {counts.exchanges} exchanges, {counts.bytes} bytes",
        }  # fmt: skip

    return [
        mark("upgrades cut nothing that another server answers", counts.cut, 0, "exchanges"),
        mark("every byte is right", counts.wrong, 0, "exchanges"),
        mark("no connection at rest is closed", counts.closed_at_rest, 0, "connections"),
        mark("one engine is left a second after the last has ended", left, 1, "processes"),
    ]


def processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("leat")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--pause", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--clients", type=int, default=8, help="of each kind")
    parser.add_argument("--subjects", default="leat-io_uring,leat-epoll,nginx")
    parser.add_argument("--out", type=pathlib.Path, help="where result.json goes")
    options = parser.parse_args()
    marks = []
    print("| who | exchanges | MB | cut | wrong | closed at rest | renewed | processes at most | left |\n|---|---|---|---|---|---|---|---|---|")
    for subject in options.subjects.split(","):
        with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w") as log:
            counts, renewals, most, left = asyncio.run(measure(subject, options, pathlib.Path(folder), log))
        print(
            f"| {subject} | {counts.exchanges} | {counts.bytes / 1e6:.0f} | {counts.cut} | {counts.wrong} | {counts.closed_at_rest} | {renewals} | "
            f"{most} | {left} |",
            flush=True,
        )
        if subject != "nginx":
            marks += marks_of(subject, counts, renewals, left)
    if options.out:
        about = {"experiment": "upgrade-passed-on", "kernel": platform.release().split("-")[0], "cpu": processor()}
        control = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
        about |= {"cores": len(os.sched_getaffinity(0)), "congestion_control": control}
        folder = pathlib.Path(__file__).parent
        commit = subprocess.run(["git", "-C", folder, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        about |= {"commit": commit.stdout.strip(), "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}", "rounds": 1, "seconds": options.seconds}
        (options.out / "result.json").write_text(json.dumps(about | {"results": marks}, indent=2) + "\n")
    sys.exit(not all(mark["met"] for mark in marks))


if __name__ == "__main__":
    main()
