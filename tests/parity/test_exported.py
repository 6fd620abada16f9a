#!/usr/bin/env python3
"""Networks that torch.export.save wrote against PyTorch: loss, gradients and statistics of a step
on one rank and on several; what is refused, and how.

usage: test_exported.py BUILD_FOLDER

PyTorch is not needed: exported/ has eleven programs of PyTorch 2.15 (training mode, dynamic batch)
and, of the eager networks, the expected values on a batch of three with every dropout at 0. The
same in exported/releases, of two networks, by each release from 2.9 on (make_exported.py).
make_exported_rows.py has made three of them: rows, with a branch for each of many operations,
shared, whose layers are called several times, and fixed, with a batch of two.
"""
import json
import os
import shutil
import struct
import sys
import tempfile
import zipfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, check_refused, entries, on_ranks, run  # noqa: E402
import tensors  # noqa: E402

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "exported")
BATCH = 3
# A large rate, so that the weights before and after a step tell the gradient: 2^10.
RATE = 1024
LIMIT = 1e-5
# The loss outside of each network; gpt computes its own.
LOSS = {"cnn": "nll", "resnet": "cross_entropy", "gpt": None, "llama": "cross_entropy",
        "lstm": "cross_entropy", "unet": "cross_entropy", "writes": "cross_entropy",
        "state": "cross_entropy", "rows": "mse", "shared": "mse", "fixed": "mse"}
# The result that counts, where there are several.
OUTPUT = {"shared": {"output": "result.out"}}
# Batch norm normalises over a micro-batch, so replicas need the whole batch in each.
WHOLE_BATCH = ["resnet", "unet", "writes", "state", "shared"]
folder = None


def path(name):
    return os.path.join(folder, name)


def program(name):
    return os.path.join(HERE, f"{name}.pt2")


def expected(name):
    name = name.split("-")[0]  # all releases of PyTorch have to give the same
    return {key: (kind, shape, tensors.numbers((kind, shape, data)))
            for key, (kind, shape, data) in
            tensors.read(os.path.join(HERE, f"{name}.expected.safetensors")).items()}


def initial(name):
    """The weights in the file: {name: values}, without tied ones' other names."""
    with zipfile.ZipFile(program(name)) as archive:
        members = {member.split("/", 1)[1]: member for member in archive.namelist()}
        config = json.loads(archive.read(members["data/weights/model_weights_config.json"]))
        return {key: struct.unpack(f"<{len(data) // 4}f", data)
                for key, entry in config["config"].items() if entry["tensor_meta"]["dtype"] == 7
                for data in [archive.read(members[f"data/weights/{entry['path_name']}"])]}


def write_recipe(name, file=None, **model):
    golden, loss = expected(name), LOSS.get(name, "cross_entropy")
    stem = name.replace("/", "_")
    fields = {key[6:]: value for key, value in golden.items() if key.startswith("field.")}
    if "target" in fields:
        fields["labels"] = fields.pop("target")
    tensors.write(path(f"{stem}.safetensors"), fields)
    recipe = {"name": stem, "model": {"name": "torch", "program": file or program(name),
                                      "dropout": 0, **OUTPUT.get(name, {}), **model},
              "data": {"name": "tensors", "train": path(f"{stem}.safetensors"), "shuffle": False},
              "batch": {"global": BATCH}, "optimizer": {"name": "sgd", "lr": RATE},
              "trainer": {"max_steps": 1, "log_every_n_steps": 1, "convolution": "direct"},
              "log": {"tensorboard": False}}
    if loss:
        recipe["loss"] = {"name": loss}
    with open(path(f"{stem}.yaml"), "w", encoding="utf-8") as file:
        json.dump(recipe, file)  # JSON is YAML
    return path(f"{stem}.yaml")


def check_step(name, ranks, *words):
    golden, before = expected(name), initial(name)
    run_dir = path(f"{name}-{ranks}-{'-'.join(words)}".replace("/", "_")[:80])
    run(on_ranks(ranks, [TRIREME, "train", write_recipe(name), "--run-dir", run_dir, *words]))
    loss = float(entries(run_dir, "train")[0]["loss"])
    wanted = golden["loss"][2][0]
    assert abs(loss - wanted) <= LIMIT * abs(wanted), f"{name}: loss {loss}, not {wanted}"
    after = {key: tensors.numbers(value) for key, value in
             tensors.read(f"{run_dir}/checkpoints/last/model.safetensors").items()
             if value[0] == "F32"}
    found = 0
    # Gradients in front of a batch norm are zero but for rounding.
    least = max(max(map(abs, values)) for key, (_, _, values) in golden.items()
                if key.startswith("grad.")) / 10
    for key, values in after.items():
        _, _, gradient = golden.get(f"grad.{key}", (0, 0, None))
        _, _, statistic = golden.get(f"after.{key}", (0, 0, None))
        if gradient:
            values = [(a - b) / RATE for a, b in zip(before[key], values, strict=True)]
        goal = gradient or statistic
        if not goal:  # it is frozen
            assert values == list(before[key]), f"{name}: nothing is known of {key}"
            continue
        error = max(abs(a - b) for a, b in zip(values, goal, strict=True))
        size = max(max(map(abs, goal)), least)
        assert error <= LIMIT * size, f"{name}, {words}: {key} differs by {error / size:.1e}"
        found += 1
    assert found == sum(key.startswith(("grad.", "after.")) and "num_batches" not in key and
                        key[key.index(".") + 1:] in after for key in golden) > 3


def check_ranks():
    for name in LOSS:
        check_step(name, 1)
        check_step(name, 2, "strategy.name=pipeline",
                   *(["batch.micro=3"] if name in WHOLE_BATCH else ["batch.micro=1"]))
        if name not in WHOLE_BATCH:
            check_step(name, 2, "strategy.name=ddp")
            check_step(name, 3, "strategy.name=fsdp")
    # Layers are divided by their names in Hugging Face's models, or as the recipe says.
    check_step("llama", 2, "strategy.mesh.tensor=2")
    check_step("gpt", 2, "strategy.mesh.tensor=2",
               "strategy.tensor_plan={'*.c_fc': colwise, '*.c_out': rowwise}")
    check_step("llama", 1, "--device", "far")
    check_step("lstm", 1, "--device", "ref")
    check_step("rows", 1, "--device", "ref")


def check_releases():
    """Programs of each release of PyTorch from 2.9 on."""
    found = sorted(file[:-4] for file in os.listdir(f"{HERE}/releases") if file.endswith(".pt2"))
    assert {name.split("-")[0] for name in found} == {"cnn", "transformer"} and len(found) == 14
    for name in found:
        check_step(f"releases/{name}", 1)


def check_depth():
    """Stochastic depth is off in evaluation, whose graph then has other constants."""
    tensors.write(path("depth.data"), {"inputs": ("F32", [4, 4], [i / 8 for i in range(16)]),
                                       "targets": ("F32", [4, 4], [i % 3 for i in range(16)])})
    with open(path("depth.yaml"), "w", encoding="utf-8") as file:
        json.dump({"model": {"name": "torch", "program": program("depth")}, "loss": {"name": "mse"},
                   "data": {"name": "tensors", "train": path("depth.data"),
                            "test": path("depth.data")}, "batch": {"global": 4},
                   "optimizer": {"name": "sgd", "lr": 0}, "trainer": {"max_epochs": 2}}, file)
    losses = []
    for ranks in 1, 2:
        run(on_ranks(ranks, [TRIREME, "train", path("depth.yaml"), "--run-dir",
                             path(f"depth-{ranks}"), "batch.micro=2"]))
        losses += [float(entry["loss"]) for entry in entries(path(f"depth-{ranks}"), "val")]
    assert len(losses) == 4 and max(losses) - min(losses) < 1e-6 * min(losses), losses


def check_fixed():
    """Training with another number of samples than that of the export is warned of, once."""
    for micro, times in (BATCH, 1), (2, 0):
        said = run([TRIREME, "train", write_recipe("fixed"), f"batch.global={micro}",
                    "--run-dir", path(f"fixed-{micro}")]).stderr
        assert said.count("batch.micro=2") == times, said


def check_frozen():
    """A parameter with requires_grad=False is not trained."""
    meta = b'{"path_name": "weight_2", "is_param": true, "use_pickle": false, "tensor_meta": ' \
           b'{"dtype": 7, "sizes": [{"as_int": 8}, {"as_int": 4}, {"as_int": 3}, {"as_int": 3}], '
    file = changed("cnn", "model_weights_config.json", meta + b'"requires_grad": true',
                   meta + b'"requires_grad": false')
    run([TRIREME, "train", write_recipe("cnn", file), "--run-dir", path("frozen")])
    after = tensors.read(path("frozen/checkpoints/last/model.safetensors"))
    before = initial("cnn")
    still = [name for name, values in before.items()
             if list(values) == tensors.numbers(after[name])]
    assert still == ["conv2.weight"], still


def check_outputs():
    """What the network returns without training, as predict writes it; the name is the result's."""
    for name, output in [("cnn", "output"), ("llama", "logits"), ("lstm", "output"),
                         ("rows", "output")]:
        recipe = write_recipe(name)
        run([TRIREME, "predict", recipe, "--checkpoint", program(name), "--out", path("out"),
             f"data.test={path(f'{name}.safetensors')}"])
        values = tensors.numbers(tensors.read(path("out"))[output])
        goal = expected(name)["output"][2]
        error = max(abs(a - b) for a, b in zip(values, goal, strict=True))
        assert error <= LIMIT * max(map(abs, goal)), f"{name}: outputs differ by {error:.1e}"


def changed(name, member, old, new):
    """A copy of a program in which a text of one member is another."""
    with zipfile.ZipFile(program(name)) as archive, \
            zipfile.ZipFile(path("changed.pt2"), "w") as copy:
        for info in archive.infolist():
            data = archive.read(info)
            if info.filename.endswith(member):
                assert old in data
                data = data.replace(old, new)
            if new is not None or not info.filename.endswith(member):
                copy.writestr(info.filename, data)
    return path("changed.pt2")


def check_model(file, parts):
    """The same lines from `model check` and from `train`, which makes no run folder."""
    done = run([TRIREME, "model", "check", file], 2)
    for part in parts:
        assert part in done.stderr, f"{part} is not in {done.stderr}"
    check_refused([TRIREME, "train", write_recipe("gpt", file), "--run-dir", path("none")],
                  path("none"), parts)


def check_refusals():
    done = run([TRIREME, "model", "check", program("gpt")])
    assert program("gpt") in done.stdout and not done.stderr
    # A recipe's data have the sizes that a program leaves open.
    done = run([TRIREME, "model", "check", write_recipe("gpt", program("gpt"))])
    assert done.stdout and not done.stderr, done
    check_model(changed("gpt", "model.json", b"aten.gelu.default", b"aten.guelu.default"),
                ["aten.guelu.default", "2 times", "'h.0'"])
    check_model(changed("gpt", "model.json", b'"name": "train", "arg": {"as_bool": true}',
                        b'"name": "train", "arg": {"as_bool": false}'),
                ["aten.dropout.default", "eval()"])
    check_model(changed("gpt", "model.json", b'{"name": "weight", "arg": {"as_tensor": {"name": '
                        b'"p_wpe_weight"}}', b'{"name": "scale_grad_by_freq", "arg": {"as_bool": '
                        b'true}}, {"name": "weight", "arg": {"as_tensor": {"name": '
                        b'"p_wpe_weight"}}'), ["scale_grad_by_freq"])
    check_model(changed("gpt", "model.json", b'"major": 8', b'"major": 7'), ["2.9"])
    check_model(changed("gpt", "model.json", b'"graph_module"', b'"graph_moduli"'), ["damaged"])
    with open(program("gpt"), "rb") as file:
        whole = file.read()
    for size in [0, 100, len(whole) // 2, len(whole) - 30]:
        with open(path("short.pt2"), "wb") as file:
            file.write(whole[:size])
        check_refused([TRIREME, "train", write_recipe("gpt", path("short.pt2")), "--run-dir",
                       path("none")], path("none"), ["short.pt2"])
    for model, parts in [({"inputs": {"idz": "input_ids"}}, ["idz", "input_ids, labels"]),
                         ({"output": "logits"}, ["model.output", "logits"]),
                         ({"weights": "none at all"}, ["model.weights", "none at all"]),
                         ({"blocs": "auto"}, ["blocs"])]:
        check_refused([TRIREME, "train", write_recipe("gpt", **model), "--run-dir", path("none")],
                      path("none"), parts)


def check_old():
    """Programs of PyTorch before 2.9: a flat archive, and one whose weights are pickles."""
    with zipfile.ZipFile(path("flat.pt2"), "w") as archive:
        for member in ["version", "serialized_exported_program.json", "serialized_state_dict.pt"]:
            archive.writestr(member, b"{}")
    pickled = changed("gpt", "model_weights_config.json", b'"use_pickle": false',
                      b'"use_pickle": true')
    for file in path("flat.pt2"), pickled:
        for words in (["model", "check", file],
                      ["train", write_recipe("gpt", file), "--run-dir", path("old")]):
            done = run([TRIREME, *words], 2)
            assert "2.9 or later" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def check_show():
    shown = json.loads(run([TRIREME, "model", "show", program("llama"), "--json"]).stdout)
    assert [block["name"] for block in shown["blocks"]] == [
        "model", "model.layers.0", "model.layers.1", "model#2", "lm_head"]
    assert sum(block["parameters"] for block in shown["blocks"]) == sum(
        len(values) for values in initial("llama").values())


def tensors_of(file):
    """The weights in a program as its list has them: {name: (type, sizes)}."""
    names = {5: "I64", 7: "F32"}
    with zipfile.ZipFile(file) as archive:
        member, = [m for m in archive.namelist() if m.endswith("model_weights_config.json")]
        config = json.loads(archive.read(member))["config"]
    return {key: (names[entry["tensor_meta"]["dtype"]],
                  [size["as_int"] for size in entry["tensor_meta"]["sizes"]])
            for key, entry in config.items()}


def check_export():
    """`checkpoint export` gives all that load_state_dict(strict=True) wants, and nothing else."""
    for name in ["state", "gpt", "resnet"]:
        trained, out = path(f"{name}-trained"), path(f"{name}.out")
        run([TRIREME, "train", write_recipe(name), "--run-dir", trained, "trainer.max_steps=2",
             "trainer.max_epochs=2"])
        said = run([TRIREME, "checkpoint", "export", trained, "--out", out]).stdout
        found, wanted = tensors.read(out), tensors_of(program(name))
        assert {key: (kind, shape) for key, (kind, shape, _) in found.items()} == wanted, found
        assert f"{len(wanted)} tensors" in said, said
        counts = [tensors.numbers(value) for key, value in found.items() if "num_batches" in key]
        assert all(count == [2] for count in counts), counts
        before = initial(name)
        if name == "state":
            assert found["head.weight"] == found["embed.weight"]
            still = [key for key, values in before.items()
                     if list(values) == tensors.numbers(found[key])]
            assert sorted(still) == ["out.bias", "scale", "unread"], still
            assert tensors.numbers(found["seen"]) == [0, 1]
        # A program has the same tensors; and numbers may be halved.
        run([TRIREME, "checkpoint", "export", program(name), "--out", path("whole")])
        assert set(tensors.read(path("whole"))) == set(wanted)
        run([TRIREME, "checkpoint", "export", trained, "--out", path("half"), "--dtype", "F16"])
        assert {key: kind for key, (kind, _, _) in tensors.read(path("half")).items()} == {
            key: kind if kind == "I64" else "F16" for key, (kind, _) in wanted.items()}


def check_export_of_another():
    """The network's file may be elsewhere; that of another network is refused."""
    run([TRIREME, "train", write_recipe("state", shutil.copy(program("state"), path("moved.pt2"))),
         "--run-dir", path("elsewhere")])
    os.remove(path("moved.pt2"))
    export = [TRIREME, "checkpoint", "export", path("elsewhere"), "--out", path("none")]
    for words, parts in [([], ["moved.pt2", "--program"]),
                         (["--program", program("gpt")], ["another network"]),
                         (["--program", path("missing")], ["missing"])]:
        check_refused([*export, *words], path("none"), parts)
    run([*export[:-1], path("found"), "--program", program("state")])
    assert set(tensors.read(path("found"))) == set(tensors_of(program("state")))
    run([TRIREME, "train", "recipes/mnist-cnn.yaml", "data.name=synthetic", "data.shape=[1,28,28]",
         "data.classes=10", "data.samples=64", "trainer.max_steps=1", "--run-dir",
         path("built-in")])
    check_refused([TRIREME, "checkpoint", "export", path("built-in"), "--out", path("other"),
                   "--program", program("state")], path("other"), ["--program"])


def check_evaluation():
    """A program for evaluation is computed wherever nothing is trained, on several ranks too."""
    golden, evaluation = expected("state"), program("state_eval")
    recipe = write_recipe("state", evaluation_program=evaluation)
    test = f"data.test={path('state.safetensors')}"
    for ranks, words in [(1, []), (2, ["strategy.mesh.pipeline=2", "batch.micro=1"]),
                         (3, ["strategy.name=fsdp"])]:
        run(on_ranks(ranks, [TRIREME, "predict", recipe, "--checkpoint", program("state"), "--out",
                             path("out"), test, *words]))
        values = tensors.numbers(tensors.read(path("out"))["output"])
        goal = golden["evaluated"][2]
        assert max(abs(a - b) for a, b in zip(values, goal, strict=True)) <= LIMIT * max(
            map(abs, goal))
        done = run(on_ranks(ranks, [TRIREME, "eval", recipe, "--checkpoint", program("state"),
                                    "--json", test, *words]))
        loss, wanted = json.loads(done.stdout)["loss"], golden["evaluated_loss"][2][0]
        assert abs(loss - wanted) <= LIMIT * wanted, f"{words}: {loss}, not {wanted}"
    found = []
    for ranks, words in [(1, []), (2, ["strategy.name=pipeline", "batch.micro=3"]),
                         (2, ["strategy.name=fsdp", "trainer.sync_batchnorm=true"])]:
        trained = path(f"evaluated-{len(found)}")
        run(on_ranks(ranks, [TRIREME, "train", recipe, "--run-dir", trained, test,
                             "optimizer.lr=0.1", *words]))
        found.append(float(entries(trained, "val")[0]["loss"]))
    assert max(found) - min(found) <= LIMIT * min(found), found


def check_refused_programs():
    """A program for evaluation has to be of the same network."""
    other = changed("state_eval", "model_weights_config.json", b'"unread"', b'"unread2"')
    for file, parts in [(program("gpt"), ["evaluation_program", program("gpt")]),
                        (other, ["evaluation_program", "'unread2'"]),
                        (path("nowhere.pt2"), ["nowhere.pt2"])]:
        check_refused([TRIREME, "train", write_recipe("state", evaluation_program=file),
                       "--run-dir", path("none")], path("none"), parts)
    # Read the other way round, the one reads what the other does not train.
    check_refused([TRIREME, "train", write_recipe("state", program("state_eval"),
                                                  evaluation_program=program("state")),
                   "--run-dir", path("none")], path("none"), ["eval()"])


def check_blocks():
    """Patterns of module paths cut the network, for `model show` and for a run."""
    def blocks(file, *words):
        shown = json.loads(run([TRIREME, "model", "show", file, "--json", *words]).stdout)
        return [block["name"] for block in shown["blocks"]]

    assert blocks(program("llama"), "model.blocks=[]") == ["model"]
    assert blocks(program("llama"), "model.blocks=[model.layers.*.mlp, lm_head]") == [
        "model", "model.layers.0.mlp", "model.layers.1", "model.layers.1.mlp", "model#2", "lm_head"]
    # More than one tensor may go from block to block.
    assert blocks(program("unet"), "model.blocks=[down*, up*]") == [
        "down1", "down2", "mid", "up", "dec2", "dec1"]
    check_step("unet", 3, "strategy.name=pipeline", "batch.micro=3", "model.blocks=[down*, up*]")
    check_step("llama", 3, "strategy.name=pipeline", "batch.micro=1",
               "model.blocks=['*.mlp', lm_head]")
    for words, parts in [("model.blocks=[layers.*]", ["layers.*", "llama.pt2"]),
                         ("model.blocks={a: b}", ["model.blocks"]),
                         ("model.blocks=all", ["model.blocks", "auto"]),
                         ("model.block=auto", ["block", "blocks"])]:
        check_refused([TRIREME, "train", write_recipe("llama"), words, "--run-dir", path("none")],
                      path("none"), parts)


def main():
    global folder
    with tempfile.TemporaryDirectory() as folder:
        return check_all([check_ranks, check_fixed, check_frozen, check_outputs, check_refusals,
                          check_show, check_export, check_export_of_another, check_evaluation,
                          check_refused_programs, check_blocks, check_releases, check_depth,
                          check_old])


sys.exit(main())
