#!/usr/bin/env python3
"""`trireme submit`: the job script of every site, launcher and container runtime; what is refused;
profiles of one's own; how sbatch is called.

usage: test_submit.py BUILD_FOLDER
"""
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, run  # noqa: E402
from submit import (IMAGES, LAUNCHERS, RECIPE, check_shell, command, options,  # noqa: E402
                    script, sites, variables, with_modules, words)

# As LUMI's documentation publishes them, for GCD 0 to 7.
LUMI_MASKS = ("0x00fe000000000000,0xfe00000000000000,0x0000000000fe0000,0x00000000fe000000,"
              "0x00000000000000fe,0x000000000000fe00,0x000000fe00000000,0x0000fe0000000000")
OF_RANKS = re.compile(r"\b(RANK|WORLD_SIZE|LOCAL_RANK|SLURM_PROCID)\b")


def seconds(text):
    days, _, clock = text.rpartition("-")
    hours, minutes, rest = (int(part) for part in clock.split(":"))
    return int(days or 0) * 86400 + hours * 3600 + minutes * 60 + rest


def check_script(site, partition, launcher, runtime, nodes):
    """Checks one script and returns it."""
    more = ["--launcher", launcher]
    if partition:
        more += ["--partition", partition["name"]]
    if runtime:
        more += ["--container", f"{runtime}:{IMAGES.get(runtime, 'image.sif')}"]
    text = script(site, *more, nodes=nodes)
    asked, srun = options(text), command(text)
    assert text.startswith("#!/bin/bash\n") and max(map(len, text.splitlines())) < 260, text
    assert asked["nodes"] == str(nodes) and "job-name" in asked, asked
    assert ("account" in asked) == site["account_required"], asked
    if partition:
        flag = "qos" if site["name"] == "perlmutter" else "partition"
        assert asked[flag] == partition["name"], asked
        assert seconds(asked["time"]) <= partition.get("time_s", 1e9), asked
    tasks = int(asked["ntasks-per-node"])
    ranks = int(re.search(r": (\d+) ranks? on each", text).group(1))
    assert 1 <= ranks <= (site["gpus"] or 1), text
    assert tasks == (1 if launcher == "run" else ranks), text
    if partition and "gpus" in partition:
        assert ranks * nodes <= partition["gpus"], text
    if "cpus-per-task" in asked:  # srun does not take it from sbatch
        assert f"--cpus-per-task={asked['cpus-per-task']}" in srun, srun
        assert 1 <= int(asked["cpus-per-task"]) * tasks <= 2 * site["cores"], asked
    gpus = [(name, value) for name, value in asked.items() if "gpu" in name + value
            and name not in ("partition", "constraint", "module")]
    assert bool(gpus) == bool(site["gpus"]), asked
    for name, value in gpus:
        share = tasks if name == "gpus-per-task" else 1
        assert int(re.search(r"(\d+)$", value).group(1)) * share == ranks, asked
    # Ranks exist only inside the step.
    assert not OF_RANKS.search(text), text
    assert ("NCCL_NET" in variables(text)) <= (nodes > 1), text
    device = "cuda" if site["gpus"] else "cpu"
    assert srun[0] == "srun" and srun[-5:] == ["train", RECIPE, "batch.global=4096", "--device",
                                               device], srun
    program = "trireme" if runtime else os.path.realpath(TRIREME)
    assert srun[-6] == program, srun
    starts = srun.index(program)
    if launcher == "run":
        assert srun[starts + 1:starts + 6] == ["run", "--nnodes", str(nodes), "--nproc-per-node",
                                               str(ranks)], srun
    if runtime:
        image = IMAGES.get(runtime, "image.sif")
        place = [i for i, word in enumerate(srun) if image in word]
        assert place and max(place) < starts or f"--image={image}" in text, srun
    return text


def check_every_site(folder):
    texts = []
    for site in sites():
        cases = itertools.product(site["partitions"] or [None], LAUNCHERS,
                                  [None, *site["containers"]], (1, 2))
        for partition, launcher, runtime, nodes in cases:
            most = partition and min(partition.get("nodes", 99), partition.get("gpus", 99))
            if most and nodes > most:
                continue
            texts.append(check_script(site, partition, launcher, runtime, nodes))
    assert len(texts) > 100, len(texts)
    check_shell(folder, texts)


def check_signal(_):
    """The signal before the end leaves a job most of its time, although Slurm may send it a minute
    early; a job that is too short for that has none."""
    (generic,) = [site for site in sites() if site["name"] == "generic"]
    for minutes, lead in ((1, None), (4, None), (5, 30), (19, 114), (20, 120), (59, 120)):
        asked = options(script(generic, "--time", f"00:{minutes:02}:00"))
        assert asked.get("signal") == (f"USR1@{lead}" if lead else None), (minutes, asked)


def check_list(_):
    found = {site["name"]: site for site in sites()}
    for name in ("lumi-g", "frontier", "perlmutter", "marenostrum5", "juwels-booster", "leonardo",
                 "alps", "roihu", "generic"):
        assert found[name]["closed"] is None, name
    # A plan can be made for every GPU.
    for gpu in {site["gpu"] for site in found.values()} - {None}:
        run([TRIREME, "plan", RECIPE, "--device", f"cuda:{gpu}"])
    for name in ("mahti", "puhti"):
        assert "2026" in found[name]["closed"], name
    table = run([TRIREME, "submit", "--list"]).stdout
    assert all(re.search(rf"^{name} ", table, re.M) for name in found), table
    by_name = found["lumi-g"]
    assert by_name["partitions"][0] == {"name": "standard-g", "nodes": 1024, "time_s": 172800.0}
    done = run(words(found["mahti"], "--dry-run"))
    assert "shut down in August 2026" in done.stderr, done.stderr


def check_known_facts(_):
    """What the sites' own documentation says, in the scripts."""
    found = {site["name"]: site for site in sites()}
    lumi = script(found["lumi-g"], nodes=2)
    assert f"--cpu-bind=mask_cpu:{LUMI_MASKS}" in command(lumi), lumi
    assert options(lumi)["mem"] == "480G" and options(lumi)["cpus-per-task"] == "7", lumi
    part = script(found["lumi-g"], "--partition", "small-g", "--ranks-per-node", "2")
    assert "mask_cpu" not in part and options(part)["mem"] == "120G", part
    assert "mask_cpu" not in script(found["lumi-g"], "--launcher", "run")
    juwels = script(found["juwels-booster"], nodes=2)
    assert '| head -n 1)i\n' in juwels and 'MASTER_ADDR="$host"' in juwels, juwels
    assert "MASTER_ADDR" not in script(found["juwels-booster"])
    alps = variables(script(found["alps"], nodes=2))
    assert alps["NCCL_PROTO"] == "^LL128" and alps["OMP_NUM_THREADS"] == "72", alps
    assert alps["NCCL_NET"] == "AWS Libfabric", alps
    assert variables(script(found["perlmutter"]))["CUDA_VISIBLE_DEVICES"] == "3,2,1,0"
    assert options(script(found["leonardo"]))["mem"] == "494000M"
    assert options(script(found["roihu"], "--ranks-per-node", "1"))["mem"] == "217G"
    assert options(script(found["frontier"]))["network"] == "disable_rdzv_get"


def refused(flags, *parts, code=2, recipe=RECIPE, **more):
    done = run([TRIREME, "submit", recipe, *flags, "--dry-run"], code, **more)
    lines = done.stderr.splitlines()
    assert not done.stdout and len(lines) == 1, f"{flags}: {done.stdout}{done.stderr}"
    for part in parts:
        assert part in lines[0], f"'{part}' is not in: {lines[0]}"


def check_refused(_):
    """One line that names the site, the flag and what is allowed."""
    lumi = ["--site", "lumi-g", "--account", "project_1"]
    refused(["--site", "lumi", "--nodes", "1"], "--site", "lumi-g", "--list")
    refused(["--nodes", "1"], "--site")
    refused(lumi, "lumi-g", "--nodes")
    refused([*lumi, "--nodes", "0"], "--nodes 0", "from 1 to")
    refused([*lumi, "--nodes", "2x"], "--nodes 2x")
    refused(["--site", "lumi-g", "--nodes", "1"], "lumi-g: --account", "project_")
    refused([*lumi, "--nodes", "1025"], "standard-g", "1024")
    refused([*lumi, "--nodes", "33", "--partition", "dev-g"], "--nodes 33", "dev-g", "32")
    refused([*lumi, "--nodes", "1", "--partition", "gpu"], "standard-g, small-g, dev-g")
    refused([*lumi, "--nodes", "1", "--time", "2-00:00:01"], "--time", "2-00:00:00")
    for time in ("1", "1:00", "90:99:00", "-1:00:00", "00:00:00", "1-1-01:00:00", "01:00:00x"):
        refused([*lumi, "--nodes", "1", "--time", time], f"--time {time}", "HH:MM:SS")
    refused([*lumi, "--nodes", "1", "--ranks-per-node", "9"], "8 GPUs")
    refused([*lumi, "--nodes", "1", "--ranks-per-node", "4"], "whole nodes", "8")
    refused([*lumi, "--nodes", "1", "--launcher", "mpirun"], "srun or run")
    refused([*lumi, "--nodes", "1", "--container", "singularity:"], "which image")
    refused([*lumi, "--nodes", "1", "--container", "a b"], "blanks")
    refused(["--site", "lumi-g", "--account", "a b", "--nodes", "1"], "--account a b", "one word")
    refused(["--site", "perlmutter", "--nodes", "1", "--account", "m1"], "_g")
    refused(["--site", "perlmutter", "--nodes", "1", "--account", "m1_g", "--qos", "debug"],
            "--partition", "regular, debug")
    refused(["--site", "perlmutter", "--nodes", "2", "--account", "m1_g", "--partition", "shared"],
            "shared", "at most 1")
    refused(["--site", "marenostrum5", "--nodes", "1", "--account", "a"], "--qos", "acc_debug")
    refused(["--site", "leonardo", "--nodes", "1", "--account", "a", "--qos", "x"], "boost_qos_dbg")
    refused(["--site", "roihu", "--nodes", "2", "--account", "a", "--ranks-per-node", "4"],
            "gpumedium", "4 GPUs")
    refused(["--site", "mahti", "--nodes", "1", "--account", "a", "--partition", "gpusmall",
             "--ranks-per-node", "3"], "gpusmall", "2 GPUs")
    # Errors of the recipe are found before submission, those of the ranks too.
    refused([*lumi, "--nodes", "1", "optimizer.rl=1"], "optimizer.rl", "lr")
    refused([*lumi, "--nodes", "1", "strategy.mesh.tensor=3"], "tensor")
    refused([*lumi, "--nodes", "1", "batch.global=4"], "batch.global")
    refused(["--site", "generic", "--nodes", "1", "--run-dir", "a\nb"], "control character")
    # So are those of the plan: batch norm on several ranks, and memory.
    refused([*lumi, "--nodes", "1"], "batch norm", "batch.micro",
            recipe="recipes/mnist-convnet.yaml")
    refused(["--site", "juwels-booster", "--account", "a", "--nodes", "1", "strategy.name=ddp"],
            "cuda:a100-40", "GB", "would fit", recipe="recipes/codellama-7b.yaml")


def check_devices(folder):
    """The script names the device. A site whose GPUs this build cannot drive is refused."""
    lumi, leonardo = (["--site", name, "--account", "a", "--nodes", "1"]
                      for name in ("lumi-g", "leonardo"))
    environment = with_modules(tempfile.mkdtemp(dir=folder), "cuda")

    def device(*flags):
        done = run([TRIREME, "submit", RECIPE, *flags, "--dry-run"], env=environment)
        srun = command(done.stdout)
        return srun[srun.index("--device") + 1]

    assert device(*leonardo) == "cuda" and device(*leonardo, "--device", "auto") == "cuda"
    assert device(*lumi, "--device", "cpu") == device(*leonardo, "--device", "cpu") == "cpu"
    assert device("--site", "generic", "--nodes", "1") == "cpu"
    image = ["--container", "image.sif"]
    for flags in lumi, [*lumi, "--device", "auto"], [*lumi, "--device", "cuda"], [*lumi, *image]:
        refused(flags, "lumi-g", "mi250x", "hip", "--device cpu", env=environment)
    assert device(*lumi, *image, "--device", "cuda") == "cuda"
    refused(leonardo, "leonardo", "a100-64", "cuda", "--device cpu",
            env=with_modules(tempfile.mkdtemp(dir=folder)))
    # Without the shapes of samples there is no plan.
    done = run([TRIREME, "submit", "recipes/mnist-convnet.yaml", "data.name=npy", "data.train=a",
                "data.test=b", "--site", "generic", "--nodes", "2", "--dry-run"], env=environment)
    assert "data.shapes" in done.stderr and done.stdout, done.stderr


PROFILE = """
name: own
title: Our cluster
node: {cores: 12, threads_per_core: 2, gpus: 2}
partitions: [{name: fast, sbatch: ["--comment={cpus} of {gpus}"]}]
cpus_per_rank: 8
sbatch: ["--mem={memory}", "--gres=gpu:{gpus}"]
setup: ["module load openmpi"]
environment: {GREETING: "it's $HOME"}
"""


def check_own_profile(folder):
    path = os.path.join(folder, "own.yaml")

    def write(text):
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)

    write(PROFILE)
    text = run([TRIREME, "submit", RECIPE, "--site", path, "--nodes", "2", "--dry-run"]).stdout
    check = subprocess.run(["bash", "-n"], input=text, text=True, check=False)
    assert check.returncode == 0, text
    found = options(text)
    assert found["comment"] == "8 of 2" and found["gres"] == "gpu:2", found
    assert "mem" not in found, "an option whose placeholder has no value"
    assert variables(text) == {"OMP_NUM_THREADS": "4", "GREETING": "it's $HOME"}, text
    assert "\nmodule load openmpi\n" in text, text
    for line, parts in (("memory_per_rank: much", ("own.yaml", "60G")),
                        ("cpus_per_rnk: 4", ("own.yaml:10", "cpus_per_rank")),
                        ("sbatch_more: []", ("own.yaml:10", "unknown key")),
                        ("srun: ['{cores}']", ("{cores}", "{cpus}")),
                        ("srun: [\"a\\nb\"]", ("control character",)),
                        ("binding: [0-3, 3-5]", ("two ranks", "CPU 3")),
                        ("binding: [0-3]", ("1 entries for 2",)),
                        ("binding: [0-3, 9-7]", ("9-7",)),
                        ("environment_between_nodes: {RANK: 1}", ("RANK", "srun")),
                        ("environment_between_nodes: {2X: 1}", ("2X",)),
                        ("qos: {a: 1}", ("list of mappings",)),
                        ("qos: [{name: a b}]", ("name",)),
                        ("containers: [{command: []}]", ("name",))):
        write(PROFILE + line + "\n")
        refused(["--site", path, "--nodes", "1"], *parts)
    write("- 1\n")
    refused(["--site", path, "--nodes", "1"], "mapping")
    refused(["--site", os.path.join(folder, "none.yaml"), "--nodes", "1"], "none.yaml")


FAKES = {
    "sbatch": "#!/bin/sh\ncat >\"$HERE/got\"\n[ $# = 0 ] && echo 'Submitted batch job 7'\n",
    "srun": "#!/bin/sh\nprintf '%s\\n' \"$@\" >\"$HERE/words\"\n",
    "scontrol": "#!/bin/sh\necho first\necho second\n",
}


def check_submission(folder):
    """sbatch gets the script that --dry-run prints, and bash runs it with the user's words."""
    for name, text in FAKES.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
            out.write(text)
        os.chmod(os.path.join(folder, name), 0o755)
    environment = {**os.environ, "HERE": folder, "PATH": f"{folder}:{os.environ['PATH']}",
                   "SLURM_JOB_NODELIST": "first,second", "SLURM_JOB_ID": "123456"}
    odd = "data.path=it's $HOME; `date` \"x\" *"
    generic = [TRIREME, "submit", RECIPE, odd, "name=a b", "--site", "generic", "--nodes", "2",
               "--launcher", "run", "--run-dir", "runs/a b"]
    shown = run([*generic, "--dry-run"]).stdout
    done = run(generic, env=environment)
    assert done.stdout == "Submitted batch job 7\n", done.stdout
    with open(os.path.join(folder, "got"), encoding="utf-8") as got:
        assert got.read() == shown
    assert options(shown)["job-name"] == "a b"
    subprocess.run(["bash"], input=shown, text=True, env=environment, check=True)
    with open(os.path.join(folder, "words"), encoding="utf-8") as got:
        found = got.read().splitlines()
    assert found[-7:] == [RECIPE, odd, "name=a b", "--run-dir", "runs/a b", "--device",
                          "cpu"], found
    at = found.index("--rdzv-endpoint")
    assert found[at + 1] == "first:23456" and "123456" in found, found
    # sbatch refuses; there is none.
    with open(os.path.join(folder, "sbatch"), "w", encoding="utf-8") as out:
        out.write("#!/bin/sh\necho 'sbatch: error: no' >&2\nexit 3\n")
    done = run(generic, 1, env=environment)
    assert "exit code 3" in done.stderr.splitlines()[-1], done.stderr
    done = run(generic, None, env={**environment, "PATH": os.path.join(folder, "none")})
    assert done.returncode in (1, 2) and "--dry-run" in done.stderr, done.stderr


def check_no_data(folder):
    """The recipe's data need not be here."""
    run([TRIREME, "submit", RECIPE, "data.path=" + os.path.join(folder, "none"), "--site",
         "generic", "--nodes", "1", "--dry-run"])
    done = run([TRIREME, "submit", "--list", "--json"])
    assert isinstance(json.loads(done.stdout), list)


if __name__ == "__main__":
    assert shutil.which("shellcheck"), "no shellcheck: scripts/install-deps --test installs it"
    with tempfile.TemporaryDirectory(prefix="trireme-submit-") as place:
        os.environ.update(with_modules(tempfile.mkdtemp(dir=place), "cuda", "hip"))
        sys.exit(check_all([check_list, check_signal, check_known_facts, check_every_site,
                            check_refused, check_devices, check_own_profile, check_submission,
                            check_no_data],
                           place))
