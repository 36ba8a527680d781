#!/usr/bin/env python3
"""run.py LEAT [--rounds N] [--commands N] [--out FOLDER]

Commands for Redis by way of a port of leat's (`protocol = "redis"`) and by way of HAProxy in TCP mode, one thread each on the same processor; the server and
redis-benchmark share another. Everybody has its turn in each round, in another order each time. Writes result.json and table.md; exits with 1 if a mark is
missed. Debian: haproxy, redis-server, redis-tools.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time

FRONT_CORE, OTHERS_CORE = "0", "1"
# What redis-benchmark asks for where it isn't told how many keys there are.
KEY = "key:__rand_int__"
# Elements of the list that LRANGE asks for.
LIST = 600


class Case:
    """Commands of one kind: what redis-benchmark is told, and what part of all commands is enough of them."""

    def __init__(self, name, part, *arguments):
        self.name, self.part, self.arguments = name, part, arguments


CASES = [
    Case("GET of 4 KB, 1 connection", 0.2, "-c", "1", "-t", "get"),
    Case("GET of 4 KB, 32 connections", 0.3, "-c", "32", "-t", "get"),
    Case("SET of 4 KB, 32 connections", 0.3, "-c", "32", "-t", "set", "-d", "4096"),
    Case("GET of 4 KB by the sixteen, 32 connections", 1, "-c", "32", "-t", "get", "-P", "16"),
    Case("SET of 3 B by the sixteen, 32 connections", 1, "-c", "32", "-t", "set", "-d", "3", "-P", "16", "-r", "1000"),
    Case(f"LRANGE of {LIST}, 32 connections", 0.05, "-c", "32", "LRANGE", "list", "0", str(LIST - 1)),
]


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def configuration(subject, port, server):
    if subject == "haproxy":
        return (
            "global\n nbthread 1\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 1h\n timeout server 1h\n"
            f"listen redis\n bind 127.0.0.1:{port}\n server s 127.0.0.1:{server}\n"
        )
    reactor = subject.removeprefix("leat-")
    return (
        f'role = "dispatcher"\nworkers = 1\nreactor = "{reactor}"\n[admin]\nlisten = ""\n[[cluster.node]]\nname = "n1"\naddress = "127.0.0.1"\n'
        f'[[cluster.port]]\nlisten = "127.0.0.1:{port}"\nprotocol = "redis"\nnode_port = {server}\n'
    )


@contextlib.contextmanager
def started(core, command, folder):
    """A program on this processor, whose words nobody reads."""
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(["taskset", "-c", core, *command], stdout=log, stderr=log, cwd=folder)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def await_port(port, seconds=10):
    deadline = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def processor_time(process):
    """Of a process and its children, by the scheduler's clock, in nanoseconds."""
    children = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()
    threads = [thread for one in [process, *children] for thread in os.listdir(f"/proc/{one}/task")]
    return sum(int(pathlib.Path(f"/proc/{thread}/schedstat").read_text().split()[0]) for thread in threads)


def ask(case, port, commands):
    """Microseconds that all took, and the commands."""
    count = max(int(commands * case.part), 1000)
    command = ["taskset", "-c", OTHERS_CORE, "redis-benchmark", "-p", str(port), "-n", str(count), "--csv", *case.arguments]
    began = time.monotonic()
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "rror" not in told, told
    return (time.monotonic() - began) * 1e6, count


def measure(leat, rounds, commands, folder):
    """CPU and time a command, by case and subject: lists of microseconds."""
    subjects = {"leat-io_uring": [leat, "dispatch", "--config"], "leat-epoll": [leat, "dispatch", "--config"], "haproxy": ["haproxy", "-db", "-f"]}
    server, fronts = free_port(), {}
    with contextlib.ExitStack() as stack:
        store = ["redis-server", "--bind", "127.0.0.1", "--port", str(server), "--save", "", "--appendonly", "no"]
        stack.enter_context(started(OTHERS_CORE, store, folder))
        await_port(server)
        elements = [f"e{number}" for number in range(LIST)]
        for command in [["RPUSH", "list", *elements], ["SET", KEY, "x" * 4096]]:
            subprocess.run(["redis-cli", "-p", str(server), *command], check=True, stdout=subprocess.DEVNULL)
        for subject, command in subjects.items():
            port, file = free_port(), folder / f"{subject}.conf"
            file.write_text(configuration(subject, port, server))
            fronts[subject] = (port, stack.enter_context(started(FRONT_CORE, [*command, file], folder)).pid)
            await_port(port)
        samples = {case.name: {subject: ([], []) for subject in subjects} for case in CASES}
        for turn in range(rounds):
            for case in CASES:
                for subject in random.Random(turn).sample(sorted(subjects), len(subjects)):
                    port, process = fronts[subject]
                    before = processor_time(process)
                    took, count = ask(case, port, commands)
                    cpu, times = samples[case.name][subject]
                    cpu.append((processor_time(process) - before) / 1000 / count)
                    times.append(took / count)
            print(f"round {turn + 1} of {rounds}", flush=True)
    return samples


def judge(samples):
    results = []
    for case, subjects in samples.items():
        for subject in [subject for subject in subjects if subject != "haproxy"]:
            for place, what in enumerate(["CPU", "time"]):
                value, limit = (statistics.median(subjects[who][place]) for who in (subject, "haproxy"))
                mark = f"no more {what} a command than HAProxy in TCP mode"
                results.append(
                    {"case": case, "subject": subject, "mark": mark, "value": value, "limit": limit, "unit": "us", "met": value <= limit, "note": ""}
                )
    return results


def table(about, samples):
    lines = [f"# Commands for Redis\n\nLinux {about['kernel']}, {about['cpu']}, {about['cores']} cores, {about['date']}, commit {about['commit']}. "]
    lines[0] += f"{about['rounds']} rounds, medians, range in brackets; as part of HAProxy's.\n"
    lines.append("| case | who | us of CPU a command | part | us a command | part |\n|---|---|---|---|---|---|")
    for case, subjects in samples.items():
        for subject, columns in subjects.items():
            cells = []
            for place, values in enumerate(columns):
                median, peer = statistics.median(values), statistics.median(subjects["haproxy"][place])
                cells += [f"{median:.2f} ({min(values):.2f}-{max(values):.2f})", f"{median / peer:.2f}"]
            lines.append(f"| {case} | {subject} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", 1)[1])
    parser.add_argument("leat", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--commands", type=int, default=200_000)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        samples = measure(options.leat.resolve(), options.rounds, options.commands, pathlib.Path(folder))
    here = pathlib.Path(__file__).parent
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=here, capture_output=True, text=True).stdout.strip()
    model = next(line for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    about = {
        "experiment": "redis",
        "kernel": platform.release().split("-")[0],
        "cpu": model.split(":", 1)[1].strip(),
        "cores": os.cpu_count(),
        "congestion_control": pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip(),
        "commit": commit,
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "rounds": options.rounds,
        "commands": options.commands,
    }
    results = judge(samples)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "result.json").write_text(json.dumps({**about, "results": results}, indent=1) + "\n")
    (options.out / "table.md").write_text(table(about, samples))
    print(table(about, samples))
    sys.exit(0 if all(result["met"] for result in results) else 1)


if __name__ == "__main__":
    main()
