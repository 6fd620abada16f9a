#!/usr/bin/env python3
"""Completion in bash, zsh and fish and the manual page, which the program writes from its tables.

usage: test_completion.py BUILD_FOLDER
"""
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import time

BUILD = os.path.abspath(sys.argv[1])
TRIREME = os.path.join(BUILD, "bin", "trireme")


def trireme(*words):
    return subprocess.run([TRIREME, *words], capture_output=True, text=True, check=True).stdout


def in_bash(script, line, breaks="\"'><=;|&(:"):
    """What bash would offer at the end of the line."""
    program = ('source "$1"; COMP_WORDBREAKS=$3; COMP_LINE=$2; COMP_POINT=${#2}; COMPREPLY=(); '
               '_trireme; (( ${#COMPREPLY[@]} == 0 )) || printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "--norc", "-c", program, "bash", script, line, breaks],
                          capture_output=True, text=True, check=True)
    assert not done.stderr, f"{line}: {done.stderr}"
    return [word.strip() for word in done.stdout.splitlines()]


def in_fish(script, line):
    """What fish would offer, without the key of key=value and the stroke behind a folder."""
    done = subprocess.run(["fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]",
                           script, line], capture_output=True, text=True, check=True)
    assert not done.stderr, f"{line}: {done.stderr}"
    words = [word.split("\t")[0].rstrip("/") for word in done.stdout.splitlines()]
    with_key = "=" in line.split(" ")[-1]
    return [word.partition("=")[2] if with_key else word for word in words]


class Zsh:
    """An interactive zsh on a terminal of its own, whose completion records what it would offer."""
    SETUP = """
        fpath=({folder} $fpath)
        autoload -U compinit; compinit -u -d {folder}/dump
        compadd() {{
            local -a hits
            [[ " ${{(j: :)@}}" == *" -"[AOD]" "* ]] || {{
                builtin compadd -O hits "$@"
                (( $#hits == 0 )) || print -rl -- $hits >>{folder}/offers
            }}
            builtin compadd "$@"
        }}
        ask() {{
            BUFFER=$(<{folder}/line); CURSOR=$#BUFFER
            zle list-choices
            BUFFER=; print -r DONE >>{folder}/offers
        }}
        zle -N ask; bindkey '^T' ask
        PS1=; print -r READY >{folder}/ready
    """

    def __init__(self, folder):
        self.folder = folder
        with open(os.path.join(folder, ".zshrc"), "w", encoding="utf-8") as out:
            out.write(self.SETUP.format(folder=folder))
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvpe("zsh", ["zsh", "-d", "-i"], {**os.environ, "ZDOTDIR": folder,
                                                    "TERM": "dumb", "LISTMAX": "10000"})
        self.wait("ready", "READY")

    def close(self):
        os.close(self.terminal)  # hangs up
        os.waitpid(self.pid, 0)

    def wait(self, name, mark):
        """The lines of a file that zsh writes, once the last one is the mark."""
        os.set_blocking(self.terminal, False)
        for _ in range(4800):  # four minutes: on a busy machine zsh needs more than one to start
            try:
                os.read(self.terminal, 65536)  # so that it never waits for the terminal
            except BlockingIOError:
                pass
            path = os.path.join(self.folder, name)
            lines = open(path, encoding="utf-8").read().splitlines() if os.path.exists(path) else []
            if lines and lines[-1] == mark:
                return lines[:-1]
            time.sleep(0.05)
        raise AssertionError(f"zsh did not write {name}: {lines}")

    def complete(self, script, line):
        """What zsh would offer; of a path its last part."""
        with open(os.path.join(self.folder, "line"), "w", encoding="utf-8") as out:
            out.write(line)
        offers = os.path.join(self.folder, "offers")
        if os.path.exists(offers):
            os.remove(offers)
        os.write(self.terminal, b"\x14")
        return [word.rstrip("/") for word in self.wait("offers", "DONE")]


def gpus():
    """The models that a plan knows, as it lists them when it knows one not."""
    done = subprocess.run([TRIREME, "plan", "recipes/mnist-cnn.yaml", "--device", "cuda:none"],
                          capture_output=True, text=True)
    return done.stderr.strip().partition("; it has ")[2].split(", ")


def check_completion(script, complete, last_parts=False):
    def offers(line, *wanted, exactly=True):
        # In bash, what is offered begins behind the last colon.
        found = {word.rpartition(":")[2] for word in complete(script, line)}
        if last_parts:
            wanted = [os.path.basename(word) for word in wanted]
        missing = set(wanted) - found
        assert not missing, f"'{line}' does not offer {missing}: {found}"
        assert not exactly or len(found) == len(wanted), f"'{line}' offers {found}"

    offers("trireme trai", "train")
    offers("trireme ", "train", "eval", "run", "plan", "checkpoint", "version", exactly=False)
    offers("build/release/bin/trireme ev", "eval")
    offers("trireme train --r", "--run-dir", "--resume", "--resume-with")
    offers("trireme train r.yaml --resume-with optimizer.lr", "optimizer.lr=",
           "optimizer.lr_decay=")
    offers("trireme train --device ", "auto", "cpu", "cuda", "ref", "null", "far")
    offers("trireme plan recipes/mnist-cnn.yaml --device c", "cpu", "cuda")
    offers("trireme plan recipes/mnist-cnn.yaml --device cuda:", *gpus())
    offers("trireme plan recipes/mnist-cnn.yaml --device cuda:a100-6", "a100-64")
    offers("trireme bench train recipes/mnist-cnn.yaml --device null:b", "b200")
    offers("trireme train --resume n", "never")
    offers("trireme train recipes/mnist-", "recipes/mnist-cnn.yaml", "recipes/mnist-convnet.yaml")
    offers("trireme train re", "recipes", exactly=False)
    recipe = "trireme train recipes/mnist-cnn.yaml "
    offers(recipe + "optimizer.we", "optimizer.weight_decay=")
    offers(recipe + "data.", "data.path=", "data.samples=", "data.limit=", exactly=False)
    offers(recipe + "optimizer.name=ada", "adam", "adamw", "adamax", "adadelta", "adagrad")
    offers(recipe + "seed=2 schedule.name=", "constant", "step", "linear", "polynomial", "cosine",
           "cosine_restarts", "inverse_sqrt", "plateau", "onecycle", "warmup", "warmup-decay",
           "warmup-cosine", "triangle")
    offers(recipe + "model.name=mnist-c", "mnist-cnn", "mnist-convnet")
    offers(recipe + "data.shuffle=f", "false")
    offers(recipe + "trainer.convolution=d", "direct")
    offers(recipe + "data.path=recipes/auto", "recipes/autoencoder.yaml")
    offers(recipe + "nothing")
    offers(recipe + "seed=")
    offers("trireme checkpoint ", "list", "verify", "export", "diff", "init")
    offers("trireme checkpoint export x --dtype B", "BF16")
    offers("trireme checkpoint verify READ", "README.md")
    offers("trireme plan --svg READ", "README.md")
    offers("trireme bench t", "train")
    offers("trireme bench comm --op ", "all_reduce", "reduce_scatter", "all_gather", "all_to_all",
           "broadcast", "send", "recv", "barrier", "fold")
    offers("trireme bench comm --type ", "f32", "f64", "bf16", "f16")
    offers("trireme bench comm --backend ", "auto", "shm", "mpi", "ucx")
    offers("trireme submit recipes/mnist-cnn.yaml --site l", "lumi-g", "leonardo")
    offers("trireme submit --launcher ", "srun", "run")
    offers(recipe + "data.name=t", "tensors", "tokens")
    offers(recipe + "batch.global=", "auto")
    offers(recipe + "trainer.fast_dev_run=t", "true")
    offers(recipe + "strategy.name=z", "zero1", "zero2")
    offers("trireme run --rdzv-backend ", "static", "c10d")
    offers("trireme run --nproc", "--nproc-per-node")
    offers("trireme run --nproc-per-node ", "auto", "cpu", "gpu")
    offers("trireme run --standalone ", "trireme")
    offers("trireme run --standalone trireme train --js", "--json")
    offers("trireme plan recipes/mnist-cnn.yaml --show g", "gantt", "graph")


def check_manual(page):
    for part in ("\\fB\\-\\-run\\-dir\\fR", "optimizer.weight_decay", ".SS trireme checkpoint",
                 "\\fB\\-\\-nproc\\-per\\-node\\fR", "trainer.max_epochs", ".SH EXIT STATUS"):
        assert part in page, f"{part} is not in the manual"
    assert page.isascii(), "roff takes ASCII"
    if not shutil.which("groff"):
        print("the page is not set: there is no groff")
        return
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z"], input=page, text=True,
                          capture_output=True, check=True)
    assert not done.stderr, done.stderr


FEW = ("data.name=synthetic data.shape=[1,28,28] data.classes=10 data.samples=128 "
       "data.test_samples=16 data.workers=0")
STEPS = f"{FEW} batch.global=8 batch.micro=4 trainer.max_steps=2 log.tensorboard=false"
# What examples of a command get so that they end soon, in the order in which they are run: some
# read what others write. Commands that only measure or need other programs are left out.
ADDED = {"train": STEPS, "checkpoint": "", "eval": FEW, "predict": FEW, "plan": "",
         "submit": "--device cpu", "scale": f"{FEW} --seconds 0.02", "data": FEW, "version": ""}
LEFT_OUT = (" | ", "<", ">", "srun", "--measure", "data get", "convert", "--keys", "--list",
            "path=")


def check_examples(examples, folder):
    """The examples of the help do what they show."""
    os.symlink(os.path.abspath("recipes"), os.path.join(folder, "recipes"))
    path = f"{os.path.dirname(TRIREME)}:{os.environ['PATH']}"
    for command, added in ADDED.items():
        run = [line for line in examples[command] if not any(word in line for word in LEFT_OUT)]
        assert run, command
        for line in run:
            more = added if "checkpoint runs" not in line else ""
            done = subprocess.run(["sh", "-c", f"{line} {more}"], cwd=folder, capture_output=True,
                                  text=True, check=False, env={**os.environ, "PATH": path,
                                                               "OMP_NUM_THREADS": "1"})
            assert done.returncode == 0, f"{line}: {done.stderr}"


def check_help():
    """Every command teaches by an example. Returns the examples."""
    found = {}
    commands = [line.split()[0] for line in trireme("--help").splitlines()
                if line.startswith("  ") and not line.startswith("  trireme")]
    assert len(commands) >= 10, commands
    for command in commands:
        text = trireme(command, "--help")
        assert text.startswith(f"usage: trireme {command}"), text
        examples = text.partition("for example\n")[2].splitlines()
        assert examples and all(f" {command}" in line for line in examples), text
        found[command] = examples
        assert max(map(len, text.splitlines())) <= 110 or command == "run", text
    some = trireme("train", "--keys", "optimizer")
    assert "optimizer.betas = [0.9, 0.999]" in some and "trainer" not in some, some
    assert "trainer.max_epochs = 3" in trireme("train", "--keys")
    return found


def main():
    scripts = {shell: trireme("completion", shell) for shell in ("bash", "zsh", "fish")}
    left_out = []
    with tempfile.TemporaryDirectory(prefix="trireme-completion-") as folder:
        paths = {shell: os.path.join(folder, "_trireme" if shell == "zsh" else shell)
                 for shell in scripts}
        for shell, path in paths.items():
            with open(path, "w", encoding="utf-8") as out:
                out.write(scripts[shell])
        check_completion(paths["bash"], in_bash)
        found = in_bash(paths["bash"], "trireme train a.yaml trainer.convolution=d", breaks=" ")
        assert found == ["trainer.convolution=direct"], found
        found = in_bash(paths["bash"], "trireme plan a.yaml --device cuda:l40", breaks=" ")
        assert found == ["cuda:l40s"], found
        if shutil.which("fish"):
            check_completion(paths["fish"], in_fish)
        if shutil.which("zsh"):
            zsh = Zsh(folder)
            try:
                check_completion(paths["zsh"], zsh.complete, last_parts=True)
            finally:
                zsh.close()
        left_out = [shell for shell in scripts if not shutil.which(shell)]
    check_manual(trireme("manual"))
    with tempfile.TemporaryDirectory(prefix="trireme-examples-") as folder:
        check_examples(check_help(), folder)
    texts = {"trireme.bash": scripts["bash"], "_trireme": scripts["zsh"],
             "trireme.fish": scripts["fish"], "trireme.1": trireme("manual")}
    for name, text in texts.items():
        with open(os.path.join(BUILD, name), encoding="utf-8") as built:
            assert built.read() == text, f"{name} is not what the program says"
    if left_out:
        print(f"not installed, and so not tried: {' '.join(left_out)}")
        return 77
    return 0


if __name__ == "__main__":
    sys.exit(main())
