"""Job scripts of `trireme submit` for every site: how to ask for them, and what is in them."""
import json
import os
import re
import shlex
import subprocess

from runs import TRIREME, run

RECIPE = "recipes/mlp-jax.yaml"
LAUNCHERS = ("srun", "run")
# What a user has to give, because a site's profile cannot know it: accounts by site, and container
# images by container runtime.
ACCOUNTS = {"perlmutter": "m1234_g"}
IMAGES = {"enroot": "image.toml", "shifter": "docker:user/image:1", "podman-hpc": "user/image:1",
          "podman": "user/image:1"}


def with_modules(folder, *names):
    """An environment in which this build seems to have the modules for these GPUs, and no other."""
    for name in names:
        open(os.path.join(folder, f"{name}.so"), "w", encoding="utf-8").close()
    return {**os.environ, "TRIREME_MODULES": folder}


def sites():
    return json.loads(run([TRIREME, "submit", "--list", "--json"]).stdout)


def demands(site):
    """The flags that a site's jobs need."""
    flags = []
    if site["account_required"]:
        flags += ["--account", ACCOUNTS.get(site["name"], "project_1")]
    if site["qos_required"]:
        flags += ["--qos", site["qos"][0]["name"]]
    return flags


def words(site, *more, nodes=1):
    return [TRIREME, "submit", RECIPE, "batch.global=4096", "--site", site["name"],
            "--nodes", str(nodes), *demands(site), *more]


def script(site, *more, nodes=1):
    return run(words(site, *more, "--dry-run", nodes=nodes)).stdout


def options(text):
    """{option: value} of the #SBATCH lines, which come before any command."""
    found, commands = {}, False
    for line in text.splitlines():
        if not line.startswith("#SBATCH "):
            commands = commands or bool(line) and not line.startswith("#")
            continue
        assert not commands, f"{line} comes after a command"
        (word,) = shlex.split(line.removeprefix("#SBATCH "))
        name, _, value = word.removeprefix("--").partition("=")
        assert name not in found, f"--{name} twice"
        found[name] = value
    return found


def variables(text):
    return {name: shlex.split(value)[0] if value else ""
            for name, value in re.findall(r"^export (\w+)=(.*)$", text, re.M)}


def command(text):
    """The words of the srun command, the lines' continuations joined."""
    joined = text.replace("\\\n", " ")
    (line,) = [line for line in joined.splitlines() if line.startswith("srun ")]
    return shlex.split(line)


def check_shell(folder, texts):
    """Checks that bash can parse the scripts and that shellcheck reports nothing."""
    names = []
    for text in texts:
        names.append(os.path.join(folder, f"{len(names)}.sh"))
        with open(names[-1], "w", encoding="utf-8") as out:
            out.write(text)
        subprocess.run(["bash", "-n", names[-1]], check=True)
    done = subprocess.run(["shellcheck", "-s", "bash", *names], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
