#!/usr/bin/env python3
"""What is written beside weights is compared with the recipe that loads them: the config.json of a
Hugging Face model, and the recipe of a checkpoint.

usage: test_origin.py BUILD_FOLDER
"""
import json
import os
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import SYNTHETIC, TRIREME, check_all, check_refused, losses, on_ranks  # noqa: E402
from runs import run, train  # noqa: E402
import tensors  # noqa: E402

LLAMA = ["model.vocab_size=256", "model.hidden_size=16", "model.intermediate_size=16",
         "model.num_hidden_layers=1", "model.num_attention_heads=4", "model.num_key_value_heads=2",
         "model.head_dim=4", "model.rms_norm_eps=1e-6", "data.limit=8", "batch.global=8",
         "trainer.max_epochs=1", "trainer.limit_val_batches=1", "log.tensorboard=false"]
# What save_pretrained of Hugging Face's transformers writes for the same model.
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256,
          "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "head_dim": 4,
          "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6,
          "rope_theta": 10000.0, "rope_scaling": None, "hidden_act": "silu", "mlp_bias": False,
          "tie_word_embeddings": False, "attention_bias": False, "max_position_embeddings": 4096,
          "initializer_range": 0.01, "torch_dtype": "float32"}


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}


def without(*keys):
    return {key: value for key, value in CONFIG.items() if key not in keys}


ALIKE = [CONFIG, without("rope_theta", "rope_scaling", "head_dim", "mlp_bias"),
         {**without("rope_theta"), "rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}},
         {**CONFIG, "sliding_window": 256, "model_type": "mistral"},
         {**CONFIG, "model_type": "mistral", "attention_bias": True, "mlp_bias": True},
         {**CONFIG, "sliding_window": 8}]
# The values that differ, and what the message has to name.
OTHER = [({"rope_theta": 500000.0, "rms_norm_eps": 1e-5},
          ["rope_theta 500000 ", "10000", "rms_norm_eps", "model.rope_theta=500000",
           "model.rms_norm_eps="]),
         ({"num_attention_heads": 8, "head_dim": None},
          ["num_attention_heads 8 ", "head_dim 2 ", "model.num_attention_heads=8"]),
         ({"rope_theta": None, "rope_parameters": {"rope_theta": 2e4, "rope_type": "default"}},
          ["rope_theta 20000 "]),
         ({"rope_scaling": LLAMA3}, ["rope_scaling {", "model.rope_scaling='{"]),
         ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, ["low_freq_factor"]),
         ({"rope_scaling": {"type": "linear", "factor": 2.0}}, ["rope_type", "llama3", "linear"]),
         ({"hidden_act": "gelu", "rope_theta": 5e5}, ["hidden_act", "gelu", "silu"]),
         ({"mlp_bias": True}, ["mlp_bias true ", "model.mlp_bias=true"]),
         ({"rope_scaling": {"factor": 8.0}}, ["rope_scaling", "rope_type"]),
         ({"model_type": "qwen2"}, ["qkv_bias true ", "model.qkv_bias=true"]),
         ({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": True,
           "max_window_layers": 0}, ["sliding_window 8 "]),
         ({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": True,
           "num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]},
          ["1 of 2 layers"]),
         ({"hidden_size": None}, ["has no hidden_size"]),
         ({"model_type": "falcon"}, ["model_type", "falcon", "llama", "mistral", "qwen2"]),
         ({"attention_bias": True}, ["attention_bias true ", "false", "model.attention_bias=true"]),
         ({"sliding_window": 255, "model_type": "mistral"},
          ["sliding_window 255 ", "model.sliding_window=255"])]


def check_config():
    with tempfile.TemporaryDirectory(prefix="trireme-origin-") as folder:
        weights, place = os.path.join(folder, "model.safetensors"), os.path.join(folder, "run")
        config = os.path.join(folder, "config.json")
        run([TRIREME, "checkpoint", "init", "recipes/llama-tiny.yaml", *LLAMA, "--out", weights])
        for number, known in enumerate(ALIKE):
            with open(config, "w", encoding="ascii") as file:
                json.dump(known, file)
            done = run(train("llama-tiny", f"{place}{number}", *LLAMA, f"init={folder}"))
            assert "config.json" not in done.stderr, done.stderr
        for values, texts in OTHER:
            with open(config, "w", encoding="ascii") as file:
                json.dump({**CONFIG, **values}, file)
            for source in (folder, weights):
                words = train("llama-tiny", place, *LLAMA, f"init={source}")
                check_refused(words, place, ["init: ", config, *texts])
        done = run([TRIREME, "eval", "recipes/llama-tiny.yaml", *LLAMA, "--checkpoint", folder], 2)
        assert "sliding_window" in done.stderr and done.stderr.count("\n") == 1, done.stderr
        # Another program's settings.
        with open(config, "w", encoding="ascii") as file:
            json.dump({"rope_theta": 1}, file)
        run(train("llama-tiny", place, *LLAMA, f"init={folder}"))


def check_config_rates():
    """A config.json's rate of dropout of the attention holds in training, and in it alone."""
    with tempfile.TemporaryDirectory(prefix="trireme-origin-") as folder:
        config, results = os.path.join(folder, "config.json"), []
        for rate in (0.0, 0.5):
            with open(config, "w", encoding="ascii") as file:
                json.dump({**CONFIG, "attention_dropout": rate}, file)
            place = os.path.join(folder, f"run{rate}")
            run(train("llama-tiny", place, f"model.config={config}", "data.limit=8",
                      "batch.global=8", "trainer.max_epochs=1", "trainer.limit_val_batches=1",
                      "optimizer.lr=0", "log.tensorboard=false", "trainer.log_every_n_steps=1"))
            with open(f"{place}/metrics.jsonl", encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
            results.append({line["kind"]: line.get("loss") for line in lines})
        assert results[0]["train"] != results[1]["train"], results
        assert results[0]["val"] == results[1]["val"], results


def check_own_values():
    """A value of the recipe holds, also over one of model.config that would be refused; gelu has
    two names; a rotary embedding is scaled no more; and a token of padding is not trained, on any
    ranks."""
    yarn = {"rope_type": "yarn", "factor": 2.0}
    gpt2 = {"model_type": "gpt2", "vocab_size": 256, "n_positions": 256, "n_embd": 16,
            "n_layer": 1, "n_head": 4}
    with tempfile.TemporaryDirectory(prefix="trireme-origin-") as folder:
        config = os.path.join(folder, "config.json")

        def losses_of(values, *words, ranks=1):
            with open(config, "w", encoding="ascii") as file:
                json.dump(values, file)
            place = os.path.join(folder, "run")
            shutil.rmtree(place, ignore_errors=True)
            small = ["data.limit=8", "batch={global: 4, micro: 2}", "trainer.max_epochs=1",
                     "data.sequence=32", "log.tensorboard=false", "trainer.log_every_n_steps=1",
                     "trainer.limit_val_batches=0"]
            run(on_ranks(ranks, [TRIREME, "train", recipe, "--run-dir", place, *small, *words]))
            return losses(place)

        recipe = os.path.join(folder, "recipe.yaml")
        with open(f"{folder}/text", "w", encoding="ascii") as file:
            file.write("Three banks of oars, and one stroke. " * 20)
        with open(recipe, "w", encoding="ascii") as file:
            json.dump({"model": {"config": config}, "optimizer": {"name": "sgd", "lr": 0.5},
                       "data": {"name": "tokens", "train": "text", "test": "text"}}, file)
        plain = losses_of(CONFIG)
        for words in ["model.rope_scaling={rope_type: default}"], ["model.rope_scaling=null"]:
            for scaling in LLAMA3, yarn:
                assert losses_of({**CONFIG, "rope_scaling": scaling}, *words) == plain
        assert losses_of({**CONFIG, "num_hidden_layers": "many"},
                         "model.num_hidden_layers=1") == plain
        new = losses_of({**gpt2, "activation_function": "gelu_new"})
        for name in "gelu_new", "gelu_pytorch_tanh":
            assert losses_of({**gpt2, "activation_function": "gelu_pytorch_tanh"}) == new
            assert losses_of({**gpt2, "activation_function": "swish"},
                             f"model.activation_function={name}") == new
        pad = losses_of({**CONFIG, "pad_token_id": 32})
        assert pad != plain and pad == losses_of(CONFIG, "model.pad_token_id=32")
        assert plain == losses_of({**CONFIG, "pad_token_id": 32}, "model.pad_token_id=-1")
        assert losses_of({**CONFIG, "pad_token_id": -224}) == pad  # as PyTorch counts
        for words in (["strategy.name=fsdp"], ["strategy.mesh.tensor=2"],
                      ["strategy.mesh.pipeline=2"]):
            found = losses_of({**CONFIG, "pad_token_id": 32}, *words, ranks=2)
            assert all(abs(float(found[step]) - float(pad[step])) < 1e-5 for step in pad), (words,
                                                                                            found)
        with open(config, "w", encoding="ascii") as file:
            json.dump({**CONFIG, "pad_token_id": 256}, file)
        done = run([TRIREME, "plan", recipe], 2)
        assert "256" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def check_ignore():
    """init.ignore keeps the fresh values of a new head, on any ranks; without it, all tensors that
    do not fit are named."""
    with tempfile.TemporaryDirectory(prefix="trireme-ignore-") as folder:
        old, fresh, place = (os.path.join(folder, name) for name in ("old.st", "new.st", "run"))
        words = [*SYNTHETIC, "data.samples=8", "batch.global=4", "trainer.max_steps=1",
                 "optimizer={name: sgd, lr: 0}", "trainer.limit_val_batches=0"]
        head = [*words, "model.num_classes=12", "data.classes=12"]
        for out, more in (old, [*words, "seed=5"]), (fresh, head):
            run([TRIREME, "checkpoint", "init", "recipes/mlp-jax.yaml", *more, "--out", out])
        check_refused(train("mlp-jax", place, *head, f"init={old}"), place,
                      ["init: ", "'fc3.bias' is [10]", "'fc3.weight' is [10, ", "init.ignore"])
        unused = f"init={{path: {old}, ignore: [fc3.*, fc4*]}}"
        check_refused(train("mlp-jax", place, *head, unused), place, ["init: ", "'fc4*'"])
        check_refused(train("mlp-jax", place, *head, "init.ignore=[fc3.*]"), place, ["init.path"])
        check_refused(train("mlp-jax", place, *head, f"init={old}", "init.ignore=['*']"), place,
                      ["ignore", old])
        old_tensors, fresh_tensors = tensors.read(old), tensors.read(fresh)
        for ranks, strategy in (1, "single"), (2, "fsdp"):
            at = f"{place}{ranks}"
            start = train("mlp-jax", at, *head, f"init={old}", "init.ignore=[fc3.*]",
                          f"strategy.name={strategy}")
            run(on_ranks(ranks, start))
            got = tensors.read(os.path.join(at, "checkpoints", "last", "model.safetensors"))
            for name, tensor in got.items():
                wanted = (fresh_tensors if name.startswith("fc3.") else old_tensors)[name]
                assert tensors.numbers(tensor) == tensors.numbers(wanted), name
        run(train("mlp-jax", at, *head, f"init={old}", "init.ignore=[fc3.*]",
                  "strategy.name=single", "trainer.max_steps=2"))  # the recorded recipe is the same


def warnings(words, text="trained with"):
    return [line for line in run(words).stderr.splitlines() if text in line]


def check_lists():
    """What does not match is listed: at most 40 lines, of which the last counts the rest, and one
    line if it is short; once, also by several ranks."""
    with tempfile.TemporaryDirectory(prefix="trireme-lists-") as folder:
        old, place = os.path.join(folder, "old.st"), os.path.join(folder, "run")
        for layers, lines, names in ((1, 1, ["model.norm.weight"]), (2, 22, ["its 21", "above"]),
                                     (12, 40, ["39 of", "and 72 more"])):
            words = [*LLAMA, "model.qk_norm=false", f"model.num_hidden_layers={layers}"]
            run([TRIREME, "checkpoint", "init", "recipes/llama-tiny.yaml", *words, "--out", old])
            other = [*words, f"init={old}", "model.hidden_size=32" if layers > 1 else
                     "model.vocab_size=300"]
            if layers == 1:
                names = ["lm_head.weight", "model.embed_tokens.weight", "[300, 16]"]
            done = run(train("llama-tiny", place, *other), 2)
            found = done.stderr.splitlines()
            assert len(found) == lines, (lines, found)
            assert all(name in found[-1] for name in [old, "init.ignore", *names]), found[-1]
            assert lines == 1 or "[16, 16] there, but [32, 16]" in done.stderr, found
        done = run(on_ranks(2, train("llama-tiny", place, *other)), 2)
        assert done.stderr.count("'lm_head.weight'") == 1, done.stderr
        assert not os.path.exists(place)


def check_recipe():
    """A checkpoint's recipe has other keys of model or data.transform than the one in use."""
    transform = "data.transform=[{normalize: {mean: [0.5], std: [0.25]}}]"
    with tempfile.TemporaryDirectory(prefix="trireme-origin-") as folder:
        text, images = os.path.join(folder, "text"), os.path.join(folder, "images")
        run(train("llama-tiny", text, *LLAMA))
        small = [*SYNTHETIC, "data.samples=16", "data.test_samples=8", "batch.global=8",
                 "trainer.max_epochs=1"]
        run(train("mlp-jax", images, *small, transform))
        step = os.path.join(text, "checkpoints", "last")
        for recipe, place, words, keys in (
                ("llama-tiny", text, LLAMA, []),
                ("llama-tiny", text, [*LLAMA, "optimizer.lr=0.5", "model.dropout=0.1"], []),
                ("llama-tiny", step, [*LLAMA, "model.rope_theta=77"], ["model.rope_theta"]),
                ("llama-tiny", os.path.join(step, "model.safetensors"),
                 [*LLAMA, "model.rms_norm_eps=0.1"], ["model.rms_norm_eps"]),
                ("mlp-jax", images, [*small, transform], []),
                ("mlp-jax", images, small, ["data.transform"])):
            for command in ([TRIREME, "eval", f"recipes/{recipe}.yaml", *words, "--checkpoint",
                             place],
                            train(recipe, os.path.join(folder, "new"), *words, f"init={place}",
                                  "trainer.fast_dev_run=1")):
                found = warnings(command)
                assert len(found) == bool(keys), (command, found)
                assert all(key in found[0] for key in keys), (command, found)


def write_classes(folder, *names):
    """An image folder of two images for each class."""
    for number, name in enumerate(names):
        os.makedirs(os.path.join(folder, name))
        for i in range(2):
            with open(os.path.join(folder, name, f"{i}.pgm"), "wb") as file:
                file.write(b"P5 4 4 255\n" + bytes([60 * number + i]) * 16)


def check_class_names():
    """The weights of a class stay those of its name, whatever number another folder gives it."""
    with tempfile.TemporaryDirectory(prefix="trireme-origin-") as folder:
        place, data = os.path.join(folder, "run"), os.path.join(folder, "data")
        write_classes(os.path.join(data, "train"), "ant", "bee", "cat")
        write_classes(os.path.join(data, "test"), "bee", "cat")
        own = ["model.num_classes=4", "data={name: imagefolder, test: test, workers: 0, "
               "transform: [{resize: [4, 4]}]}", "batch.global=6", "log.tensorboard=false"]
        words = [*own, f"data.path={data}"]
        run(train("mlp-jax", place, *words, "trainer.max_epochs=1"))
        evaluate = [TRIREME, "eval", "recipes/mlp-jax.yaml", "--checkpoint", place, *words]
        run(evaluate)
        os.rename(os.path.join(data, "train", "ant"), os.path.join(data, "train", "zebra"))
        for command in evaluate, train("mlp-jax", place, *words, "trainer.max_epochs=2"):
            done = run(command, 2)
            lines = done.stderr.splitlines()
            assert len(lines) == 1 and "'labels'" in lines[0] and "'ant'" in lines[0], lines
        done = run(train("mlp-jax", f"{place}2", *words, f"init={place}", "trainer.max_epochs=1"))
        assert "'ant'" in done.stderr and "warning" in done.stderr, done.stderr
        # Another class behind all others changes no number.
        os.rename(os.path.join(data, "train", "zebra"), os.path.join(data, "train", "ant"))
        write_classes(os.path.join(data, "train"), "dog")
        run(evaluate)
        run(train("mlp-jax", place, *words, "trainer.max_epochs=2"))


def check_column_names():
    """Columns that the recipe does not name are compared with those that the model learned from,
    also where the training file is gone."""
    with tempfile.TemporaryDirectory(prefix="trireme-origin-") as folder:
        for name, header in ("train", "a,b,label"), ("same", "a,b,label"), ("turned", "b,a,label"):
            with open(os.path.join(folder, f"{name}.csv"), "w", encoding="ascii") as file:
                file.write(header + "\n1,2,0\n3,4,1\n")
        place = os.path.join(folder, "run")
        words = ["model.num_classes=2", f"data={{name: csv, path: {folder}, workers: 0}}",
                 "batch.global=2", "log.tensorboard=false"]
        run(train("mlp-jax", place, *words, "data.train=train.csv", "trainer.max_epochs=1"))
        evaluate = [TRIREME, "eval", "recipes/mlp-jax.yaml", "--checkpoint", place, *words,
                    "data.path=null"]
        run([*evaluate, f"data.test={folder}/same.csv"])
        done = run([*evaluate, f"data.test={folder}/turned.csv"], 2)
        assert done.stderr.count("\n") == 1 and "'inputs'" in done.stderr, done.stderr
        # Columns that the recipe names may have other names, but not without a word.
        for names, warns in ("a, b", False), ("b, a", True):
            found = warnings([*evaluate, f"data.test={folder}/turned.csv",
                              f"data.fields={{labels: label, inputs: [{names}]}}"],
                             "data.fields")
            assert len(found) == warns and (not warns or "b, a for 'inputs'" in found[0]), found


def check_tokenizers():
    """A number stands for another token if the tokenizer is another one."""
    with tempfile.TemporaryDirectory(prefix="trireme-origin-") as folder:
        with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="ascii") as file:
            json.dump({"eos_token": "<s>"}, file)
        for name, order in ("one", ["<s>", "a", "b"]), ("other", ["<s>", "b", "a"]):
            with open(os.path.join(folder, f"{name}.json"), "w", encoding="ascii") as file:
                json.dump({"model": {"type": "WordLevel", "unk_token": "<s>",
                                     "vocab": {word: i for i, word in enumerate(order)}},
                           "pre_tokenizer": {"type": "Whitespace"},
                           "added_tokens": [{"id": 0, "content": "<s>", "special": True}]}, file)
            os.makedirs(os.path.join(folder, name))
            with open(os.path.join(folder, name, "text.jsonl"), "w", encoding="ascii") as file:
                file.write('{"text": "a b b a"}\n' * 8)
        one = f"{{name: jsonl, train: one/text.jsonl, sequence: 4, tokenizer: {folder}/one.json}}"
        other = one.replace("one", "other")
        words = [*LLAMA, "data={workers: 0}", f"data.path={folder}", "data.sequence=4"]
        single = ["data.name=jsonl", "data.train=one/text.jsonl", "data.test=one/text.jsonl",
                  f"data.tokenizer={folder}/same.json"]
        place = os.path.join(folder, "run")
        for run_dir, mix, warns in (place, f"{one}, {one}", 0), (f"{place}2", f"{one}, {other}", 1):
            found = warnings(train("llama-tiny", run_dir, *words, "data.name=mixture",
                                   f"data.mix=[{mix}]"), "tokenizer")
            assert len(found) == warns and all("source 2" in line for line in found), found
        for epochs, tokenizer, warns in (2, "one", 0), (3, "other", 1):
            shutil.copyfile(os.path.join(folder, f"{tokenizer}.json"),
                            os.path.join(folder, "same.json"))
            found = warnings(train("llama-tiny", f"{place}3", *words, *single,
                                   f"trainer.max_epochs={epochs}"), "tokenizer")
            assert len(found) == warns, found
        for end, warns in ("<s>", 0), ("b", 1):  # a file beside the tokenizer says how texts end
            with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="ascii") as file:
                json.dump({"eos_token": end}, file)
            found = warnings([TRIREME, "eval", "--checkpoint", f"{place}3"], "tokenizer")
            assert len(found) == warns and all("token 1" in line for line in found), found


def check_held_back():
    """Other samples than the checkpoint's run held back may be among those it was trained on."""
    with tempfile.TemporaryDirectory(prefix="trireme-origin-") as folder:
        place, other = os.path.join(folder, "run"), os.path.join(folder, "other")
        os.mkdir(other)
        for name in ("a", "b", "other/a"):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(bytes(range(256)) * 8)
        words = [*LLAMA, f"data.path={folder}", "data.train=a", "data.sequence=32", "data.limit=48",
                 "data.val_fraction=0.25", "trainer.max_steps=1"]
        # Which keys differ, whether eval has to warn of them, and whether init has to.
        cases = (([], "", False), (["seed=7"], "seed", True),
                 (["data.val_fraction=0.5", "data.limit=40"], "data.val_fraction, data.limit",
                  True),
                 (["data.sequence=16"], "data.sequence", True),
                 ([f"data.path={other}"], "data.path", False),
                 (["data.train=b"], "data.train", False),
                 (["data.val_fraction=0", "data.val=b", "seed=7"], "", False),
                 (["data.test=b", "seed=7"], "", True))
        run(train("llama-tiny", place, *words, "data.test=null"))
        for more, keys, warns_init in cases:
            evaluate = [TRIREME, "eval", "recipes/llama-tiny.yaml", *words, "data.test=null", *more,
                        "--checkpoint", place]
            begin = train("llama-tiny", os.path.join(folder, "new"), *words, "data.test=null",
                          *more, f"init={place}", "trainer.fast_dev_run=1")
            for command, warns in ((evaluate, bool(keys)), (begin, warns_init)):
                found = warnings(command)
                assert len(found) == warns, (command, found)
                assert not found or f"of {keys}, " in found[0] or not keys, (command, found)
        with open(os.path.join(folder, "a"), "ab") as file:
            file.write(bytes(999))
        grown = ["data.limit=0", "data.test=null"]
        run(train("llama-tiny", f"{place}-all", *words, *grown))
        with open(os.path.join(folder, "a"), "ab") as file:
            file.write(bytes(99))
        found = warnings([TRIREME, "eval", "--checkpoint", f"{place}-all"])
        assert len(found) == 1 and "(71 samples, not 73)" in found[0], found


if __name__ == "__main__":
    sys.exit(1 if check_all((check_config, check_config_rates, check_own_values, check_ignore,
                             check_lists, check_recipe, check_class_names, check_column_names,
                             check_tokenizers, check_held_back)) else 0)
