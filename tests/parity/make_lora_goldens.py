#!/usr/bin/env python3
"""Writes goldens/models/*-lora.json: what peft's adapters compute beside transformers' modules.

usage: make_lora_goldens.py [NAME …]

Needs torch, torchvision, transformers and peft of PyPI (a venv will do). Everything is computed in
double precision on the weights and data of models.py: the outputs in evaluation and the losses of
ten steps of AdamW in training. Also noted are the names under which peft saves the matrices, and
its adapter_config.json.
"""
import json
import os
import re
import sys
import tempfile

import peft
import torch

import formula
import make_model_goldens as plain
import models

CONFIG = ("peft_type", "task_type", "r", "lora_alpha", "lora_dropout", "fan_in_fan_out", "bias",
          "inference_mode")


def targets_of(net, match):
    """The layers that a recipe's patterns name: peft has other patterns."""
    def matches(name, pattern):
        wild = "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
        return re.fullmatch(wild, name) or name.endswith(f".{pattern}")
    linear = [name for name, module in net.named_modules()
              if type(module).__name__ in ("Linear", "Conv1D")]
    return [name for name in linear if any(matches(name, pattern) for pattern in match)]


def own_name(name):
    """The name of a tensor of peft's model in Trireme's files."""
    return name.removeprefix("base_model.model.").replace(".base_layer.", ".").replace(
        ".default.", ".")


def kind_of(name, value):
    if ".lora_" in name:
        return 0.2 if ".lora_A." in name else 0.1
    return plain.kind_of(name, value)


def run(adapter):
    model, lora = models.ADAPTERS[adapter]
    decoder = plain.Decoder(models.MODELS[model][0])
    net = peft.get_peft_model(decoder.net, peft.LoraConfig(
        task_type="CAUSAL_LM", r=lora["rank"], lora_alpha=lora["alpha"],
        target_modules=targets_of(decoder.net, lora["match"]),
        fan_in_fan_out=model == "gpt2")).double()
    state = {own_name(name): value for name, value in net.state_dict().items()}
    if decoder.net.config.tie_word_embeddings:  # files have the weight once
        del state["lm_head.weight"]
    golden = {"parameters": [[name, list(value.shape), kind_of(name, value)]
                             for name, value in state.items()]}
    weights = {name: plain.to_torch(entry) for name, entry in models.weights(golden).items()}
    with torch.no_grad():
        for name, value in state.items():
            value.copy_(weights[name])
    ids = plain.to_torch(models.data_set(model)["input_ids"])
    batch = models.MODELS[model][3]
    net.eval()
    with torch.no_grad():
        output = net(input_ids=ids[:batch], use_cache=False).logits
    golden["shape"], golden["output"] = list(output.shape), formula.sketch(
        output.flatten().tolist())
    with tempfile.TemporaryDirectory() as folder:
        net.save_pretrained(folder)
        with open(f"{folder}/adapter_config.json", encoding="utf-8") as f:
            config = json.load(f)
        golden["config"] = {key: config[key] for key in CONFIG}
        golden["saved"] = sorted(peft.get_peft_model_state_dict(net))
    net.train()
    optimizer = torch.optim.AdamW(
        [p for p in net.parameters() if p.requires_grad],
        **{key: value for key, value in models.ADAPTER_OPTIMIZER.items() if key != "name"})
    golden["losses"] = []
    for step in range(models.STEPS):
        part = ids[step * batch:(step + 1) * batch]
        loss = plain.loss_of(net(input_ids=part, use_cache=False).logits, {"input_ids": part})
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        golden["losses"].append(loss.item())
    with open(os.path.join(models.GOLDENS, f"{adapter}.json"), "w", encoding="utf-8") as f:
        json.dump(golden, f, separators=(",", ":"))
        f.write("\n")
    print(adapter, golden["losses"], flush=True)


for name in sys.argv[1:] or models.ADAPTERS:
    run(name)
