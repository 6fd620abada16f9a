"""Small exported networks written as text, one operation a line: "y 3,4,8 = mul.Tensor(x, 2.0)".
Sizes end with b: a mask, c: complex numbers, i: integers; "." is a tensor without axes, "#" the
number of samples. Strides that are not row-major stand behind a slash:
"y N,8,4/32,1,8 = transpose.int(x, 1, 2)".
"""
import ast
import json
import random
import struct
import zipfile

from runs import TRIREME, entries, on_ranks, run
import tensors

BATCH, LIMIT, RATE = 3, 1e-5, 8
FLOAT = 7
TYPES = {"b": 12, "c": 10, "i": 5}


def sizes_json(sizes):
    return [{"as_int": size} for size in sizes]


def meta(sizes, dtype=FLOAT, strides=None):
    if not strides:
        strides = [1]
        for size in reversed(sizes[1:]):
            strides.insert(0, strides[0] * size)
    return {"dtype": dtype, "sizes": sizes_json(sizes), "requires_grad": True,
            "device": {"type": "cpu", "index": None}, "layout": 7,
            "strides": sizes_json(strides[:len(sizes)]), "storage_offset": {"as_int": 0}}


def with_batch(values):
    batch = {"as_expr": {"expr_str": "s0", "hint": {"as_int": 2}}}
    return json.loads(json.dumps(values).replace('{"as_int": -1}', json.dumps(batch)))


def port(parameter):
    """The value that a parameter is."""
    return "p_" + parameter.replace(".", "_")


def argument(node):
    """An argument of a call as the file has it."""
    if isinstance(node, ast.Name):
        return {"as_tensor": {"name": node.id}}
    if isinstance(node, ast.List) and any(isinstance(item, ast.Name) for item in node.elts):
        return {"as_tensors": [{"name": item.id} for item in node.elts]}
    value = ast.literal_eval(node)
    kinds = {bool: "as_bool", int: "as_int", float: "as_float", str: "as_string", list: "as_ints",
             type(None): "as_none"}
    return {kinds[type(value)]: value}


class Program:
    """Parameters {name: sizes}, and lines of operations; the input is x [N, ...], or has the batch
    that is given."""

    def __init__(self, inputs, parameters, text, batch=-1):
        self.values = {"x": meta([batch, *inputs])}
        self.inputs, self.parameters, self.nodes = inputs, parameters, []
        self.counts = {}
        for name, sizes in parameters.items():
            self.values[port(name)] = meta(sizes)
        for line in text.strip().split("\n"):
            self.add(*line.strip().split(" = ", 1))

    def add(self, results, call):
        call = ast.parse(call, mode="eval").body
        names, sizes = results.rsplit(" ", 1)
        sizes, *strides = sizes.split("/")
        strides = [int(stride) for stride in strides[0].split(",")] if strides else None
        dtype, is_count = TYPES.get(sizes[-1], FLOAT), sizes == "#"
        sizes = [-1 if size == "N" else int(size) for size in sizes.rstrip("bci").split(",")
                 if size not in ".#"]
        outputs = [{"name": name} for name in names.split("+")]
        results = [{"as_tensors": outputs}] if len(outputs) > 1 else [{"as_tensor": outputs[0]}]
        if is_count:
            self.counts[names] = {"as_expr": {"expr_str": "s0", "hint": {"as_int": 2}}}
            results = [{"as_sym_int": {"as_name": names}}]
        for output in outputs if not is_count else []:
            self.values[output["name"]] = meta(sizes, dtype, strides)
        given = [("", value) for value in call.args] + [(k.arg, k.value) for k in call.keywords]
        self.nodes.append({
            "target": f"torch.ops.aten.{ast.unparse(call.func)}",
            "inputs": [{"name": name, "arg": self.argument(value), "kind": 1}
                       for name, value in given],
            "outputs": results,
            "metadata": {"nn_module_stack": "L__self__,,Net;L__self__net,net,Part"}})

    def argument(self, node):
        if isinstance(node, ast.Name) and node.id in self.counts:
            return {"as_sym_int": {"as_name": node.id}}
        return argument(node)

    def without_gradients(self, number):
        """Puts an operation within torch.no_grad()."""
        node = self.nodes[number]
        inside = {"inputs": [value["arg"] for value in node["inputs"]
                             if "as_tensor" in value["arg"]], "outputs": node["outputs"],
                  "nodes": [node], "sym_int_values": {}, "sym_bool_values": {}}
        names = [value["as_tensor"]["name"] for value in inside["inputs"] + inside["outputs"]]
        inside["tensor_values"] = with_batch({name: self.values[name] for name in names})
        given = [{"as_bool": False}, {"as_graph": {"name": "part", "graph": inside}},
                 *inside["inputs"]]
        self.nodes[number] = {
            "target": "torch.ops.higher_order.wrap_with_set_grad_enabled",
            "inputs": [{"name": "", "arg": value, "kind": 1} for value in given],
            "outputs": node["outputs"], "metadata": node["metadata"]}

    def write(self, path, returns):
        weights, members = {}, {}
        draw = random.Random(1)
        for number, (name, sizes) in enumerate(self.parameters.items()):
            count = 1
            for size in sizes:
                count *= size
            weights[name] = {"path_name": f"weight_{number}", "is_param": True, "use_pickle": False,
                             "tensor_meta": meta(sizes)}
            members[f"data/weights/weight_{number}"] = struct.pack(
                f"<{count}f", *(draw.uniform(-0.7, 0.7) for _ in range(count)))
        inputs = [port(name) for name in self.parameters] + ["x"]
        values = with_batch(self.values)
        specs = [{"parameter": {"arg": {"name": port(name)}, "parameter_name": name}}
                 for name in self.parameters]
        specs.append({"user_input": {"arg": {"as_tensor": {"name": "x"}}}})
        graph = {"inputs": [{"as_tensor": {"name": name}} for name in inputs],
                 "outputs": [{"as_tensor": {"name": name}} for name in returns],
                 "nodes": self.nodes, "tensor_values": values, "sym_int_values": self.counts,
                 "sym_bool_values": {}, "sym_float_values": {}, "custom_obj_values": {},
                 "is_single_tensor_return": False}
        model = {"graph_module": {"graph": graph, "signature": {
            "input_specs": specs, "output_specs": [{"user_output": {"arg": {"as_tensor":
                                                                            {"name": name}}}}
                                                   for name in returns]},
                                  "module_call_graph": []},
                 "opset_version": {"aten": 10}, "range_constraints": {},
                 "schema_version": {"major": 8, "minor": 20}, "torch_version": "2.15.0"}
        members["data/weights/model_weights_config.json"] = json.dumps({"config": weights})
        members["data/constants/model_constants_config.json"] = json.dumps({"config": {}})
        members["models/model.json"] = json.dumps(model)
        members["archive_format"], members["byteorder"] = "pt2", "little"
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(f"net/{name}", data)

    def made(self):
        """All values that operations make, the last one first."""
        return [name for name in self.values if name[:2] != "p_" and name != "x"][::-1]


def step(path, program, words=(), ranks=1, loss="mse"):
    """The loss of a step, and the weights behind it."""
    draw = random.Random(2)
    shapes = {"x": [BATCH, *program.inputs]}
    if loss:  # else the network's first result is one
        last = program.values[program.made()[0]]["sizes"][1:]
        shapes["targets"] = [BATCH, *(size["as_int"] for size in last)]
    data = {}
    for name, shape in shapes.items():
        count = 1
        for size in shape:
            count *= size
        data[name] = ("F32", shape, [draw.uniform(-1, 1) for _ in range(count)])
    tensors.write(f"{path}.safetensors", data)
    recipe = {"name": "net", "model": {"name": "torch", "program": path, "output": "0"},
              "data": {"name": "tensors", "train": f"{path}.safetensors", "shuffle": False},
              "loss": {"name": loss or "model"}, "batch": {"global": BATCH},
              "optimizer": {"name": "sgd", "lr": RATE},
              "trainer": {"max_steps": 1, "log_every_n_steps": 1}, "log": {"tensorboard": False}}
    with open(f"{path}.yaml", "w", encoding="utf-8") as file:
        json.dump(recipe, file)
    run(on_ranks(ranks, [TRIREME, "train", f"{path}.yaml", "--run-dir", f"{path}.run", *words]))
    weights = tensors.read(f"{path}.run/checkpoints/last/model.safetensors")
    return (float(entries(f"{path}.run", "train")[0]["loss"]),
            {name: tensors.numbers(value) for name, value in weights.items()})


def check_equal(name, found, wanted):
    """Compares two steps."""
    (loss, weights), (goal, goals) = found, wanted
    assert abs(loss - goal) <= LIMIT * abs(goal), f"{name}: loss {loss}, not {goal}"
    assert weights.keys() == goals.keys() and weights
    for key, values in weights.items():
        size = max(map(abs, goals[key]))
        error = max(abs(a - b) for a, b in zip(values, goals[key], strict=True))
        assert error <= LIMIT * size, f"{name}: {key} differs by {error / size:.1e}"
