#!/usr/bin/env python3
"""Ranks of several hosts train as those of one.

The hosts are host names of their own (UTS namespaces) on this machine; messages go over UCX by TCP,
and over MPI. One rank a host: the bits of one host. Two ranks a host: shared memory below messages,
to a small difference, and to the bit with trainer.deterministic. Hosts of different sizes, and a
mesh whose groups a hierarchy cannot divide, work too. A rank that is killed is named with its host.

usage: test_hosts.py BUILD_FOLDER
"""
import os
import signal
import socket
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SYNTHETIC, check_close, check_same, finish, losses,  # noqa: E402
                  on_ranks, run, start, train, wait_for)

MODULES = os.path.join(os.path.abspath(sys.argv[1]), "lib", "trireme")
STEPS = ["trainer.max_steps=6", "trainer.max_epochs=-1", "batch.global=24", "data.samples=96",
         "checkpoint.every_n_epochs=0"]
TENSOR = ["strategy.mesh.tensor=2", "strategy.tensor={fc1: column, fc2: row}"]
TOKEN = os.urandom(16).hex()
# Hosts of the ranks, settings, whether bits are those of one host.
CASES = {
    "one rank a host": ("ab", [], True),
    "two ranks a host": ("aabb", [], False),
    "two ranks a host, fsdp": ("aabb", ["strategy.name=fsdp"], False),
    "two ranks a host, deterministic": (
        "aabb", ["trainer.deterministic=true", "batch.micro=3", "strategy.name=zero1"], True),
    "two ranks a host, pipeline": ("aabb", ["strategy.name=pipeline", "batch.micro=6",
                                            "strategy.mesh.replicate=2"], False),
    "tensor inside hosts": ("aabb", TENSOR, False),
    "hosts of different sizes": ("aab", [], True),
    "groups across hosts": ("aaabbb", ["strategy.name=fsdp", "strategy.mesh.replicate=3"], False),
}


def start_hosts(words, hosts):
    """A rank for each letter, on the host of that name."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return [start(["unshare", "--uts", "sh", "-c", f"hostname {host} && exec \"$@\"", "sh", *words],
                  env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(len(hosts)),
                       "TRIREME_STORE": f"127.0.0.1:{port}", "TRIREME_TOKEN": TOKEN,
                       "UCX_TLS": "tcp,self"})
            for rank, host in enumerate(hosts)]


def check_case(folder, name, case):
    hosts, settings, same_bits = case
    alone, apart = (os.path.join(folder, f"{name}-{kind}".replace(" ", "-"))
                    for kind in ("alone", "apart"))
    run(on_ranks(len(hosts), train("mlp-jax", alone, *SYNTHETIC, *STEPS, *settings)))
    for child in start_hosts(train("mlp-jax", apart, *SYNTHETIC, *STEPS, *settings), hosts):
        _, errors, code = finish(child)
        assert code == 0, f"{name}: {code}\n{errors}"
    if same_bits:
        check_same(losses(apart), losses(alone), name)
        print(f"{name}: the bits of one host", flush=True)
    else:
        worst = check_close(losses(apart), losses(alone), 1e-5, name)
        print(f"{name}: {worst:.1e} from one host", flush=True)


def check_killed(folder):
    place = os.path.join(folder, "killed")
    words = train("mlp-jax", place, *SYNTHETIC, *STEPS, "trainer.max_steps=100000")
    children = start_hosts(words, "aabb")
    metrics = os.path.join(place, "metrics.jsonl")
    wait_for(lambda: os.path.exists(metrics) and os.path.getsize(metrics) > 0, "a first step",
             child=children[0])
    children[3].send_signal(signal.SIGKILL)
    for child in children[:3]:
        _, errors, code = finish(child, 30)
        assert code == 1 and "rank 3 (host b" in errors, f"{code}: {errors}"
    finish(children[3])
    print("a killed rank is named with its host")


def check_refused(folder):
    words = train("mlp-jax", os.path.join(folder, "refused"), *SYNTHETIC, "comm.backend=shm")
    ended = [finish(child) for child in start_hosts(words, "ab")]
    assert [code for _, _, code in ended] == [2, 2], ended
    assert "these 2 are on 2; " in ended[0][1], ended


def main():
    if not os.path.exists(os.path.join(MODULES, "ucx.so")):
        print("skip: ucx.so is not built")
        return 77
    done = subprocess.run(["unshare", "--uts", "hostname", "a"], capture_output=True, check=False)
    if done.returncode:
        print("skip: this user may not give a process a host name of its own")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        for name, case in CASES.items():
            check_case(folder, name, case)
        check_killed(folder)
        check_refused(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
