#!/usr/bin/env python3
"""A model that is larger than a rank's part of it is never whole in one rank's memory, and a rank
reads its own ranges of the files: a made-up Hugging Face folder of zeros, in many files.

usage: test_large_folder.py BUILD_FOLDER
"""
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
LAYERS, HIDDEN, VOCABULARY = 12, 1024, 256
# Of all weights in F32, or of the files' bytes. A rank has half of them and gathers a layer or two.
MEMORY, READ = 0.85, {"strategy.name=fsdp": 0.8, "strategy.mesh.tensor=2": 0.9}


def measured(report, words):
    """Runs the words as one rank's process, and adds its peak of memory and the bytes it read to
    the file. Pages that ranks share count as their fraction."""
    child, memory, got = subprocess.Popen(words), 0, 0
    while child.poll() is None:
        try:
            with open(f"/proc/{child.pid}/smaps_rollup", encoding="ascii") as file:
                memory = max([memory, *(int(line.split()[1]) * 1024 for line in file
                                        if line.startswith("Pss:"))])
            with open(f"/proc/{child.pid}/io", encoding="ascii") as file:
                got = max(got, int(file.readline().split()[1]))
        except (OSError, ValueError, IndexError):
            pass  # it has ended
        time.sleep(0.01)
    with open(report, "a", encoding="ascii") as file:
        file.write(f"{memory} {got}\n")
    return child.returncode


def write_folder(folder):
    """The weights as files with holes, which read as zeros. Returns their bytes."""
    shapes = {"model.embed_tokens.weight": [VOCABULARY, HIDDEN], "model.norm.weight": [HIDDEN],
              "lm_head.weight": [VOCABULARY, HIDDEN]}
    parts, where, total = [shapes], {}, 0
    for i in range(LAYERS):
        layer = {f"self_attn.{name}_proj": [HIDDEN, HIDDEN] for name in "qkvo"}
        layer.update({"mlp.gate_proj": [2560, HIDDEN], "mlp.up_proj": [2560, HIDDEN],
                      "mlp.down_proj": [HIDDEN, 2560], "input_layernorm": [HIDDEN],
                      "post_attention_layernorm": [HIDDEN]})
        parts.append({f"model.layers.{i}.{name}.weight": shape for name, shape in layer.items()})
    for number, part in enumerate(parts):
        name, header, end = f"part-{number}.safetensors", {}, 0
        for key, shape in part.items():
            size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
            header[key] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
            where[key], end = name, end + size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(f"{folder}/{name}", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + end)
        total += end
    with open(f"{folder}/model.safetensors.index.json", "w", encoding="ascii") as file:
        json.dump({"weight_map": where}, file)
    with open(f"{folder}/config.json", "w", encoding="ascii") as file:
        json.dump({"model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": HIDDEN,
                   "intermediate_size": 2560, "num_hidden_layers": LAYERS,
                   "num_attention_heads": 8}, file)
    return total


def check(folder):
    from runs import TRIREME, on_ranks, run
    size = write_folder(folder)
    with open(f"{folder}/text", "wb") as file:
        file.write(bytes(64))
    with open(f"{folder}/recipe.yaml", "w", encoding="ascii") as file:
        json.dump({"model": {"config": "config.json"}, "batch": {"global": 2, "micro": 1},
                   "data": {"name": "tokens", "train": "text", "test": "text", "sequence": 8},
                   "optimizer": {"name": "sgd"}, "trainer": {"limit_val_batches": 1}}, file)
    for words, share in READ.items():
        report = f"{folder}/report"
        command = [sys.executable, os.path.abspath(__file__), "--measure", report, TRIREME, "eval",
                   f"{folder}/recipe.yaml", "--checkpoint", folder, words]
        run(on_ranks(2, command))
        with open(report, encoding="ascii") as file:
            ranks = [tuple(map(int, line.split())) for line in file]
        os.remove(report)
        print(words, [(f"{memory / size / 2:.2f} of all weights", f"{got / size:.2f} of all bytes")
                      for memory, got in ranks], flush=True)
        assert len(ranks) == 2
        assert all(memory < MEMORY * 2 * size and got < share * size for memory, got in ranks)


def main():
    if sys.argv[1] == "--measure":
        return measured(sys.argv[2], sys.argv[3:])
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
    with tempfile.TemporaryDirectory(prefix="trireme-large-") as folder:
        check(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
