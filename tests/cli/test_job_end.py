#!/usr/bin/env python3
"""A run in a Slurm job stops in time and starts again. Slurm's commands are scripts of this test,
which note how they were called; tests/cluster/test_job_end.py asks a real Slurm.

usage: test_job_end.py BUILD_FOLDER
"""
import os
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import runs

WORDS = ["trainer.max_steps=1000000", "trainer.max_epochs=-1", "trainer.limit_val_batches=0",
         "data.samples=64", "batch.global=8", *runs.SYNTHETIC,
         "trainer.log_every_n_steps=100000"]


def left(seconds):
    """What squeue says of a job that has so much time from now on."""
    end = int(time.time()) + seconds
    return f"left=$(({end} - $(date +%s))); echo $((left > 0 ? left : 0))"


def fake_slurm(folder, squeue, scontrol="", sbatch="echo 78"):
    """Commands of that behaviour in a folder of their own; returns the environment that finds
    them, and the file in which their calls stand."""
    place = tempfile.mkdtemp(dir=folder)
    calls = os.path.join(place, "calls")
    for name, script in (("squeue", squeue), ("scontrol", scontrol), ("sbatch", sbatch)):
        path = os.path.join(place, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\necho "{name} $*" >> {calls}\n{script}\n')
        os.chmod(path, 0o755)
    return {**os.environ, "PATH": f"{place}:{os.environ['PATH']}", "SLURM_JOB_ID": "77"}, calls


def read(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def steps_of(run_dir):
    return int(os.path.basename(os.path.realpath(runs.last(run_dir))).split("-")[1])


def check_stops(folder):
    """10 s are left: 5 s of them are kept free, the checkpoint needs some."""
    environment, calls = fake_slurm(folder, left(10))
    run_dir = os.path.join(folder, "stops")
    begin = time.monotonic()
    done = runs.run(runs.train("mlp-jax", run_dir, *WORDS), 75, env=environment)
    assert time.monotonic() - begin < runs.SOON
    assert "the job's time" in done.stderr, done.stderr
    assert steps_of(run_dir) > 0
    assert {line.split()[0] for line in read(calls)} == {"squeue"}, read(calls)


def check_longer(folder):
    """A job whose time was made longer goes on: Slurm is asked again before the run stops."""
    place = os.path.join(folder, "longer")
    environment, calls = fake_slurm(
        folder, f"[ -e {place}.asked ] && echo UNLIMITED || echo 0:10; touch {place}.asked")
    done = runs.run(runs.train("mlp-jax", place, *WORDS, "trainer.max_time=8"), 75, env=environment)
    assert "by trainer.max_time" in done.stderr and "job's time" not in done.stderr, done.stderr
    assert len(read(calls)) == 2, read(calls)


def check_requeue(folder):
    environment, calls = fake_slurm(folder, left(7))
    run_dir = os.path.join(folder, "requeue")
    done = runs.run(runs.on_ranks(2, runs.train("mlp-jax", run_dir, *WORDS,
                                                "trainer.on_timeout=requeue")), 75, env=environment)
    assert "job 77 goes back" in done.stderr, done.stderr
    assert read(calls)[-1] == "scontrol requeue 77", read(calls)
    # The same command goes on from there.
    at = steps_of(run_dir)
    again = runs.run(runs.train("mlp-jax", run_dir, *WORDS, f"trainer.max_steps={at + 2}"), 0)
    assert f"step {at}" in again.stderr, again.stderr


def check_evaluation(folder):
    """Slurm's signal that comes while an evaluation runs means the same: the job goes back, also if
    another rank than the first got it."""
    for rank in 0, 1:
        environment, calls = fake_slurm(folder, left(600))
        run_dir = os.path.join(folder, f"evaluation-{rank}")
        command = runs.train("mlp-jax", run_dir, *WORDS, "trainer.on_timeout=requeue",
                             "data.samples=8", "trainer.limit_val_batches=1.0", "batch.eval=100",
                             "data.test_samples=100000", "trainer.log_every_n_steps=1")
        children = runs.start_ranks(command, 2, PATH=environment["PATH"], SLURM_JOB_ID="77")
        try:
            assert runs.wait_for(lambda at=run_dir: runs.losses(at), "a step", child=children[0])
            children[rank].send_signal(signal.SIGUSR1)
            _, err, code = runs.finish(children[0])
        finally:
            runs.end_all(children)
        assert code == 75 and "job 77 goes back" in err, err
        assert read(calls)[-1] == "scontrol requeue 77", read(calls)
        assert steps_of(run_dir) == 1


def check_chain(folder):
    shown = "JobId=77 Partition=gpu Account=(null) QOS=normal TimeLimit=00:10:00 NumNodes=2"
    environment, calls = fake_slurm(
        folder, left(7), f'[ "$1" = write ] && echo "#!/bin/sh" > "$4" || echo "{shown}"')
    done = runs.run(runs.train("mlp-jax", os.path.join(folder, "chain"), *WORDS,
                               "trainer.on_timeout=chain"), 75, env=environment)
    assert "job 78 follows when job 77 has ended" in done.stderr, done.stderr
    last = read(calls)[-1].split()
    assert last[:-1] == ["sbatch", "--parsable", "--dependency=afterany:77", "--partition=gpu",
                         "--qos=normal", "--time=00:10:00", "--nodes=2"], last
    assert not os.path.exists(last[-1]), "the copy of the script is left"


def check_array(folder):
    """A task of a job array means itself, although the job id of one of them is the array's."""
    task = {"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": "2"}
    for how, script, last in (("requeue", "", "scontrol requeue 77_2"),
                              ("chain", '[ "$1" = write ] && touch "$4" || echo JobId=1',
                               "sbatch --parsable --dependency=afterany:77_2 --array=2 ")):
        environment, calls = fake_slurm(folder, left(1), script)
        runs.run(runs.train("mlp-jax", os.path.join(folder, f"array-{how}"), *WORDS,
                            f"trainer.on_timeout={how}"), 75, env={**environment, **task})
        called = read(calls)
        assert called[0].startswith("squeue ") and "-j 77_2 " in called[0], called
        assert called[-1].startswith(last), called


def check_no_time(folder):
    """A job that has no time left still makes one step. So a run that is started again and again
    comes to its end."""
    environment, calls = fake_slurm(folder, left(1))
    run_dir = os.path.join(folder, "short")
    words = runs.train("mlp-jax", run_dir, *WORDS, "trainer.on_timeout=requeue")
    done = runs.run(words, 75, env=environment)
    assert read(calls)[-1] == "scontrol requeue 77", read(calls)
    assert steps_of(run_dir) == 1 and "run the same command" not in done.stderr, done.stderr
    # With --resume PATH, a user's second start of the same command would begin there again.
    done = runs.run([*words, "--resume", os.path.realpath(runs.last(run_dir)),
                     "trainer.on_timeout=none"], 75, env=environment)
    assert "without --resume" in done.stderr and steps_of(run_dir) == 2, done.stderr


def check_start(folder):
    """Slurm's signal that comes before the first step: a step is made, and the job goes back."""
    environment, calls = fake_slurm(folder, left(600))
    run_dir = os.path.join(folder, "start")
    command = [os.path.join(os.path.dirname(runs.TRIREME), "fault_victim"),
               *runs.train("mlp-jax", run_dir, *WORDS)[1:]]
    victim = {**environment, "VICTIM": f"0,opening data,1,{int(signal.SIGUSR1)}"}
    done = runs.run([*command, "trainer.on_timeout=requeue"], 75, env=victim)
    assert "job 77 goes back" in done.stderr, done.stderr
    assert steps_of(run_dir) == 1 and read(calls)[-1] == "scontrol requeue 77", read(calls)


# A launcher: another process each time.
LAUNCHER = ["env", "-u", "RANK", "sh", "-c", 'env RANK=0 "$@"; exit $?', "sh"]


def start_of(folder, run_dir, resume, how="none", code=75, through=(), **variables):
    """Starts a run of which each start makes one step."""
    script = '[ "$1" = write ] && touch "$4" || echo JobId=1'
    environment, _ = fake_slurm(folder, left(1), script)
    words = [*through, *runs.train("mlp-jax", run_dir, *WORDS, f"trainer.on_timeout={how}",
                                   "--resume", resume)]
    return runs.run(words, code, env={**environment, **variables}).stderr


def abandoned(run_dir):
    names = os.listdir(os.path.join(run_dir, "checkpoints"))
    return len([name for name in names if name.startswith("abandoned")])


def check_first_start(folder):
    """--resume PATH and --resume never are for the first start of a job that starts again by
    itself, or of a launcher that restarts its ranks. A start of another job, of another launcher,
    or by hand in the same job is a first one."""
    other, of_path, of_never = (os.path.join(folder, name) for name in ("other", "path", "never"))
    start_of(folder, other, "auto")
    first = os.path.realpath(runs.last(other))
    again = {"SLURM_RESTART_COUNT": "1"}
    ranks = {"RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "none",
             "TORCHELASTIC_RESTART_COUNT": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "29400"}
    restarted = {**ranks, "TORCHELASTIC_RESTART_COUNT": "1"}
    for variables, how, steps in (({}, "requeue", 2), (again, "chain", 3),
                                  ({"SLURM_JOB_ID": "78"}, "none", 4),
                                  ({"SLURM_JOB_ID": "78", **again}, "none", 5)):
        start_of(folder, of_path, first, how, **variables)
        assert (steps_of(of_path), abandoned(of_path)) == (steps, 0), variables
    for variables in {}, {}, {"SLURM_JOB_ID": "79", **again}, ranks:
        start_of(folder, of_path, first, **variables)
        assert steps_of(of_path) == 2, variables
    assert abandoned(of_path) == 4
    start_of(folder, of_path, first, **restarted)
    assert (steps_of(of_path), abandoned(of_path)) == (3, 4)
    start_of(folder, of_never, "never", "requeue", **ranks)
    start_of(folder, of_never, "never", **restarted)
    start_of(folder, of_never, "never", **ranks, **again)
    assert steps_of(of_never) == 3
    # A first start that is killed while it makes the folder, before or after it has noted itself,
    # which it does before it writes the recipe.
    cut = os.path.join(folder, "cut")
    start_of(folder, cut, "never", "requeue")
    assert os.stat(f"{cut}/.start").st_mtime_ns <= os.stat(f"{cut}/recipe.yaml").st_mtime_ns
    for left_behind in ".start", "recipe.yaml":
        for name in set(os.listdir(cut)) - {".start"}:
            if os.path.isdir(f"{cut}/{name}"):
                shutil.rmtree(f"{cut}/{name}")
            else:
                os.remove(f"{cut}/{name}")
        if left_behind != ".start":
            os.rename(f"{cut}/.start", f"{cut}/{left_behind}.{16 * '0'}.tmp")
        start_of(folder, cut, "never", **again)
        assert steps_of(cut) == 1
    # Of two hosts, which torchrun gives one name, the agent may change, and nothing is counted; but
    # a run without a name, a copy of the folder and another PATH are first starts.
    hosts = {**ranks, "TORCHELASTIC_RUN_ID": "mine", "GROUP_WORLD_SIZE": "2"}
    for variables, steps in ((hosts, 2), (hosts, 3), ({**hosts, "GROUP_WORLD_SIZE": "1"}, 4),
                             ({**hosts, "TORCHELASTIC_RUN_ID": "none"}, 2)):
        start_of(folder, of_path, first, through=LAUNCHER, **variables)
        assert steps_of(of_path) == steps, (variables, steps_of(of_path))
    shutil.copytree(of_path, f"{of_path}-copy", symlinks=True)
    start_of(folder, f"{of_path}-copy", first, **again)
    assert steps_of(f"{of_path}-copy") == 2
    for words, variables in ([], {}), (LAUNCHER, {**ranks, **again}), (LAUNCHER, restarted):
        done = runs.run([*words, *runs.train("mlp-jax", of_never, *WORDS, "--resume", "never")], 2,
                        env={**os.environ, "SLURM_JOB_ID": "77", **variables})
        assert "not empty" in done.stderr, done.stderr


def check_failures(folder):
    """Slurm does not answer, or refuses: one line, and the run is as it would be without."""
    environment, _ = fake_slurm(folder, "echo slurm is down >&2; exit 1")
    done = runs.run(runs.train("mlp-jax", os.path.join(folder, "down"), *WORDS,
                               "trainer.max_steps=3"), 0, env=environment)
    for part in "job 77", "squeue ended with exit code 1", "slurm is down":
        assert part in done.stderr, done.stderr
    environment, _ = fake_slurm(folder, left(7), "echo access denied >&2; exit 1")
    done = runs.run(runs.train("mlp-jax", os.path.join(folder, "denied"), *WORDS,
                               "trainer.on_timeout=requeue"), 75, env=environment)
    for part in "job 77", "scontrol ended with exit code 1", "access denied":
        assert part in done.stderr, done.stderr
    done = runs.run(runs.train("mlp-jax", os.path.join(folder, "no"), *WORDS, "trainer.max_steps=3",
                               "trainer.on_timeout=chain"), 0)
    assert "trainer.on_timeout has no effect" in done.stderr, done.stderr


def check_killed_command(folder):
    """The command that asks for the requeue is killed: the job's state says what has become of it,
    and no advice puts two jobs on one folder."""
    for state, told in (("COMPLETING", False), ("RUNNING", True), ("", True)):
        environment, calls = fake_slurm(
            folder, f'case "$*" in *%T*) echo {state};; *) {left(1)};; esac', "kill -KILL $$")
        done = runs.run(runs.train("mlp-jax", os.path.join(folder, f"killed-{state}"), *WORDS,
                                   "trainer.on_timeout=requeue"), 75, env=environment)
        assert "%T" in read(calls)[-1], read(calls)
        assert ("squeue --me" in done.stderr) == told, done.stderr
        assert "is not started again" not in done.stderr, done.stderr


def main():
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        del os.environ[name]
    with tempfile.TemporaryDirectory() as folder:
        return runs.check_all([check_stops, check_longer, check_requeue, check_evaluation,
                               check_chain, check_array, check_no_time, check_first_start,
                               check_start, check_failures, check_killed_command], folder)


if __name__ == "__main__":
    sys.exit(main())
