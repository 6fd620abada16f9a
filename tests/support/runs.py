"""Helpers of the tests that run the program: they start runs, read a run's files, and check that
runs end in time and leave nothing behind."""
import json
import os
import signal
import socket
import subprocess
import sys
import time

SECONDS = 240  # time limit of a single run
# What ends or comes within seconds has so much time on a busy machine. It is less than the time
# limits that would end it otherwise: minutes, with comm.timeout_s and --timeout at their defaults.
SOON = 60
TRIREME = os.path.join(os.path.abspath(sys.argv[1]), "bin", "trireme")
DATA = "/usr/share/datasets/fashion-mnist"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["NO_COLOR"] = "1"
# A variable by which all processes that this test starts are recognised.
MARK = f"TRIREME_TEST_MARK={os.getpid()}-{time.time_ns()}"
os.environ.update([MARK.split("=")])

# Random images, so that a test needs no data set. A model can only memorise their labels.
SYNTHETIC = ["data.name=synthetic", "data.shape=[1,28,28]", "data.classes=10", "data.workers=1",
             "data.shuffle=true", "log.tensorboard=false", "trainer.log_every_n_steps=1"]


def train(recipe, run_dir, *words):
    """The command that trains a recipe: on the device that TEST_DEVICE names, if it names one and
    the words do not."""
    device = os.environ.get("TEST_DEVICE")
    if device and "--device" not in words:
        words = [*words, "--device", device]
    return [TRIREME, "train", f"recipes/{recipe}.yaml", "--run-dir", run_dir, *words]


def on_ranks(ranks, words, *flags):
    """The command that starts `words` on so many ranks; one rank needs no launcher."""
    if ranks == 1 and not flags:
        return words
    return [TRIREME, "run", "--standalone", "--nproc-per-node", str(ranks), *flags, *words]


def run(words, code=0, **more):
    """Runs a command to its end. Its exit code has to be `code` (None: any)."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False,
                          **more)
    if code is not None and done.returncode != code:
        raise AssertionError(f"exit code {done.returncode}, not {code}, of {' '.join(words)}\n"
                             f"{done.stdout}{done.stderr}")
    return done


def check_refused(words, run_dir, texts, **more):
    """Checks that the command ends with code 2 and a message that has the texts, and makes no run
    folder."""
    done = run(words, 2, **more)
    for text in texts:
        assert text in done.stderr, f"{text} is not in: {done.stderr}"
    assert not os.path.exists(run_dir), "a refused run left a folder"


def entries(run_dir, kind):
    """The objects of one kind in metrics.jsonl; a last line cut short by a kill is left out."""
    path = os.path.join(run_dir, "metrics.jsonl")
    if not os.path.exists(path):
        return []
    found = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            try:
                # Numbers with a fraction stay text, so that comparing them compares every digit.
                entry = json.loads(line, parse_float=str)
            except ValueError:
                continue
            if entry["kind"] == kind:
                found.append(entry)
    return found


def losses(run_dir, kind="train"):
    """The loss of each step, as text. If a step is repeated, its later line counts."""
    return {entry["step"]: str(entry["loss"]) for entry in entries(run_dir, kind)}


def check_same(got, wanted, what):
    """Checks that all losses are the same to the last digit."""
    for step in sorted(wanted.keys() | got.keys()):
        if got.get(step) != wanted.get(step):
            raise AssertionError(f"{what}, step {step}: loss {got.get(step)}, "
                                 f"not {wanted.get(step)}")


def check_close(got, wanted, limit, what):
    """Checks that losses differ by at most a relative limit at each step. Returns the largest
    difference."""
    assert got.keys() == wanted.keys(), f"{what}: steps {sorted(got)}, not {sorted(wanted)}"
    worst = 0.0
    for step, loss in sorted(wanted.items()):
        difference = abs(float(got[step]) - float(loss)) / abs(float(loss))
        assert difference <= limit, f"{what}, step {step}: {got[step]} and {loss}: {difference:.2e}"
        worst = max(worst, difference)
    return worst


def start(words, **more):
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            **more)


def start_ranks(words, count, only=None, port=None, **environment):
    """Starts ranks (those of `only`, or all) without a launcher, because a launcher would end the
    other ranks when one fails."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = port or probe.getsockname()[1]
    return [start(words, env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank),
                              "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count),
                              "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                              **environment})
            for rank in only or range(count)]


def wait_for(condition, what, seconds=SOON, child=None):
    """Waits until the condition holds. Returns False if the child ends first; fails if the time is
    up."""
    end = time.monotonic() + seconds
    while not condition():
        if child is not None and child.poll() is not None:
            return False
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.005)
    return True


def finish(child, seconds=SECONDS):
    """Waits for a child and returns its output, errors and exit code. Kills it if it takes too
    long."""
    try:
        out, err = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGKILL)
        out, err = child.communicate()
        raise AssertionError(f"it did not end within {seconds} s\n{out}{err}") from None
    return out, err, child.returncode


def end_all(children):
    """Kills those that still live."""
    for child in children:
        if child.poll() is None:
            child.kill()
        child.communicate()


def read_of(pid, name):
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:
        return b""


def state(pid):
    """The state of a process as ps shows it: "R" runs, "T" is stopped, …; "X" also if it is
    gone."""
    text = read_of(pid, "stat").decode()
    return text.rsplit(")", 1)[1].split()[0] if text else "X"


def alive(pid):
    """Whether the process is neither gone nor only waiting to be reaped."""
    return state(pid) not in "ZX"


def processes():
    """The living processes that this test has started: command by pid. If there are none, no
    shared memory and no sockets are left either: these have no names in a file system, so they
    exist only as long as a process holds them."""
    return {int(pid): read_of(pid, "cmdline").replace(b"\0", b" ").decode()
            for pid in os.listdir("/proc")
            if pid.isdigit() and MARK.encode() in read_of(pid, "environ").split(b"\0")
            and alive(int(pid))}


def sharing():
    """Those of processes() that have mapped memory that ranks share."""
    return {pid for pid in processes() if b"/memfd:trireme" in read_of(pid, "maps")}


def check_nothing_left():
    """Checks that all processes end. A killed one takes a moment until its memory is freed."""
    wait_for(lambda: not processes(), "the end of all processes that were started")


def last(run_dir):
    return os.path.join(run_dir, "checkpoints", "last")


def check_saved(run_dir):
    """Checks that a run, whenever it was ended, has only whole checkpoints, or none."""
    if os.path.exists(last(run_dir)):
        run([TRIREME, "checkpoint", "verify", run_dir])


def processor_s():
    """Seconds of a core that the processes have used that this test has waited for."""
    used = os.times()
    return used.children_user + used.children_system


def timed(check, *arguments):
    """Runs a check, and prints how long it took and how many seconds of a core its runs used: the
    first depends on what else the machine does."""
    begin, used = time.monotonic(), processor_s()
    check(*arguments)
    print(f"{check.__name__}: {time.monotonic() - begin:.1f} s, "
          f"{processor_s() - used:.1f} s of a core", flush=True)


def check_all(checks, *arguments):
    """Runs all checks and prints which of them fail, and where. Returns how many do."""
    failed = 0
    for check in checks:
        try:
            timed(check, *arguments)
        except AssertionError as wrong:
            failed += 1
            line = wrong.__traceback__
            while line.tb_next:
                line = line.tb_next
            print(f"{check.__name__}: line {line.tb_lineno}: {wrong}", flush=True)
    return failed
