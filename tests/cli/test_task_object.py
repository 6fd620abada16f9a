#!/usr/bin/env python3
"""A shared object as a model: an error in it is one line and code 2, and is found without running
its code if the file itself shows it.

usage: test_task_object.py BUILD_FOLDER
"""
import json
import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import tensors  # noqa: E402
from runs import TRIREME, check_all, run  # noqa: E402

HERE = os.getcwd()
SYNTHETIC = ("data: {name: synthetic, shape: [1, 4, 4], classes: 3, samples: 8, test_samples: 4, "
             "workers: 0}\nbatch: {global: 4}\ntrainer: {max_steps: 1}\n"
             "log: {tensorboard: false}\n")
BUILD = """static void build(tri_graph *g, const tri_batch *batch) {
    tri_value x = tri_linear(g, "fc", tri_flatten(g, batch->images), 3);
    tri_loss(g, tri_cross_entropy(g, x, batch->labels));
}
static const tri_task task = {.name = "small", .build = build};
"""
# Says that it ran, in a file beside it.
CONSTRUCTOR = """#include <stdio.h>
__attribute__((constructor)) static void begin(void) {
    FILE *file = fopen("has-run", "w");
    if (file) fclose(file);
}
"""
GOOD = BUILD + "TRI_EXPORT_TASK(task)\n"


def with_field(field):
    return GOOD.replace(".build = build", f".build = build, .fields = {{{{\"images\", {field}}}}}")


CASES = {  # name: source, what the line says, whether its code may run
    "none": ("int nothing;\n", "exports no task: ", False),
    "newer": (BUILD + "const tri_task *trireme_task_v2(void) { return &task; }\n",
              "exports trireme_task_v2, ", False),
    "null": ("const tri_task *trireme_task_v1(void) { return (const tri_task *)0; }\n",
             "trireme_task_v1 returns NULL", True),
    "no_build": ("static const tri_task task = {.name = \"x\"};\nTRI_EXPORT_TASK(task)\n",
                 "has no build function", True),
    "no_name": (BUILD.replace('.name = "small", ', "") + "TRI_EXPORT_TASK(task)\n", "has no name",
                True),
    "no_loss": (GOOD.replace("tri_loss(g, ", "(void)(").replace("labels));", "labels));"),
                "declares no loss", True),
    "null_block": (GOOD.replace("tri_value x", "tri_block(g, 0);\n    tri_value x"),
                   "a block's name is NULL", True),
    "null_layer": (GOOD.replace('"fc"', "(const char *)0"), "a layer's name is NULL", True),
    "null_shared": (GOOD.replace("tri_value x", "tri_share_layer(g, 0);\n    tri_value x"),
                    "a layer's name is NULL", True),
    "null_metric": (GOOD.replace("tri_loss(g, ", "tri_metric(g, 0, "), "a metric's name is NULL",
                    True),
    "null_option": (GOOD.replace("tri_value x", "tri_model_int(g, 0, 1);\n    tri_value x"),
                    "option's key is NULL", True),
    "no_split": (GOOD.replace("tri_loss",
                              "tri_split_layer(g, \"fc\", (tri_split)77);\n    tri_loss"),
                 "fc: 77 is no tri_split", True),
    "axes": (GOOD.replace("tri_loss", "x = tri_reshape(g, x, (tri_shape){.rank = 1000});\n"
                          "    tri_loss"), "a shape has 0 to 6 axes, not 1000", True),
    "linear_std": (GOOD.replace("tri_loss", "x = tri_linear_with(g, \"f2\", x, "
                                "(tri_linear_options){.features = 3, .std = -1});\n    tri_loss"),
                   "linear f2: std must be", True),
    "momentum": (GOOD.replace("tri_loss", "x = tri_batch_norm(g, \"bn\", x, "
                              "(tri_batch_norm_options){.momentum = -3});\n    tri_loss"),
                 "batch_norm bn: momentum must lie in [0, 1]", True),
    "field_axes": (with_field("TRI_F32, {3000, {1}}"), "'images' has 0 to 5 axes, not 3000", True),
    "field_sizes": (with_field("TRI_F32, {1, {-1}}"), "'images' has 1 to ", True),
    "field_type": (with_field("(tri_dtype)77, {1, {1}}"), "'images' has no tri_dtype, but 77",
                   True),
    "bytes": (GOOD.replace('"fc"', '"\\xff\\xfe"'), "a layer's name is not UTF-8", True),
    "undefined": (GOOD + "extern int nowhere(void);\nint other(void) { return nowhere(); }\n",
                  "cannot load", False),
}


def compile_object(name, source):
    with open(f"{name}.c", "w", encoding="ascii") as file:
        file.write("#include <trireme/trireme.h>\n" + CONSTRUCTOR + source)
    subprocess.run(["cc", "-shared", "-fPIC", "-I", f"{HERE}/include", f"{name}.c", "-o",
                    f"{name}.so"], check=True)


def compile_program(name):
    libraries = os.path.join(os.path.dirname(os.path.dirname(TRIREME)), "lib")
    subprocess.run(["cc", f"-I{HERE}/include", "own.c", "-o", name, f"-L{libraries}", "-ltrireme",
                    f"-Wl,-rpath,{libraries}"], check=True)


def train(model, code=2):
    with open("recipe.yaml", "w", encoding="ascii") as file:
        file.write(f"name: task\nmodel: {{name: {model}}}\n{SYNTHETIC}")
    done = run([TRIREME, "train", "recipe.yaml"], code)
    if code != 0:
        assert done.stderr.count("\n") == 1 and not os.path.exists("runs"), done.stderr
    return done.stderr


def has_run():
    ran = os.path.exists("has-run")
    if ran:
        os.remove("has-run")
    return ran


def check_objects():
    for name, (source, text, may_run) in CASES.items():
        compile_object(name, source)
        error = train(f"./{name}.so")
        assert text in error and (name in error or "model small:" in error), error
        assert has_run() == may_run, name


def check_programs():
    """A task that lacks something is refused in a program of its own too, which finds the sites
    beside the library."""
    for name, task, text in (("none", "{.name = \"x\"}", "this program has no build function"),
                             ("anon", "{.build = build}", "this program has no name"),
                             ("whole", "{.name = \"own\", .build = build}", "")):
        with open("own.c", "w", encoding="ascii") as file:
            file.write("#include <trireme/trireme.h>\n" + BUILD +
                       f"static const tri_task own = {task};\n"
                       "int main(int c, char **v) { return tri_main(c, v, &own); }\n")
        compile_program(name)
        with open("own.yaml", "w", encoding="ascii") as file:
            file.write(f"name: task\n{SYNTHETIC}")
        if not text:
            assert "lumi-g" in run([f"./{name}", "submit", "--list"]).stdout, name
            continue
        done = run([f"./{name}", "train", "own.yaml"], 2)
        assert done.stderr.count("\n") == 1 and text in done.stderr, done.stderr


LOCALE = """comment_char %
escape_char /
LC_CTYPE
copy "POSIX"
END LC_CTYPE
LC_NUMERIC
decimal_point ","
thousands_sep "."
grouping 3;3
END LC_NUMERIC
"""
IN_A_LOCALE = """#include <locale.h>
#include <stdio.h>
static void build(tri_graph *g, const tri_batch *batch) {
    setlocale(LC_ALL, "");
    tri_value x = tri_map(g, "x -> x * 0.75 + 1.5", tri_flatten(g, batch->images));
    tri_loss(g, tri_cross_entropy(g, tri_linear(g, "fc", x, 3), batch->labels));
}
static const tri_task own = {.name = "own", .build = build};
int main(int c, char **v) {
    setlocale(LC_ALL, "");
    int code = tri_main(c, v, &own);
    printf("%.1f\\n", 0.5);
    return code;
}
"""


def check_locale():
    """A program that sets a locale with a decimal comma, before tri_main and in its task's build
    function, reads and writes the same numbers as without; and has its locale back afterwards."""
    with open("comma.src", "w", encoding="ascii") as file:
        file.write(LOCALE)
    try:
        subprocess.run(["localedef", "-c", "-i", "comma.src", "-f", "ANSI_X3.4-1968", "./comma"],
                       capture_output=True, check=False)
    except FileNotFoundError:
        pass
    if not os.path.exists("comma/LC_NUMERIC"):
        print("skip: localedef makes no locale with a decimal comma")
        return
    with open("own.c", "w", encoding="ascii") as file:
        file.write("#include <trireme/functions.h>\n#include <trireme/trireme.h>\n" + IN_A_LOCALE)
    compile_program("local")
    with open("own.yaml", "w", encoding="ascii") as file:
        file.write(f"name: task\noptimizer: {{lr: 0.125}}\n{SYNTHETIC}")
    texts = []
    for locale, number in (("C", "0.5"), ("comma", "0,5")):
        done = run(["./local", "train", "own.yaml", "optimizer.weight_decay=0.25", "--run-dir",
                    f"in-{locale}"],
                   env={**os.environ, "LOCPATH": os.getcwd(), "LC_ALL": locale})
        assert done.stdout.endswith(number + "\n"), done.stdout
        with open(f"in-{locale}/recipe.yaml", encoding="ascii") as file:
            texts.append(file.read().replace(locale, ""))
        with open(f"in-{locale}/metrics.jsonl", encoding="ascii") as file:
            losses = [json.loads(line).get("loss") for line in file]
        texts[-1] += str([loss for loss in losses if loss is not None])
    assert texts[0] == texts[1] and "0.125" in texts[0], texts


def check_files():
    """Files that are not shared objects, or only half of one."""
    compile_object("good", GOOD)
    with open("good.so", "rb") as file:
        whole = file.read()
    for size in (0, 3, 40, 64, 200, len(whole) // 2):
        with open("cut.so", "wb") as file:
            file.write(whole[:size])
        assert "cut.so" in train("./cut.so"), size
    broken = bytearray(whole)
    broken[40:48] = b"\xff" * 8  # where the table of sections lies
    with open("cut.so", "wb") as file:
        file.write(broken)
    assert "cut.so" in train("./cut.so")
    with open("text.so", "w", encoding="ascii") as file:
        file.write("no object\n")
    assert "./text.so is not" in train("./text.so")
    missing = train("./away.so")
    assert "model.name: " in missing and "./away.so; " in missing, missing
    assert not has_run()


def check_paths():
    """Only a path that says that it is one."""
    os.makedirs("below", exist_ok=True)
    compile_object("below/good", GOOD)
    for path in ("below/good.so", "good.so"):
        compile_object("good", GOOD)
        error = train(path)
        assert f"./{path}" in error, error
    assert not has_run()
    for path in ("./below/good.so", os.path.abspath("good.so"), "./below/../good.so"):
        train(path, 0)
        assert has_run()
        subprocess.run(["rm", "-r", "runs"], check=True)


def check_options():
    """An option that the model does not ask for, and one that is no number."""
    asks = GOOD.replace("tri_value x",
                        "(void)tri_model_int(g, \"hidden_size\", 8);\n    tri_value x")
    compile_object("asks", asks)
    error = train("./asks.so, hiden_size: 4")
    assert "model.hiden_size: the model small has no such option (did you mean 'hidden_size'?)" \
        in error, error
    assert "(known: hidden_size)" in train("./asks.so, layers: 4")
    assert "model.hidden_size has to be" in train("./asks.so, hidden_size: wide")
    train("./asks.so, hidden_size: 4", 0)
    assert has_run()


def check_names_in_json():
    """A layer's name may hold quotes and control characters; what is printed is JSON even so."""
    compile_object("quoted", GOOD.replace('"fc"', r'"a \"b\" \\\n"'))
    with open("recipe.yaml", "w", encoding="ascii") as file:
        file.write(f"name: task\nmodel: {{name: ./quoted.so}}\n{SYNTHETIC}")
    done = run([TRIREME, "bench", "kernels", "recipe.yaml", "--seconds", "0.01", "--json"])
    layers = {json.loads(line).get("layer") for line in done.stdout.splitlines()}
    assert 'a "b" \\\n' in layers, layers


def check_reshaped_images():
    """What a convolution makes lies in blocks of channels, and is reshaped as a plain tensor."""
    images = GOOD.replace("tri_flatten(g, batch->images)", "tri_flatten(g, x)").replace(
        "    tri_value x", """    tri_conv2d_options wide = {.channels = 16, .kernel = 1};
    tri_value x = tri_conv2d(g, "conv", batch->images, wide);
    x = tri_layer_norm(g, "norm", x, (tri_layer_norm_options){.axes = 3});
    tri_value y""").replace("(g, x, batch->labels)", "(g, y, batch->labels)")
    compile_object("images", images)
    with open("recipe.yaml", "w", encoding="ascii") as file:
        file.write(f"name: task\nmodel: {{name: ./images.so}}\n{SYNTHETIC}")
    run([TRIREME, "bench", "kernels", "recipe.yaml", "--seconds", "0.01"])


def check_told():
    for words in (["train", "--help"], ["train", "--keys", "model.name"], ["manual"]):
        text = " ".join(run([TRIREME, *words]).stdout.split())
        assert re.search("code (that|which) runs|code is executed", text), words


def check_positions():
    """A causal mask that is made of positions is the same in every precision."""
    compile_object("causal", """static void build(tri_graph *g, const tri_batch *batch) {
    tri_value x = tri_reshape(g, batch->images, tri_shape_of(batch->size, 1, 16));
    tri_value t = tri_map(g, "i + 500", tri_cast(g, tri_arange(g, 16), TRI_F32));
    tri_value mask = tri_map(g, "i, j -> j <= i", tri_unsqueeze(g, t, 1), t);
    tri_value ones = tri_map(g, "m, x -> m > 0 ? 0 * x + 1 : 0", mask, x);
    tri_output(g, "seen", tri_sum(g, ones, (int[]){2}, 1, false));
    tri_loss(g, tri_cross_entropy(g, tri_linear(g, "fc", tri_flatten(g, x), 3), batch->labels));
}
static const tri_task task = {.name = "causal", .build = build};
TRI_EXPORT_TASK(task)
""")
    with open("causal.yaml", "w", encoding="ascii") as file:
        file.write(f"name: causal\nmodel: {{name: ./causal.so}}\n{SYNTHETIC}")
    run([TRIREME, "checkpoint", "init", "causal.yaml", "--out", "causal.safetensors"])
    for precision in "32-true", "bf16-mixed", "16-mixed", "bf16-true":
        run([TRIREME, "predict", "causal.yaml", f"trainer.precision={precision}", "--checkpoint",
             "causal.safetensors", "--out", "seen.safetensors", "--device", "cpu"])
        seen = tensors.numbers(tensors.read("seen.safetensors")["seen"])
        assert seen == [*range(1, 17)] * 4, (precision, seen)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="trireme-object-") as place:
        os.chdir(place)
        sys.exit(1 if check_all([check_objects, check_programs, check_locale, check_files,
                                 check_paths, check_options, check_names_in_json,
                                 check_reshaped_images, check_told, check_positions]) else 0)
