#!/usr/bin/env python3
"""trainer.detect_anomaly names op, block and element of the first value that is not finite, on any
rank, forward or backward. It reports nothing if all values are finite.

usage: test_anomaly.py BUILD_FOLDER
"""
import array
import json
import os
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
sys.path.insert(0, os.path.join(HERE, "..", "parity"))
import formula  # noqa: E402
from runs import SYNTHETIC, TRIREME, check_all, losses, on_ranks, run  # noqa: E402

SAMPLES, WIDTH = 8, 4
NET = """#include <math.h>
#include <trireme/trireme.h>
static void build(tri_graph *g, const tri_batch *batch) {
    tri_block(g, "first");
    tri_value x = tri_linear_with(g, "fc1", batch->inputs, (tri_linear_options){
        .features = 4, .std = tri_model_float(g, "std", 0)});
    if (tri_model_bool(g, "masked", false)) {
        tri_value heads = tri_reshape(g, x, tri_shape_of(batch->size, 4, 1, 1));
        tri_value mask = tri_map(g, "x > 0", tri_reshape(g, batch->inputs,
                                                         tri_shape_of(batch->size, 1, 1, 4)));
        x = tri_flatten(g, tri_attention(g, "attend", heads, heads, heads,
                                         (tri_attention_options){.mask = mask}));
    }
    if (tri_model_bool(g, "hidden", false)) {
        static const float hides[] = {0, 0, -INFINITY, -INFINITY};
        tri_value mask = tri_constant(g, "hides", tri_shape_of(4), hides);
        x = tri_map(g, "x, m -> 2 * (x + m)", x, mask);
        x = tri_exp(g, tri_log_softmax(g, tri_add(g, x, mask)));
    }
    tri_block(g, "second");
    tri_loss(g, tri_mse_loss(g, tri_linear(g, "fc2", x, 4), batch->targets));
}
static const tri_task task = {.name = "small", .build = build};
TRI_EXPORT_TASK(task)
"""
folder = None


def train(inputs, *words, ranks=1, code=1):
    files = {"inputs": ("F32", (SAMPLES, WIDTH), array.array("f", inputs)),
             "targets": ("F32", (SAMPLES, WIDTH), array.array("f", [0.5] * SAMPLES * WIDTH))}
    formula.write_safetensors(f"{folder}/data.safetensors", files)
    done = run(on_ranks(ranks, [
        TRIREME, "train", f"{folder}/small.yaml", "--quiet", "--resume", "never", "--run-dir",
        tempfile.mkdtemp(dir=folder), "trainer.detect_anomaly=true", *words]), code)
    lines = [line for line in done.stderr.splitlines()
             if line.startswith("trireme: step ") and "gradients overflowed" not in line]
    assert code == 0 or len(lines) == 1, done.stderr
    return lines[0] if lines else ""


def ordinary(scale=1.0):
    return [scale * (u - 0.5) for u in formula.uniform("inputs", SAMPLES * WIDTH)]


def check_data():
    """The sample is named whichever rank has it."""
    for sample, ranks, words in ((1, 1, []), (6, 2, []), (6, 2, ["batch.micro=2"]),
                                 (6, 2, ["strategy.name=pipeline", "batch.micro=4"])):
        inputs = ordinary()
        inputs[sample * WIDTH + 3] = float("nan")
        line = train(inputs, *words, ranks=ranks)
        assert "step 1: the forward pass of block first: reads the data's inputs, which are nan " \
            "at element " in line, line
        size = 8 if ranks == 1 else 2 if "batch.micro=2" in words else 4
        element = sample % size * WIDTH + 3
        assert line.endswith(f"element {element} of [{size}, {WIDTH}]"), line


def check_step():
    """The step is counted as everywhere: also steps that changed nothing, since their gradients
    overflowed."""
    inputs = ordinary()
    inputs[6 * WIDTH] = float("nan")  # of step 4, in the second epoch
    line = train(inputs[4 * WIDTH:] + inputs[:4 * WIDTH], "batch.global=4")
    assert "step 1: " in line, line
    line = train(inputs, "batch.global=2", "trainer.precision=16-mixed",
                 "trainer.loss_scale.initial=1e9", "trainer.max_steps=4")
    assert "step 4: the forward pass of block first: reads the data's inputs" in line, line


def check_overflow():
    """Each step that changes nothing has its line and a message with the reason, also one whose
    overflow does not lower the loss scale yet."""
    place = os.path.join(folder, "overflow")
    words = ["batch.global=2", "trainer.precision=16-mixed", "trainer.loss_scale.initial=1e9",
             "trainer.log_every_n_steps=1", "trainer.detect_anomaly=false"]
    train(ordinary(), *words, code=0)
    done = run([TRIREME, "train", f"{folder}/small.yaml", "--run-dir", place, *words])
    for step, scale in (1, "stays 1e+09"), (2, "is now 5e+08"):
        (line,) = [line for line in done.stderr.splitlines() if f"step {step}: gradients" in line]
        assert scale in line, line
    with open(os.path.join(place, "metrics.jsonl"), encoding="ascii") as file:
        entries = [json.loads(line) for line in file]
    steps = [entry for entry in entries if entry["kind"] == "train"]
    assert [entry["step"] for entry in steps] == [1, 2], steps
    assert all(entry["grad_norm"] in ("Infinity", "NaN") for entry in steps), steps


def check_forward():
    """Finite numbers whose product is not finite."""
    for device in "cpu", "ref":
        line = train(ordinary(6.7e38), "--device", device, "model.std=4")
        assert "step 1: the forward pass of block first: linear fc1 made " in line, line
        assert "inf at element" in line or "nan at element" in line, line


def check_masked():
    """The scores of keys that a mask hides are infinite, as they are meant to be; what else is not
    finite is found as without a mask."""
    for words in [], ["trainer.precision=bf16-mixed"], ["strategy.recompute=block"]:
        train(ordinary(), "model.masked=true", *words, code=0)
    train(ordinary(), "model.hidden=true", code=0)
    line = train(ordinary(), "model.hidden=true", write_weights(fc2_bias=float("nan")),
                 "trainer.detect_anomaly=false")
    assert "reads the parameter fc2.bias, which is nan" in line, line
    line = train(ordinary(6.7e38), "model.masked=true", "model.std=4")
    assert "block first: linear fc1 made " in line, line
    line = train(ordinary(), "model.masked=true", write_weights(fc2_bias=float("nan")),
                 "trainer.detect_anomaly=false")
    assert "reads the parameter fc2.bias, which is nan" in line, line


def check_backward():
    """The loss is finite, but the gradient of a weight overflows: its factors are 1e25 each."""
    for device in "cpu", "ref":
        line = train(ordinary(1e25), "--device", device)
        assert "step 1: the backward pass of block second: " in line, line
        assert "made " in line and line.endswith("of [4, 4]"), line


def check_parameter():
    """After a step that was much too long, the weights themselves are not finite."""
    line = train(ordinary(), "optimizer.lr=1e6", "trainer.max_epochs=30", "trainer.max_steps=-1",
                 "schedule.name=linear", "schedule.start_factor=1e6", "schedule.end_factor=1e6")
    assert "the forward pass" in line or "the backward pass" in line, line


def write_weights(**changes):
    """Initial weights; changes: the first elements of the named ones, with _ for the dot."""
    tensors = {}
    for layer in "fc1", "fc2":
        for name, shape in (f"{layer}.weight", (WIDTH, WIDTH)), (f"{layer}.bias", (WIDTH,)):
            values = array.array("f", [0.25] * (WIDTH ** len(shape)))
            first = changes.get(name.replace(".", "_"))
            if first is not None:
                values[2] = first
            tensors[name] = ("F32", shape, values)
    formula.write_safetensors(f"{folder}/weights.safetensors", tensors)
    return f"init={folder}/weights.safetensors"


def check_without():
    """If it is off, only loss and gradients are checked. The step is then made again to find where
    the number began: in the data, in a parameter, in an op, or in a gradient."""
    off = "trainer.detect_anomaly=false"
    for device in "cpu", "far":
        inputs = ordinary()
        inputs[6 * WIDTH] = float("nan")  # of step 4
        line = train(inputs, off, "batch.global=2", "--device", device, "trainer.max_steps=9")
        assert "step 4: the loss is nan: 'inputs' of training sample 6" in line, line
        assert "optimizer.lr" not in line, line
        for ranks, words in ((1, []), (2, []), (2, ["strategy.name=fsdp"]),
                             (2, ["strategy.name=pipeline", "batch.micro=4"])):
            weights = write_weights(fc2_bias=float("nan"))
            line = train(ordinary(), off, weights, "--device", device, *words, ranks=ranks)
            assert "step 1: the loss is nan: the forward pass of block second: reads the " \
                "parameter fc2.bias, which is nan at element 2 of [4]" in line, (words, line)
            assert "optimizer.lr" not in line and "init" in line, (words, line)
        line = train(ordinary(6.7e38), off, "model.std=4", "--device", device)
        assert "the loss is " in line and "block first: linear fc1 made " in line, line
        line = train(ordinary(1e25), off, "--device", device)
        assert "step 1: the gradient of " in line, line
        assert ": the backward pass of block second: " in line and "optimizer.lr" in line, line


def check_scaled():
    """No loss scale helps a loss that is not finite: the run ends as without a scale, and its
    metrics have the loss as a string, whatever the interval of logging."""
    inputs = ordinary()
    inputs[6 * WIDTH] = float("nan")  # of step 4
    for words in [], ["trainer.precision=16-mixed", "trainer.loss_scale.initial=64"], \
            ["trainer.precision=16-mixed", "trainer.loss_scale.fixed=64"]:
        place = tempfile.mkdtemp(dir=folder)
        line = train(inputs, *words, "--run-dir", place, "batch.global=2", "trainer.max_steps=9",
                     "trainer.detect_anomaly=false")
        assert "step 4: " in line and "the loss is nan" in line, line
        with open(os.path.join(place, "metrics.jsonl"), encoding="ascii") as file:
            last, end = [json.loads(line) for line in file][-2:]
        assert (last["kind"], last["step"], last["loss"]) == ("train", 4, "NaN"), last
        assert (end["kind"], end["status"], end["steps"]) == ("end", "failed", 3), end


def check_nothing_found():
    """The losses are the same as without it, for every kind of layer, precision and strategy."""
    text = ["data.classes=0", "data.shape=[]", "data.vocabulary=50", "data.sequence=16",
            "model.hidden_size=32", "model.intermediate_size=32", "model.vocab_size=50"]
    for recipe, ranks, words in (
            ("mnist-cnn", 2, ["batch.micro=4", "strategy.name=fsdp"]),
            ("mnist-convnet", 1, ["strategy.recompute=block"]),
            ("denoise-cnn", 1, ["model.hidden=4"]),
            ("mnist-cnn", 1, ["trainer.precision=16-mixed"]),
            ("llama-tiny", 2, [*text, "trainer.precision=bf16-mixed", "strategy.mesh.tensor=2"]),
            ("llama-tiny", 2, [*text, "strategy.name=pipeline", "strategy.schedule=zero-bubble",
                               "batch.micro=2"])):
        found = []
        for detect in "true", "false":
            place = tempfile.mkdtemp(dir=folder)
            settings = [w for w in SYNTHETIC if recipe != "denoise-cnn" or "classes" not in w]
            run(on_ranks(ranks, [
                TRIREME, "train", f"recipes/{recipe}.yaml", "--run-dir", place, *settings,
                "data.samples=16", "data.test_samples=4", "batch.global=8", "trainer.max_epochs=1",
                f"trainer.detect_anomaly={detect}", *words]))
            found.append(losses(place))
        assert found[0] == found[1] and len(found[0]) == 2, (recipe, words, found)


def main():
    with open(f"{folder}/small.c", "w", encoding="ascii") as file:
        file.write(NET)
    subprocess.run(["cc", "-shared", "-fPIC", "-Iinclude", f"{folder}/small.c", "-o",
                    f"{folder}/small.so"], check=True)
    with open(f"{folder}/small.yaml", "w", encoding="ascii") as file:
        file.write(f"model: {{name: {folder}/small.so}}\n"
                   f"data: {{name: tensors, train: {folder}/data.safetensors, shuffle: false}}\n"
                   f"batch: {{global: {SAMPLES}}}\noptimizer: {{name: sgd, lr: 0.1}}\n"
                   "trainer: {max_steps: 2}\nlog: {tensorboard: false}\n")
    return check_all([check_data, check_step, check_overflow, check_forward, check_masked,
                      check_backward, check_parameter, check_without, check_scaled,
                      check_nothing_found])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="trireme-anomaly-") as folder:
        sys.exit(1 if main() else 0)
