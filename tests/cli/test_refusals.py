#!/usr/bin/env python3
"""Bad input of one rank alone, before the ranks have met or after it: all ranks end with code 2
within seconds, and one line says which rank it was, on which host, and why. What all ranks find is
told without their names.

usage: test_refusals.py BUILD_FOLDER
"""
import os
import shlex
import socket
import struct
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import (SOON, TRIREME, check_all, end_all, finish, on_ranks, run, start,  # noqa: E402
                  start_ranks, train)

RANKS = 4
HOST = socket.gethostname()
SETTINGS = ["batch.global=24", "batch.micro=6", "trainer.max_epochs=1", "log.tensorboard=false"]


def write_images(folder):
    os.makedirs(folder)
    for name, count in ("train", 24), ("t10k", 24):
        with open(os.path.join(folder, f"{name}-images-idx3-ubyte"), "wb") as file:
            file.write(struct.pack(">4B3I", 0, 0, 8, 3, count, 28, 28) + os.urandom(count * 784))
        with open(os.path.join(folder, f"{name}-labels-idx1-ubyte"), "wb") as file:
            file.write(struct.pack(">4BI", 0, 0, 8, 1, count) + bytes(i % 10 for i in range(count)))


def of_rank(rank, words, other):
    """A command that is `other` on this rank, and `words` on all others."""
    return ["sh", "-c", f'test "$RANK" = {rank} && exec {shlex.join(other)}; '
                        f'exec {shlex.join(words)}']


def check_one_line(words, *parts, rank=None):
    """By ranks without a launcher, which would end the others, and by `trireme run`."""
    begun = time.monotonic()
    ranks = start_ranks(words, RANKS)
    try:
        ended = [finish(child, SOON) for child in ranks]
    finally:
        end_all(ranks)
    took = time.monotonic() - begun
    codes, lines = [code for _, _, code in ended], "".join(err for _, err, _ in ended).splitlines()
    assert codes == [2] * RANKS and took < SOON, f"{codes}, {took:.1f} s: {lines}"
    done = run(on_ranks(RANKS, words), 2)
    for found in lines, done.stderr.splitlines():
        found = [line for line in found if not line.endswith(" measured")]  # by fewer ranks
        assert len(found) == 1 and found[0].startswith("trireme: "), found
        assert all(part in found[0] for part in parts), f"no {parts} in {found}"
        name = "" if rank is None else f"rank {rank} (host {HOST})"
        assert name in found[0] and (name or "rank" not in found[0]), found


def command(folder, *words, data="data"):
    return train("mnist-cnn", os.path.join(folder, "run"), *SETTINGS,
                 f"data.path={os.path.join(folder, data)}", *words)


def check_before_the_meeting(folder):
    good = command(folder)
    for rank in 0, RANKS - 1:
        check_one_line(of_rank(rank, good, [*good, "seeds=3"]), "'seeds'", rank=rank)
    recipe = [word.replace("mnist-cnn.yaml", "nowhere.yaml") for word in good]
    check_one_line(of_rank(2, good, recipe), "nowhere.yaml", rank=2)
    check_one_line(of_rank(1, good, [*good, "--trase", "x"]), "--trase", rank=1)


def check_after_the_meeting(folder):
    good = command(folder)
    for rank in 0, RANKS - 1:
        check_one_line(of_rank(rank, good, command(folder, data="nowhere")), "nowhere/train-images",
                       rank=rank)
    check_one_line(of_rank(3, good, [*good, "seed=5"]), "differs from rank 0", rank=3)


def check_same_on_all(folder):
    check_one_line(command(folder, "seeds=3"), "'seeds'")
    check_one_line(command(folder, data="nowhere"), "nowhere/train-images")
    check_one_line(command(folder, "init=/none"), "/none")


def check_scale(folder):
    """Also what only the data's contents show, and while some ranks do not take part."""
    path = os.path.join(folder, "odd")
    write_images(path)
    with open(os.path.join(path, "train-labels-idx1-ubyte"), "r+b") as file:
        file.seek(20)
        file.write(b"\x20")
    words = [TRIREME, "scale", "recipes/mnist-cnn.yaml", "--seconds", "0.1", "--ranks", "1,2",
             *SETTINGS]
    odd, good = f"data.path={path}", f"data.path={os.path.join(folder, 'data')}"
    check_one_line([*words, odd], "labels up to 32", rank=0)  # which alone is the first point
    done = run([*words, odd], 2)
    assert len(done.stderr.splitlines()) == 1 and "labels up to 32" in done.stderr, done.stderr
    check_one_line(of_rank(1, [*words, good], [*words, odd]), "labels up to 32", rank=1)


def check_lone_rank(_):
    """The others have ended well: this one prints its own line."""
    words = of_rank(1, [TRIREME, "version"], [TRIREME, "data", "check", "recipes/mnist-cnn.yaml",
                                               "data.path=/nowhere"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [start(words, env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2",
                               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
             for rank in range(2)]
    ended = [finish(child, 60) for child in ranks]
    assert [code for _, _, code in ended] == [0, 2], ended
    assert f"rank 1 (host {HOST}): /nowhere" in ended[1][1], ended


def check_flags(_):
    """A flag that `run` does not have is named, also within a word of several letters."""
    for words, parts in ((["--standalone", "-np", "2"], (" -n:", "--nproc-per-node")),
                         (["--standalone", "-n", "2"], (" -n:", "--nproc-per-node")),
                         (["-Q"], (" -Q;",)), (["--bogus"], (" --bogus ",))):
        done = run([TRIREME, "run", *words, "true"], 2)
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert all(part in done.stderr for part in parts), done.stderr


def check_recipe_as_command(_):
    """A recipe where a command should be: the line says which command takes it."""
    for recipe in ("recipes/mnist-cnn.yaml", "nowhere.yml"):
        for words in ([], ["run", "--standalone"], ["run", "--nproc-per-node", "2", "--"]):
            done = run([TRIREME, *words, recipe, "seed=1"], 2)
            assert len(done.stderr.splitlines()) == 1, done.stderr
            assert f"trireme train {recipe}" in done.stderr, done.stderr


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-refusals-") as folder:
        write_images(os.path.join(folder, "data"))
        checks = [check_before_the_meeting, check_after_the_meeting, check_same_on_all, check_scale,
                  check_lone_rank, check_flags, check_recipe_as_command]
        sys.exit(check_all(checks, folder))


if __name__ == "__main__":
    main()
