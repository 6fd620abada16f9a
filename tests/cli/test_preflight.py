#!/usr/bin/env python3
"""trireme preflight alone and on two ranks of this machine: what it prints, what it calls no-go and
why, and that nothing stays in the run folder. (Several hosts: cluster/test_preflight; the rules:
unit/test_preflight.)

usage: test_preflight.py BUILD_FOLDER
"""
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SOON, TRIREME, check_all, on_ranks, run  # noqa: E402

CHECKS = ["meeting", "devices", "memory", "binding", "clock", "run-folder", "same-files", "links",
          "all-reduce", "compute"]
# Other programs compute on this machine too.
CALM = ["compute_fraction=0", "link_ms=1000", "link_gb_s=0", "memory_gb=0"]


def preflight(run_dir, *words, ranks=1, code=0, **more):
    command = [TRIREME, "preflight", "--run-dir", run_dir, *CALM, *words]
    return run(on_ranks(ranks, command), code, **more)


def lines(done):
    """What preflight itself printed on standard error."""
    own = [f"trireme: {name}: " for name in CHECKS]
    return [line for line in done.stderr.splitlines() if line.startswith(tuple(own))]


def check_json(text, ranks):
    report = json.loads(text)
    assert list(report) == ["go", "ranks", "launcher", "backend", "hosts", "checks"], report
    assert report["ranks"] == ranks and len(report["hosts"]) == 1, report
    assert [check["name"] for check in report["checks"]] == CHECKS, report
    for check in report["checks"]:
        assert list(check) == ["name", "verdict", "summary", "failure", "values"], check
        assert check["verdict"] in ("go", "no-go", "skipped", "unknown"), check
        assert (check["failure"] is not None) == (check["verdict"] == "no-go"), check
    assert report["go"] == all(c["verdict"] in ("go", "skipped") for c in report["checks"]), report
    return {check["name"]: check for check in report["checks"]}


def check_alone(folder):
    done = preflight(folder)
    table = done.stdout.splitlines()
    assert [line.split()[0] for line in table[1:-1]] == CHECKS, done.stdout
    assert table[-1] == "go" and not done.stderr, done
    checks = check_json(preflight(folder, "--json").stdout, 1)
    skipped = {name for name, check in checks.items() if check["verdict"] == "skipped"}
    assert skipped == {"clock", "same-files", "links", "all-reduce"}, skipped
    assert checks["compute"]["values"][0] > 1e8, checks["compute"]
    (here,) = checks["run-folder"]["values"]
    assert here["fsync_s"] > 0 and here["write_bytes_per_s"] > 0, here
    space = os.statvfs(folder)
    assert abs(here["free_bytes"] - space.f_bavail * space.f_frsize) < 5e9, here
    (device,) = checks["devices"]["values"]
    assert device["device"] == "cpu" and device["threads"] == 1, device
    (binding,) = checks["binding"]["values"]
    assert binding["cpus"] and binding["cores"] >= 1, binding


def check_ranks(folder):
    done = preflight(folder, "--json", ranks=2)
    checks = check_json(done.stdout, 2)
    assert {n for n, c in checks.items() if c["verdict"] == "skipped"} == {"clock"}, checks
    (link,) = checks["links"]["values"]
    assert (link["a"], link["b"]) == ("rank 0", "rank 1") and link["gb_s"] > 0.01, link
    assert checks["all-reduce"]["values"]["seconds"] > 0, checks["all-reduce"]
    assert checks["same-files"]["values"]["other_folder"] == [], checks["same-files"]
    assert len(checks["compute"]["values"]) == 2, checks["compute"]
    assert "go" in preflight(folder, ranks=2).stdout.splitlines()


def check_nothing_stays(folder):
    """Neither in a run folder with checkpoints, nor in one that does not exist."""
    run_dir = os.path.join(folder, "run")
    os.makedirs(os.path.join(run_dir, "checkpoints", "step-00000001"))
    with open(os.path.join(run_dir, "recipe.yaml"), "w", encoding="utf-8") as file:
        file.write("name: x\n")
    before = sorted(os.walk(run_dir))
    preflight(run_dir, ranks=2)
    preflight(run_dir)
    assert sorted(os.walk(run_dir)) == before
    preflight(os.path.join(folder, "a", "b", "missing"), ranks=2)
    assert os.listdir(folder) == ["run"], os.listdir(folder)


def ranks_that_look(folder, of=3):
    """Three ranks, of which the last one has another file system at the folder: so the others look
    for its file until the time limit. Returns them once their files are there; None: not here."""
    other = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs t "$0" && exec "$@"', folder]
    if run([*other, "true"], None).returncode:
        print("not tried: a rank with another folder, because this machine does not allow mounts")
        return None
    ranks = []
    for rank in range(of):
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(of),
                       "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(of),
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 10000)}
        command = [TRIREME, "preflight", "--run-dir", folder, *CALM, "seen_s=3", "space_gb=0"]
        ranks.append(subprocess.Popen([*other, *command] if rank == of - 1 else command,
                                      env=environment, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, text=True))
    end = time.monotonic() + SOON
    while len(os.listdir(folder)) < of - 1 and time.monotonic() < end:
        time.sleep(0.01)
    assert len(os.listdir(folder)) == of - 1, os.listdir(folder)
    return ranks


def check_other_folder(folder):
    """A rank with another folder is named."""
    ranks = ranks_that_look(folder)
    if not ranks:
        return
    ends = [(*rank.communicate(timeout=60), rank.returncode) for rank in ranks]
    assert [code for _, _, code in ends] == [1, 1, 1], ends
    out, err, _ = ends[0]
    assert f"same-files: {folder} on rank 2" in err and err.count("\n") <= 2, err
    assert "not the folder that rank 0" in err and not ends[1][1] and not ends[2][1], ends
    assert "no-go" in next(line for line in out.splitlines() if "same-files" in line), out
    assert os.listdir(folder) == [], os.listdir(folder)


def check_killed(folder):
    """Files are removed too where a signal ends the ranks, or kills one."""
    for number, victims in ((signal.SIGKILL, [1]), (signal.SIGTERM, [0, 1])):
        ranks = ranks_that_look(folder)
        if not ranks:
            return
        for victim in victims:
            ranks[victim].send_signal(number)
        ends = [(*rank.communicate(timeout=60), rank.returncode) for rank in ranks]
        assert [ends[victim][2] for victim in victims] == [-number] * len(victims), ends
        assert os.listdir(folder) == [], f"{number}: {os.listdir(folder)}"
        if number == signal.SIGKILL:
            assert "same-files: rank 1 (host" in ends[0][1] and ends[0][2] == 1, ends


def check_ignored_signal(folder):
    """A signal that the ranks were started to ignore, as SIGHUP by nohup, does not end them."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        ranks = ranks_that_look(folder)
    finally:
        signal.signal(signal.SIGHUP, before)
    for rank in ranks or []:
        rank.send_signal(signal.SIGHUP)
    ends = [(*rank.communicate(timeout=60), rank.returncode) for rank in ranks or []]
    assert not ranks or [code for _, _, code in ends] == [1, 1, 1], ends
    assert os.listdir(folder) == [], os.listdir(folder)


def refused(done, check, *parts):
    """One line, which is of that check; the table tells the same."""
    found = lines(done)
    assert len(found) == 1 and found[0].startswith(f"trireme: {check}: "), done
    for part in parts:
        assert part in found[0], f"'{part}' is not in: {found[0]}"
    row = next(line for line in done.stdout.splitlines() if line.split()[0] == check)
    assert "no-go" in row and done.stdout.splitlines()[-1] == "no-go: 1 check failed", done


def check_limits(folder):
    for ranks in 1, 2:
        done = preflight(folder, "space_gb=1e9", ranks=ranks, code=1)
        refused(done, "run-folder", folder, "free")
    refused(preflight(folder, "memory_gb=1e6", code=1), "memory", "needs 1e+06 GB")
    refused(preflight(folder, "link_ms=0", ranks=2, code=1), "links", "rank 0 and rank 1")
    refused(preflight(folder, "link_gb_s=1e6", ranks=2, code=1), "links", "GB/s")
    refused(preflight(folder, "fsync_ms=0", code=1), "run-folder", "sync")
    listed = run([TRIREME, "preflight", "--limits"]).stdout
    assert all(f"{name} " in listed for name in ("space_gb", "link_gb_s", "compute_fraction"))


def check_threads(folder):
    environment = {**os.environ, "OMP_NUM_THREADS": str(os.cpu_count() + 1)}
    refused(preflight(folder, code=1, env=environment), "binding", "threads on CPUs",
            "OMP_NUM_THREADS")


def check_folder(folder):
    """A folder without space, one that cannot be written, and a file in its place."""
    refused(preflight("/proc/run", code=1), "run-folder", "/proc", "cannot create")
    path = os.path.join(folder, "file")
    with open(path, "w", encoding="utf-8"):
        pass
    refused(preflight(path, code=1), "run-folder", path)
    few = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))  # noqa: E731
    refused(preflight(folder, code=1, preexec_fn=few), "run-folder", "File too large")
    mounts = os.path.join(folder, "full")
    os.mkdir(mounts)
    small = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=4m t "$0" && exec "$@"', mounts]
    if run([*small, "true"], None).returncode:
        print("not tried: a full disk, because this machine does not allow mounts")
        return
    done = run([*small, TRIREME, "preflight", "--run-dir", mounts, *CALM, "space_gb=0"], 1)
    refused(done, "run-folder", "No space left", mounts)


def check_usage(folder):
    for words, part in ((["--tiemout", "3"], "--timeout"), (["space=1"], "space"),
                        (["--timeout", "no"], "--timeout"), (["--device", "none"], "none"),
                        (["run"], "run")):
        done = run([TRIREME, "preflight", *words], None, cwd=folder)
        assert part in done.stderr and len(done.stderr.splitlines()) == 1, done
        assert done.returncode == 2 and not done.stdout, done


def check_slow_rank(folder):
    """Rank 1 computes with slower instructions, as on an older processor."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        if "avx2" not in file.read():
            print("not tried: a slow rank, because this processor has no slower instructions")
            return
    slow = ["sh", "-c", '[ "$RANK" = 0 ] || export TRIREME_CPU_ISA=base; exec "$@"', "sh"]
    done = run(on_ranks(2, [*slow, TRIREME, "preflight", "--run-dir", folder, *CALM,
                            "compute_fraction=0.75"]), 1)
    refused(done, "compute", "rank 1", "GFLOP/s", "median")


def check_missing_rank(folder):
    """One rank of two: the other one is named, within the time limit."""
    environment = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0",
                   "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                   "MASTER_PORT": str(20000 + os.getpid() % 10000)}
    begin = time.monotonic()
    done = preflight(folder, "--timeout", "2", code=1, env=environment)
    assert time.monotonic() - begin < SOON
    refused(done, "meeting", "rank 1 of 2", "2 s")
    assert [line.split()[1] for line in done.stdout.splitlines()[2:-1]] == ["unknown"] * 9, done
    report = json.loads(preflight(folder, "--timeout", "1", "--json", code=1,
                                  env=environment).stdout)
    assert not report["go"] and report["hosts"] == [], report


def check_rank_that_does_not_reach(folder):
    """It alone knows why, so that it says so itself; no other rank of its host repeats it."""
    port = str(20000 + os.getpid() % 10000)
    many = {**os.environ, "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2",
            "TRIREME_STORE": f"127.0.0.1:{port}", "TRIREME_TOKEN": "0123456789abcdef"}
    for environment, code, text in (
            ({}, 1, f"the store at 127.0.0.1:{port} was not reached within 1 s"),
            ({"TRIREME_TOKEN": "", "TRIREME_TOKEN_FILE": "/nowhere/token"}, 2, "/nowhere/token")):
        for rank, count in ((2, 1), (3, 0)):
            done = preflight(folder, "--timeout", "1", code=code, env={
                **many, **environment, "RANK": str(rank), "LOCAL_RANK": str(rank % 2)})
            found = lines(done)
            assert len(found) == count and done.stdout == "", done
            if found:
                assert found[0].startswith("trireme: meeting: ") and text in found[0], done


def main():
    failed = 0
    for check in (check_alone, check_ranks, check_nothing_stays, check_limits, check_threads,
                  check_folder, check_other_folder,
                  check_killed, check_ignored_signal, check_slow_rank, check_usage,
                  check_missing_rank, check_rank_that_does_not_reach):
        with tempfile.TemporaryDirectory(prefix="trireme-preflight-") as folder:
            failed += check_all([check], folder)
    return failed


if __name__ == "__main__":
    sys.exit(main())
