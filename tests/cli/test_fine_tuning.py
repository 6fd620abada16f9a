#!/usr/bin/env python3
"""Fine-tuning as a user meets it: groups of parameters in their short forms, adapters in every
command, what exports hold, and what is refused in one line.

usage: test_fine_tuning.py BUILD_FOLDER
"""
import json
import os
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, last, losses, run, train  # noqa: E402

TINY = ["data.sequence=16", "data.limit=24", "batch.global=8", "batch.eval=4",
        "trainer.max_epochs=1", "trainer.log_every_n_steps=1", "log.tensorboard=false",
        "trainer.limit_val_batches=1", "model.num_hidden_layers=2", "model.hidden_size=32",
        "model.intermediate_size=48", "schedule.warmup_steps=0", "optimizer.lr=0.02"]
LORA = ["lora.match=[q_proj, v_proj]", "lora.rank=2"]
RECIPE = "recipes/llama-tiny.yaml"


def train_llama(name, *words):
    place = os.path.join(folder, name)
    run(train("llama-tiny", place, *TINY, *words))
    return place


def check_groups():
    """The rate of a group as a multiple or as a number, and one key for norms and biases, which a
    group's own weight_decay overrides."""
    decay, spare = "optimizer.weight_decay=5", "optimizer.decay_norms_and_biases=false"
    by_name = '{match: "*norm*", weight_decay: 0}'
    rows = (([], ['optimizer.groups=[{match: "*", lr: 1x}]'], True),
            ([spare], [f"optimizer.groups=[{by_name}]"], True),
            ([spare], [], False),
            ([spare, 'optimizer.groups=[{match: "*norm*", weight_decay: 5}]'], [], True),
            ([spare, 'optimizer.groups=[{match: "*.0.*", lr: 0.5x}]'],
             ['optimizer.groups=[{match: "*.0.*norm*", lr: 0.01, weight_decay: 0}, '
              f'{{match: "*.0.*", lr_factor: 0.5}}, {by_name}]'], True))
    for number, (a, b, are_same) in enumerate(rows):
        found = [losses(train_llama(f"groups-{number}-{side}", decay, *words))
                 for side, words in enumerate((a, b))]
        assert (found[0] == found[1]) == are_same, f"{a}, {b}: {found}"


def check_commands():
    """Commands that compute with the model take adapters from checkpoints, and say what weights
    lack."""
    place = train_llama("commands", *LORA)
    merged, out = f"{folder}/merged.safetensors", f"{folder}/predictions.safetensors"
    warned = [run([TRIREME, "checkpoint", "export", place, *words]).stderr for words in (
        ["--merged", "--out", merged], ["--out", f"{folder}/apart.safetensors"])]
    assert [text.count("lora.alpha") for text in warned] == [0, 1], warned
    whole = ["eval", RECIPE, *TINY, "--checkpoint", merged, "--json"]
    found = [json.loads(run([TRIREME, *words]).stdout)["loss"] for words in (
        ["eval", RECIPE, *TINY, *LORA, "--checkpoint", place, "--json"], whole)]
    assert abs(found[0] - found[1]) <= 1e-6 * found[0], found
    run([TRIREME, "predict", RECIPE, *TINY, *LORA, "--checkpoint", place, "--out", out])
    texts = [run([TRIREME, "generate", *words, "--prompt", "KING", "--max-new-tokens", "4",
                  "--json"]).stdout for words in (
        [RECIPE, *TINY, *LORA, "--checkpoint", place], [RECIPE, *TINY, "--checkpoint", merged])]
    assert texts[0] == texts[1], texts
    for words, part in (
            ([*TINY, *LORA, "--checkpoint", merged], "q_proj.lora_A.weight"),
            ([*TINY, *LORA, "lora.alpha=3", "--checkpoint", place], "lora.alpha"),
            ([*TINY, "--checkpoint", last(place)], "q_proj.lora_A.weight")):
        done = run([TRIREME, "eval", RECIPE, *words], 2)
        assert part in done.stderr, done.stderr


def check_folder():
    """A folder for transformers has the weights into which the adapters are merged."""
    place, out, file = train_llama("folder", *LORA), f"{folder}/hf", f"{folder}/one.safetensors"
    run([TRIREME, "checkpoint", "export", place, "--huggingface", out, "--merged"])
    run([TRIREME, "checkpoint", "export", place, "--out", file, "--merged"])
    assert os.path.exists(f"{out}/config.json"), os.listdir(out)
    run([TRIREME, "checkpoint", "diff", out, file])


def check_export():
    """Refusals leave nothing behind, and no folder of something else is written into."""
    place, plain = train_llama("export", *LORA), train_llama("plain")
    adapter, file = f"{folder}/adapter", f"{folder}/adapter/adapter_model.safetensors"
    for words, part in ((["--lora", adapter, "--merged"], "--merged"),
                        (["--lora", adapter, "--out", f"{folder}/x"], "--out"),
                        (["--lora", last(place)], "other files"),
                        (["--merged"], "--out"),
                        (["--huggingface", adapter], "--merged")):
        done = run([TRIREME, "checkpoint", "export", place, *words], 2)
        assert part in done.stderr, done.stderr
    for source, part in ((plain, "has no adapters"),
                         (f"{last(place)}/model.safetensors", "name the checkpoint")):
        done = run([TRIREME, "checkpoint", "export", source, "--lora", adapter], 2)
        assert part in done.stderr and not os.path.exists(adapter), done.stderr
    for dtype, size in ((None, 4), ("BF16", 2)):  # the second one replaces the first
        run([TRIREME, "checkpoint", "export", place, "--lora", adapter,
             *(["--dtype", dtype] if dtype else [])])
        assert sorted(os.listdir(adapter)) == ["adapter_config.json", "adapter_model.safetensors"]
        with open(f"{adapter}/adapter_config.json", encoding="utf-8") as f:
            config = json.load(f)
        assert config["target_modules"] == ["q_proj", "v_proj"] and config["r"] == 2, config
        assert os.path.getsize(file) >= size * 2 * 2 * (32 + 32 + 32 + 16), os.path.getsize(file)


def check_refusals():
    for words, part in (
            (["lora.match=[qproj]"], "the nearest is 'model.layers.0.self_attn.q_proj'"),
            (["lora.match=[q_proj, embed_tokens]"], "model.embed_tokens, which is no linear"),
            (["lora.match=[]", "lora.rank=4"], "'lora.match'"),
            (["lora.match=q_proj"], "list"),
            ([*LORA, "lora.rank=33"], "lora.rank: 33"),
            ([*LORA, "lora.rank=0"], "'lora.rank'"),
            ([*LORA, "lora.alpha=0"], "'lora.alpha'"),
            ([*LORA, "lora.dropout=1"], "'lora.dropout'"),
            ([*LORA, "optimizer.freeze=['*lora*']"], "leaves no parameter"),
            (['optimizer.groups=[{match: "*", lr: 0}]'], "0.1x"),
            (['optimizer.groups=[{match: "*", lr: 1y}]'], "1y"),
            (['optimizer.groups=[{match: "*", lr: 1x, lr_factor: 1}]'], "not both")):
        place = os.path.join(folder, "refused")
        done = run(train("llama-tiny", place, *TINY, *words), 2)
        assert part in done.stderr, done.stderr
        assert not os.path.exists(place), words


def main():
    global folder
    with tempfile.TemporaryDirectory(prefix="trireme-tuning-") as folder:
        failed = check_all((check_groups, check_commands, check_folder, check_export,
                            check_refusals))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
