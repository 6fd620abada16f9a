#!/usr/bin/env python3
"""Training on documents (data.name=jsonl): three ranks pack the text once and have the losses of
one rank, and a run that is interrupted within its epoch goes on with another number of ranks.
Damaged lines are refused, or left out.

usage: test_jsonl.py BUILD_FOLDER
"""
import json
import os
import signal
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import runs

TOKENIZER = os.path.abspath("tests/support/goldens/tokenizers/gpt2.json")
WORDS = "so shall the king and all his men be gone before the day is done".split()
SMALL = ["model.vocab_size=500", "model.hidden_size=32", "model.intermediate_size=64",
         "model.num_hidden_layers=1", "model.num_attention_heads=2", "model.num_key_value_heads=2",
         "data.name=jsonl", "data.train=train.jsonl", "data.test=test.jsonl", "data.sequence=16",
         f"data.tokenizer={TOKENIZER}", "batch.global=6", "batch.micro=2", "trainer.max_epochs=3",
         "trainer.log_every_n_steps=1", "checkpoint.every_n_steps=4", "log.progress=false"]


def write(path, count):
    with open(path, "w", encoding="utf-8") as out:
        for i in range(count):
            text = " ".join(WORDS[(i * 7 + k * k) % len(WORDS)] for k in range(5 + i % 11))
            out.write(json.dumps({"text": f"{text}\n", "number": i}) + "\n")


def data_in(folder):
    os.makedirs(folder)
    write(os.path.join(folder, "train.jsonl"), 100)
    write(os.path.join(folder, "test.jsonl"), 10)
    return [*SMALL, f"data.path={folder}"]


def packed(folder):
    return sorted(name for name in os.listdir(folder) if name.startswith(".train"))


def check_ranks(folder):
    """The ranks come to unpacked text at the same time."""
    one, many, resumed = (os.path.join(folder, name) for name in ("one", "many", "resumed"))
    words = data_in(os.path.join(folder, "data"))
    runs.run(runs.on_ranks(3, runs.train("llama-tiny", many, *words)))
    names = packed(os.path.join(folder, "data"))
    assert [name.rsplit(".", 1)[1] for name in names] == ["json", "u16"], names
    runs.run(runs.train("llama-tiny", one, *words))
    assert len(runs.losses(one)) > 20, runs.losses(one)
    runs.check_close(runs.losses(many), runs.losses(one), 1e-5, "3 ranks")
    child = runs.start(runs.train("llama-tiny", resumed, *words))
    runs.wait_for(lambda: max(runs.losses(resumed), default=0) >= 5, "step 5", 60, child)
    child.send_signal(signal.SIGKILL)
    assert runs.finish(child)[2] == -signal.SIGKILL
    runs.run(runs.on_ranks(2, runs.train("llama-tiny", resumed, *words)))
    runs.check_close(runs.losses(resumed), runs.losses(one), 1e-5, "1 rank, then 2")
    assert packed(os.path.join(folder, "data")) == names


def check_damaged(folder):
    words = data_in(os.path.join(folder, "damaged"))
    path, run_dir = os.path.join(folder, "damaged", "train.jsonl"), os.path.join(folder, "run")
    with open(path, "a", encoding="utf-8") as out:
        out.write('{"text": "a"\n\n{"text": 3}\n{"text": "b"}\n')
    words = runs.train("llama-tiny", run_dir, *words)
    runs.check_refused(words, run_dir, ["train.jsonl:101:"])
    done = runs.run(runs.on_ranks(2, [*words, "data.on_error=skip"]))
    for line in (101, 103):
        assert done.stderr.count(f"train.jsonl:{line}: ") == 1, done.stderr
    # Later runs read the tokens that were made then, and say so, too.
    done = runs.run([*words, "data.on_error=skip", "trainer.max_epochs=4"])
    assert "2 damaged documents" in done.stderr, done.stderr


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(1 if runs.check_all([check_ranks, check_damaged], temporary) else 0)
