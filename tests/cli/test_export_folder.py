#!/usr/bin/env python3
"""`checkpoint export --huggingface` writes a folder as Hugging Face's save_pretrained does: its
config.json, weights in one file or several, and the tokenizer, from checkpoints of any ranks; and
nothing of it if it cannot write all. (parity/test_export_libraries loads such folders.)

usage: test_export_folder.py BUILD_FOLDER
"""
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, losses, on_ranks, run, wait_for  # noqa: E402
import tensors  # noqa: E402

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "goldens",
                     "generate")
STILL = ["optimizer={name: sgd, lr: 0}"]


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def recipe(folder):
    """Trains the model of generate's goldens on lines of text."""
    with open(f"{folder}/text.jsonl", "w", encoding="utf-8") as file:
        for i in range(40):
            file.write(json.dumps({"text": f"Once upon a time {i} oars rowed over the sea"}) + "\n")
    path = f"{folder}/recipe.yaml"
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"model": {"config": f"{MODEL}/config.json"}, "init": MODEL,
                   "data": {"name": "jsonl", "train": f"{folder}/text.jsonl",
                            "test": f"{folder}/text.jsonl", "sequence": 16,
                            "tokenizer": f"{MODEL}/tokenizer.json"},
                   "batch": {"global": 4, "micro": 1}, "optimizer": {"name": "sgd", "lr": 0.1},
                   "log": {"tensorboard": False},
                   "trainer": {"max_steps": 3, "limit_val_batches": 1, "log_every_n_steps": 1}},
                  file)
    return path


def train(folder, name, *words):
    path = f"{folder}/{name}"
    return [TRIREME, "train", recipe(folder), "--run-dir", path, *words], path


def export(path, out, *words):
    return [TRIREME, "checkpoint", "export", path, "--huggingface", out, *words]


def weights(folder):
    """The tensors of a folder, by its index if it has one."""
    if not os.path.exists(f"{folder}/model.safetensors.index.json"):
        return tensors.read(f"{folder}/model.safetensors")
    index, found = read(f"{folder}/model.safetensors.index.json"), {}
    names = sorted({*index["weight_map"].values()})
    assert names == [f"model-{i + 1:05}-of-{len(names):05}.safetensors"
                     for i in range(len(names))], names
    for name in names:
        part = tensors.read(f"{folder}/{name}")
        assert all(index["weight_map"][key] == name for key in part)
        found.update(part)
    assert set(found) == set(index["weight_map"])
    assert index["metadata"]["total_size"] == sum(len(data) for _, _, data in found.values())
    return found


def check_folder(folder):
    """What comes out is what went in."""
    words, path = train(folder, "run", *STILL)
    run(words)
    out = f"{folder}/out"
    done = run(export(path, out))
    assert done.stdout.startswith(f"{out}: 21 tensors") and "tokenizer.json" in done.stdout, done
    assert sorted(os.listdir(out)) == ["config.json", "generation_config.json",
                                       "model.safetensors", "tokenizer.json"], os.listdir(out)
    given, found = read(f"{MODEL}/config.json"), read(f"{out}/config.json")
    for key, value in given.items():
        if key not in ("transformers_version", "use_cache", "pretraining_tp"):
            assert found[key] == value, (key, value, found.get(key))
    assert weights(out) == weights(MODEL)
    assert read(f"{out}/generation_config.json")["eos_token_id"] == given["eos_token_id"]
    with open(f"{out}/model.safetensors", "rb") as file:
        assert b'"__metadata__":{"format":"pt"}' in file.read(200)
    for text in read(f"{MODEL}/expected.json")[:2]:
        found = run([TRIREME, "generate", out, "--prompt", text["prompt"], "--json",
                     "--max-new-tokens", "24", "--repetition-penalty",
                     str(text["repetition_penalty"])]).stdout
        assert json.loads(found)["ids"] == text["ids"], found
    # An empty folder is taken too, also behind a link.
    os.mkdir(f"{folder}/empty")
    os.symlink("empty", f"{folder}/link")
    run(export(path, f"{folder}/link/", "--dtype", "BF16", "--max-shard-size", "8kB"))
    parts = weights(f"{folder}/empty")
    assert {dtype for dtype, _, _ in parts.values()} == {"BF16"} and len(parts) == 21
    assert read(f"{folder}/empty/config.json")["torch_dtype"] == "bfloat16"
    sizes = [os.path.getsize(f"{folder}/empty/{name}") for name in os.listdir(f"{folder}/empty")
             if name.startswith("model-")]
    assert len(sizes) > 2 and max(sizes) < 14000, sizes


def check_round_trip(folder):
    """A run that begins with the folder goes on as one that begins with the checkpoint."""
    words, path = train(folder, "first")
    run(words)
    run(export(path, f"{folder}/model", "--max-shard-size", "8kB"))
    found = []
    for name, start in ("a", path), ("b", f"{folder}/model"):
        words, again = train(folder, name, f"init={start}")
        run(words)
        found.append(losses(again))
    assert found[0] == found[1] and len(found[0]) == 3, found


def check_ranks(folder):
    """Checkpoints of all strategies give the same folder."""
    for number, words in enumerate((["strategy.name=fsdp"], ["strategy.mesh.tensor=2"],
                                    ["strategy.mesh.pipeline=2"])):
        command, path = train(folder, f"ranks{number}", *STILL, *words)
        run(on_ranks(2, command))
        run(export(path, f"{folder}/of{number}", "--max-shard-size", "20k"))
        assert weights(f"{folder}/of{number}") == weights(MODEL), words


def check_other_models(folder):
    """Weights alone of models that transformers do not have; options that none of them has."""
    small = ["data.name=synthetic", "data.shape=[1,28,28]", "data.classes=10", "data.samples=8",
             "batch.global=4", "trainer.max_steps=1", "log.tensorboard=false"]
    run([TRIREME, "train", "recipes/mlp-jax.yaml", "--run-dir", f"{folder}/mlp", *small])
    run(export(f"{folder}/mlp", f"{folder}/plain"))
    assert os.listdir(f"{folder}/plain") == ["model.safetensors"]
    words, path = train(folder, "odd", "model.qk_norm=true", "model.mlp_bias=true", "init=null")
    run(words)
    done = run(export(path, f"{folder}/odd.out"), 2)
    assert done.stderr.count("\n") == 1 and "qwen3 has no such mlp_bias" in done.stderr, done.stderr
    assert not os.path.exists(f"{folder}/odd.out")


def check_rates(folder):
    """Rates of dropout are the model's own, unless the recipe sets one for all layers."""
    words = ["init=null", "model={name: gpt2, vocab_size: 300, n_embd: 16, n_head: 2, n_layer: 1, "
             "resid_pdrop: 0.25}"]
    for name, more, rates in (("own", [], [0.25, 0.1, 0.1]),
                              ("all", ["model.dropout=0"], [0, 0, 0])):
        command, path = train(folder, name, *words, *more)
        run(command)
        run(export(path, f"{folder}/{name}.out"))
        config = read(f"{folder}/{name}.out/config.json")
        assert [config[key] for key in ("resid_pdrop", "embd_pdrop", "attn_pdrop")] == rates, config
        assert "dropout" not in config, config


def check_refused(folder):
    os.mkdir(f"{folder}/full")
    with open(f"{folder}/full/file", "w", encoding="utf-8"):
        pass
    run_dir, other = f"{folder}/run", f"{folder}/new"
    for words, parts in (
            (export(run_dir, f"{folder}/full"), [f"{folder}/full", "not empty"]),
            (export(run_dir, f"{folder}/full/file"), ["file", "no folder"]),
            (export(run_dir, f"{folder}/none/out"), [f"{folder}/none/out"]),
            (export(run_dir, ""), ["--huggingface"]),
            (export(run_dir, other, "--dtype", "I64"), ["I64"]),
            (export(run_dir, other, "--max-shard-size", "much"), ["--max-shard-size", "much"]),
            (export(run_dir, other, "--out", "x.safetensors"), ["--out", "--huggingface"]),
            (export(f"{MODEL}/model.safetensors", other), ["model.safetensors"]),
            (export(MODEL, other), [MODEL]),
            (export(f"{folder}/nowhere", other), ["nowhere"]),
            ([TRIREME, "checkpoint", "export", run_dir], ["--out", "--huggingface"])):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode in (1, 2) and done.stderr.count("\n") == 1, (words, done)
        assert all(part in done.stderr for part in parts), (parts, done.stderr)
        assert not os.path.exists(other)
    assert os.listdir(f"{folder}/full") == ["file"]


def limited():
    """Files may not grow, as on a disk that is full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))


def check_interrupted(folder):
    """A disk that is full and a killed process leave no folder, and the next export removes what
    the killed one has left."""
    place = f"{folder}/place"
    os.mkdir(place)
    done = subprocess.run(export(f"{folder}/run", f"{place}/out"), preexec_fn=limited, check=False,
                          capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done
    assert os.listdir(place) == [], os.listdir(place)
    left = 0
    for _ in range(40):  # it may end before this test has killed it
        child = subprocess.Popen(export(f"{folder}/run", f"{place}/out", "--max-shard-size", "1"),
                                 stdout=subprocess.DEVNULL)
        wait_for(lambda: os.listdir(place), "what it writes", child=child)
        child.kill()
        child.wait()
        if os.path.exists(f"{place}/out"):
            assert weights(f"{place}/out") == weights(MODEL)
            shutil.rmtree(f"{place}/out")
        left = len(os.listdir(place))
        if left:
            break
    assert left == 1, "no export was killed while it wrote"
    if not os.path.exists(f"{place}/{os.listdir(place)[0]}/.owner"):
        os.utime(f"{place}/{os.listdir(place)[0]}", (0, 0))  # else it might be about to be written
    run(export(f"{folder}/run", f"{place}/out"))
    assert os.listdir(place) == ["out"], os.listdir(place)


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-export-") as folder:
        return check_all([check_folder, check_round_trip, check_ranks, check_other_models,
                          check_rates, check_refused, check_interrupted], folder)


if __name__ == "__main__":
    sys.exit(main())
