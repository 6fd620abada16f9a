#!/usr/bin/env python3
"""What `checkpoint export --huggingface` writes is loaded by transformers and by torchvision.

usage: test_export_libraries.py BUILD_FOLDER [MODEL …]

Skipped without torch, torchvision and transformers of PyPI: PYTHON names the interpreter of a venv
that has them (bench/torch/README.md), as `make bench` wants it too. Each model is trained for two
steps. From the folder, from_pretrained has to find all weights and no others, and
load_state_dict(strict=True) all of them; the logits have to be those of `trireme predict`, and what
`generate` makes of a prompt has to be what `trireme generate` makes of it, token for token.
"""
import json
import os
import subprocess
import sys
import tempfile

import formula
import models

PYTHON = os.environ.get("PYTHON", "build/torch/bin/python")
LIMIT = 1e-5  # of logits in F32, as a fraction of the largest
SMALL = "4k"  # so that weights are several files
PROMPT = [5, 17, 3, 42]
NEW = 12
try:
    import torch
    import torchvision
    import transformers
except ImportError as missing:
    if not os.environ.get("TRIREME_LIBRARIES") and os.access(PYTHON, os.X_OK):
        os.execve(PYTHON, [PYTHON, *sys.argv], {**os.environ, "TRIREME_LIBRARIES": "1"})
    print(f"torch, torchvision and transformers are not installed ({missing}): PYTHON=…")
    sys.exit(77)


def trireme(*words):
    return subprocess.run([os.path.join(sys.argv[1], "bin", "trireme"), *words], check=True,
                          text=True, stdout=subprocess.PIPE).stdout


def to_torch(entry):
    dtype, shape, values = entry
    return torch.tensor(values, dtype={"F32": torch.float32, "I64": torch.int64}[dtype]).reshape(
        shape)


def state_of(folder):
    state = {}
    for name in os.listdir(folder):
        if name.endswith(".safetensors"):
            state.update((key, to_torch(entry)) for key, entry in
                         formula.read_safetensors(os.path.join(folder, name)).items())
    return state


def build_vision(options, folder):
    if options["name"] == "vit":
        net = torchvision.models.VisionTransformer(
            **{name: value for name, value in options.items() if name != "name"})
    else:
        net = getattr(torchvision.models, f"resnet{options['depth']}")(
            num_classes=options["num_classes"])
        if options.get("stem") == "cifar":
            net.conv1 = torch.nn.Conv2d(3, 64, 3, 1, 1, bias=False)
            net.maxpool = torch.nn.Identity()
    net.load_state_dict(state_of(folder), strict=True)
    return net.eval()


def build_text(folder):
    net, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[what], (what, info[what])
    assert next(net.parameters()).dtype == torch.float32
    return net.eval()


def check_text(net, folder):
    """Greedy generation, token for token."""
    with open(f"{folder}/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump({"model": {"type": "WordLevel", "unk_token": "0",
                             "vocab": {str(i): i for i in range(net.config.vocab_size)}},
                   "pre_tokenizer": {"type": "WhitespaceSplit"}}, file)
    wanted = net.generate(torch.tensor([PROMPT]), max_new_tokens=NEW, do_sample=False,
                          pad_token_id=0)[0, len(PROMPT):].tolist()
    found = json.loads(trireme("generate", folder, "--prompt", " ".join(map(str, PROMPT)),
                               "--max-new-tokens", str(NEW), "--json"))
    assert found["prompt_ids"] == PROMPT and found["ids"] == wanted, (found, wanted)


def check(model, folder):
    recipe, options = models.prepare(model, folder), models.MODELS[model][0]
    trireme("train", recipe, "--run-dir", f"{folder}/run", "trainer.max_steps=2")
    trireme("predict", recipe, "--checkpoint", f"{folder}/run", "--out", f"{folder}/out.st")
    for out, words in (f"{folder}/whole", []), (f"{folder}/parts", ["--max-shard-size", SMALL]):
        trireme("checkpoint", "export", f"{folder}/run", "--huggingface", out, *words)
        net = build_text(out) if "config" in options else build_vision(options, out)
        fields = formula.read_safetensors(f"{folder}/test.safetensors")
        with torch.no_grad():
            logits = net(to_torch(next(iter(fields.values()))))
        logits = getattr(logits, "logits", logits)
        (entry,) = formula.read_safetensors(f"{folder}/out.st").values()
        found = to_torch(entry)
        apart = ((found - logits).abs().max() / logits.abs().max()).item()
        print(f"{model}: logits differ by {apart:.1e}", flush=True)
        assert found.shape == logits.shape and apart <= LIMIT, (model, apart)
    if "config" in options:
        check_text(net, out)


def main():
    transformers.logging.set_verbosity_error()
    for model in sys.argv[2:] or models.MODELS:
        if model == "weather-vit":
            continue  # of no library
        with tempfile.TemporaryDirectory(prefix="trireme-export-") as folder:
            check(model, folder)


main()
