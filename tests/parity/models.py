"""What test_models.py and make_model_goldens.py share: the models that are compared with the
modules of torchvision and Hugging Face's transformers, and their data and weights, which follow
from a formula. `GOLDENS` holds for each model what its module computed in double precision.
"""
import array
import functools
import json
import math
import os

import formula

GOLDENS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens", "models")
PERIOD = 65521  # a prime, so that no two rows of a weight are alike
STEPS = 10

IMAGES = {"images": (3, 32, 32), "labels": ()}
TEXT = {"input_ids": (24,)}
_SMALL = {"vocab_size": 61, "hidden_size": 48, "intermediate_size": 72, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
_LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 16}
# By name: the recipe's section `model` (of `config`, the content of the config.json), the fields of
# a sample and their shapes, the number of classes or tokens, samples in a step, and the learning
# rate.
MODELS = {
    "resnet18": ({"name": "resnet", "depth": 18, "num_classes": 10, "stem": "cifar"}, IMAGES, 10, 8,
                 1e-4),
    "resnet50": ({"name": "resnet", "depth": 50, "num_classes": 7},
                 {"images": (3, 64, 64), "labels": ()}, 7, 6, 1e-5),
    "vit": ({"name": "vit", "image_size": 32, "patch_size": 8, "num_layers": 3, "num_heads": 4,
             "hidden_dim": 48, "mlp_dim": 100, "num_classes": 5}, IMAGES, 5, 6, 1e-2),
    "weather-vit": ({"name": "weather-vit", "img_size": [16, 24], "patch_size": 4,
                     "n_in_channels": 3, "n_out_channels": 2, "embed_dim": 32, "depth": 3,
                     "num_heads": 4},
                    {"inputs": (3, 16, 24), "targets": (2, 16, 24)}, None, 5, 1e-2),
    "llama3": ({"config": {"model_type": "llama", **_SMALL, "rope_theta": 500.0,
                           "rope_scaling": _LLAMA3, "attention_bias": True, "mlp_bias": True,
                           "pad_token_id": 5}},
               TEXT, 61, 4, 1e-2),
    "mistral": ({"config": {"model_type": "mistral", **_SMALL, "rope_theta": 1000.0, "head_dim": 16,
                            "sliding_window": 7}}, TEXT, 61, 4, 1e-2),
    "qwen2": ({"config": {"model_type": "qwen2", **_SMALL, "rope_theta": 1000.0,
                          "use_sliding_window": False, "sliding_window": 5}}, TEXT, 61, 4, 1e-2),
    "qwen3": ({"config": {"model_type": "qwen3", **_SMALL, "rope_theta": 1000.0, "head_dim": 8,
                          "tie_word_embeddings": True, "pad_token_id": -1}}, TEXT, 61, 4, 1e-2),
    "gpt2": ({"config": {"model_type": "gpt2", "vocab_size": 61, "n_positions": 32, "n_embd": 48,
                         "n_layer": 3, "n_head": 4, "n_inner": 100, "resid_pdrop": 0.0,
                         "embd_pdrop": 0.0, "attn_pdrop": 0.0}}, TEXT, 61, 4, 1e-2),
}

# Low-rank adapters: by name, the model, and the recipe's section `lora`.
ADAPTERS = {
    "llama3-lora": ("llama3", {"match": ["q_proj", "v_proj", "o_proj", "*.mlp.*"], "rank": 4,
                               "alpha": 6}),
    "gpt2-lora": ("gpt2", {"match": ["*.c_attn", "transformer.h.1.*"], "rank": 3, "alpha": 2}),
}
ADAPTER_OPTIMIZER = {"name": "adamw", "lr": 1e-2, "weight_decay": 0.1}


@functools.cache
def period():
    return array.array("f", (2 * u - 1 for u in formula.uniform("models", PERIOD)))


def numbers(name, count, change=float):
    """What `change` makes of `count` numbers in [-1, 1) that repeat after PERIOD, and begin
    elsewhere for each name."""
    first = formula.key_of(name) % PERIOD
    rotated = (period()[first:] + period()[:first])[:count]
    changed = array.array("f", map(change, rotated))
    return (changed * (count // PERIOD + 1))[:count]


def tensor(name, shape, kind):
    """The tensor that a golden lists as (name, shape, kind). `kind`: the greatest size of a number,
    "one" (from 0.5 to 1.5) or "count"."""
    if kind == "count":
        return "I64", shape, array.array("q", [3])
    change = (lambda v: 1 + 0.5 * v) if kind == "one" else lambda v: v * kind
    return "F32", shape, numbers(name, math.prod(shape), change)


def weights(golden):
    return {name: tensor(name, tuple(shape), kind) for name, shape, kind in golden["parameters"]}


def data_set(model):
    _, fields, classes, batch, _ = MODELS[model]
    tensors, count = {}, STEPS * batch
    for name, shape in fields.items():
        size = count * math.prod(shape)
        if name in ("labels", "input_ids"):
            key = formula.key_of(f"{model}/{name}")
            ids = array.array("q", (formula.splitmix(key + i) % classes for i in range(size)))
            tensors[name] = ("I64", (count, *shape), ids)
        else:
            tensors[name] = ("F32", (count, *shape), numbers(f"{model}/{name}", size))
    return tensors


def read_golden(model):
    with open(os.path.join(GOLDENS, f"{model}.json"), encoding="utf-8") as f:
        return json.load(f)


def write_recipe(name, folder):
    """The recipe that trains the model, or adapters of one, on the files of prepare."""
    model, lora = ADAPTERS.get(name, (name, None))
    options, fields, _, batch, lr = MODELS[model]
    path = os.path.join(folder, "recipe.yaml")
    if "config" in options:
        with open(f"{folder}/config.json", "w", encoding="utf-8") as f:
            json.dump(options["config"], f)
        options = {"config": "config.json"}  # beside the recipe
    with open(path, "w", encoding="utf-8") as f:
        json.dump({  # JSON is YAML
            "name": name, "model": options, "lora": lora, "init": f"{folder}/init.safetensors",
            "data": {"name": "tensors", "train": f"{folder}/data.safetensors",
                     "test": f"{folder}/test.safetensors", "shuffle": False,
                     "shapes": {name: list(shape) for name, shape in fields.items()}},
            "batch": {"global": batch},
            "optimizer": ADAPTER_OPTIMIZER if lora else {"name": "sgd", "lr": lr, "momentum": 0.9},
            "trainer": {"max_epochs": 1, "log_every_n_steps": 1, "convolution": "direct"}}, f)
    return path


def prepare(name, folder):
    """Writes initial weights, data and, as test data, those of the first step. Returns the path of
    the recipe, which it writes too."""
    model, _ = ADAPTERS.get(name, (name, None))
    batch, data = MODELS[model][3], data_set(model)
    formula.write_safetensors(f"{folder}/data.safetensors", data)
    formula.write_safetensors(f"{folder}/test.safetensors", {
        field: (dtype, (batch, *shape[1:]), values[:len(values) // shape[0] * batch])
        for field, (dtype, shape, values) in data.items()})
    formula.write_safetensors(f"{folder}/init.safetensors", weights(read_golden(name)))
    return write_recipe(name, folder)
