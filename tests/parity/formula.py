"""What the parity tests (Trireme against PyTorch) and make_goldens.py share, in plain Python: data
sets and initial weights from a formula, safetensors files, and sketches, which are summaries of
tensors that are small enough to commit.

Data and weights are not stored but computed: element i of the tensor NAME is a hash of (NAME, i).
A golden is the expected result of one model with one optimizer: PyTorch's, in double precision.
"""
import fnmatch
import array
import json
import math
import struct

MASK = (1 << 64) - 1
SKETCH_SIZE = 256

BATCH = {"mnist-cnn": 16, "mnist-convnet": 20, "autoencoder": 16, "denoise-cnn": 4, "mlp-jax": 16,
         "llama-tiny": 4, "llama-small": 6, "llama-tied": 6}
STEPS_PER_EPOCH = 5
STEPS = 10
LEFT_OVER = 3  # samples beyond full batches, which data.drop_last leaves out

# Optimizers and their options, under the names that both Trireme's recipes and PyTorch's
# constructors use.
OPTIMIZERS = {
    "sgd": {"name": "sgd", "lr": 0.01, "momentum": 0.9},
    "nesterov": {"name": "sgd", "lr": 0.01, "momentum": 0.9, "nesterov": True,
                 "weight_decay": 5e-4},
    "adam": {"name": "adam", "lr": 1e-3, "weight_decay": 1e-3},
    "adamw": {"name": "adamw", "lr": 1e-3, "betas": [0.9, 0.95], "weight_decay": 0.1},
    "adadelta": {"name": "adadelta", "lr": 1.0},
    "groups": {"name": "adamw", "lr": 2.5e-4, "betas": [0.9, 0.95], "weight_decay": 0.1, "groups": [
        {"match": ["fc2.b*", "layer1.1.*", "*.v_proj.*", "*.2.weight"], "frozen": True},
        {"match": ["*.bias", "*norm*"], "weight_decay": 0},
        {"match": ["*fc*.weight", "encoder*", "*.up_proj.*", "*embed*"], "lr_factor": 4}]},
}
# The optimizers of those models that are not run with all of them.
USUAL = tuple(name for name in OPTIMIZERS if name != "groups")
CHOICE = {"llama-tiny": ("adamw",), "llama-small": ("adamw", "sgd"),
          "llama-tied": ("adamw", "groups"), "mnist-cnn": USUAL, "denoise-cnn": USUAL}

# Runs that average their weights: the options of the recipe's section `average`.
AVERAGES = [
    {"model": "llama-tied", "optimizer": "groups",
     "average": {"name": "ema", "decay": 0.7, "every_n_steps": 1, "start_step": 0}},
    {"model": "mlp-jax", "optimizer": "adam",
     "average": {"name": "ema", "decay": 0.9, "every_n_steps": 2, "start_step": 2}},
    {"model": "mnist-convnet", "optimizer": "sgd",
     "average": {"name": "swa", "start": 0.3, "lr": 0.003}},
    {"model": "autoencoder", "optimizer": "adadelta", "average": {"name": "swa", "start": 0.55}},
]


def group_of(name, options):
    """The settings of a parameter: those of the first group of the optimizer that matches."""
    groups = [g for g in options.get("groups", ())
              if any(fnmatch.fnmatchcase(name, pattern) for pattern in g["match"])]
    return {"lr_factor": 1, "weight_decay": options.get("weight_decay", 0), "frozen": False,
            **(groups[0] if groups else {})}


# TOKENS: the number of tokens in a sample. LLAMA: the models' sizes, under their names in Hugging
# Face's config.json. llama-tiny has the sizes of the recipe of that name. In llama-small all heads
# share one key and value, and there are biases. In llama-tied the embedding's table is also the
# weight of the last layer.
TOKENS = {"llama-tiny": 129, "llama-small": 37, "llama-tied": 24}
SMALL = {"vocab_size": 70, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2,
         "num_attention_heads": 3, "num_key_value_heads": 1, "rms_norm_eps": 1e-3,
         "rope_theta": 100, "tie_word_embeddings": False, "attention_bias": True}
LLAMA = {
    "llama-tiny": {"vocab_size": 256, "hidden_size": 128, "intermediate_size": 384,
                   "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2,
                   "rms_norm_eps": 1e-5, "rope_theta": 10000, "tie_word_embeddings": False,
                   "attention_bias": False},
    "llama-small": SMALL,
    "llama-tied": {**SMALL, "num_key_value_heads": 3, "tie_word_embeddings": True,
                   "attention_bias": False},
}


def conv(name, channels_in, channels_out, kernel):
    fan_in = channels_in * kernel * kernel
    bound = 1 / math.sqrt(fan_in)
    return [(f"{name}.weight", (channels_out, channels_in, kernel, kernel), bound),
            (f"{name}.bias", (channels_out,), bound)]


def linear(name, features_in, features_out):
    bound = 1 / math.sqrt(features_in)
    return [(f"{name}.weight", (features_out, features_in), bound),
            (f"{name}.bias", (features_out,), bound)]


def batch_norm(name, channels):
    """The tensors of a batch norm. Its weights are spread around 1 and not all 1, so that a layer
    that ignored them would give other results."""
    return [(f"{name}.weight", (channels,), "one"), (f"{name}.bias", (channels,), 0.1),
            (f"{name}.running_mean", (channels,), 0.1), (f"{name}.running_var", (channels,), "one"),
            (f"{name}.num_batches_tracked", (), "count")]


def llama(config):
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    queries = hidden
    keys = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    biased = 2 if config["attention_bias"] else 1  # how many rows of linear(): weight, bias
    rows = [("model.embed_tokens.weight", (config["vocab_size"], hidden), 0.3)]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        rows += linear(f"{layer}.self_attn.q_proj", hidden, queries)[:biased]
        rows += linear(f"{layer}.self_attn.k_proj", hidden, keys)[:biased]
        rows += linear(f"{layer}.self_attn.v_proj", hidden, keys)[:biased]
        rows += linear(f"{layer}.self_attn.o_proj", queries, hidden)[:biased]
        rows += linear(f"{layer}.mlp.gate_proj", hidden, inner)[:1]
        rows += linear(f"{layer}.mlp.up_proj", hidden, inner)[:1]
        rows += linear(f"{layer}.mlp.down_proj", inner, hidden)[:1]
        rows += [(f"{layer}.{norm}.weight", (hidden,), "one")
                 for norm in ("input_layernorm", "post_attention_layernorm")]
    rows.append(("model.norm.weight", (hidden,), "one"))
    if not config["tie_word_embeddings"]:
        rows += linear("lm_head", hidden, config["vocab_size"])[:1]
    return rows


# By model: the name and shape of each tensor, and how its initial values are drawn. A number: from
# a uniform distribution between minus and plus this number; "one": between 0.5 and 1.5; "count":
# the tensor is a counter.
PARAMETERS = {
    "mnist-cnn": conv("conv1", 1, 32, 3) + conv("conv2", 32, 64, 3)
    + linear("fc1", 9216, 128) + linear("fc2", 128, 10),
    "mnist-convnet": conv("layer1.0", 1, 16, 5) + batch_norm("layer1.1", 16)
    + conv("layer2.0", 16, 32, 5) + batch_norm("layer2.1", 32) + linear("fc", 1568, 10),
    "autoencoder": linear("encoder.0", 784, 64) + linear("encoder.2", 64, 3)
    + linear("decoder.0", 3, 64) + linear("decoder.2", 64, 784),
    "denoise-cnn": conv("conv_in.0", 1, 64, 3) + conv("conv_hidden.0.0", 64, 64, 3)
    + conv("conv_hidden.1.0", 64, 64, 3) + conv("conv_hidden.2.0", 64, 64, 3)
    + conv("conv_out.0", 64, 1, 3),
    "mlp-jax": linear("fc1", 784, 512) + linear("fc2", 512, 512) + linear("fc3", 512, 10),
    **{name: llama(config) for name, config in LLAMA.items()},
}

# Tensors whose gradient is only rounding noise, or that depend on such tensors. A bias in front of
# batch norm has no other gradient, so it should not move, except by weight decay. But optimizers
# that divide by the gradient's own size make large steps of the noise, and the running mean of the
# batch norm follows the bias.
NOISE_ONLY = {"mnist-convnet": ("layer1.0.bias", "layer2.0.bias", "layer1.1.running_mean",
                                "layer2.1.running_mean")}


def splitmix(x):
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def key_of(name):
    """A hash of the name: FNV-1a, 64 bits."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    return h


def uniform(name, count):
    """`count` numbers in [0, 1), multiples of 2^-24, so exact in single precision."""
    key = key_of(name)
    return [(splitmix(key + i) >> 40) * 2.0 ** -24 for i in range(count)]


def floats(values):
    return array.array("f", values)  # rounds to nearest


def initial_weights(model):
    """The model's initial tensors in its order, as a map from name to (dtype, shape, values)."""
    weights = {}
    for name, shape, bound in PARAMETERS[model]:
        count = math.prod(shape)
        if bound == "count":
            weights[name] = ("I64", shape, array.array("q", [3]))
        elif bound == "one":
            weights[name] = ("F32", shape, floats(0.5 + u for u in uniform(name, count)))
        else:
            drawn = uniform(f"{model}/{name}", count)
            weights[name] = ("F32", shape, floats((2 * u - 1) * bound for u in drawn))
    return weights


def samples(model):
    return STEPS_PER_EPOCH * BATCH[model] + LEFT_OVER


def text(count, vocabulary):
    """Token ids. Three of four tokens follow from the token before them by a rule; the others are
    random."""
    ids = [0]
    for i in range(1, count):
        drawn = splitmix(key_of("text") + i)
        ids.append(drawn // 4 % vocabulary if drawn % 4 == 0 else (5 * ids[-1] + 3) % vocabulary)
    return array.array("q", ids)


def data_set(model):
    """The tensors of the model's data set by name, as in initial_weights. An image is the sum of
    its class's pattern and of noise, which are equally large; its pixels are in [-1, 1)."""
    n = samples(model)
    if model in LLAMA:
        shape = (n, TOKENS[model])
        return {"input_ids": ("I64", shape, text(math.prod(shape), LLAMA[model]["vocab_size"]))}
    if model == "denoise-cnn":
        shape, element = (n, 1, 30, 34), 30 * 34  # images not square, sides no powers of two
        clean = uniform("denoise/targets", n * element)
        noise = uniform("denoise/noise", n * element)
        return {"inputs": ("F32", shape, floats(c + 0.5 * (x - 0.5)
                                                for c, x in zip(clean, noise))),
                "targets": ("F32", shape, floats(clean))}
    labels = [splitmix(key_of("labels") + i) % 10 for i in range(n)]
    patterns = uniform("patterns", 10 * 784)
    noise = uniform("noise", n * 784)
    images = floats(patterns[784 * labels[i // 784] + i % 784] + x - 1 for i, x in enumerate(noise))
    return {"images": ("F32", (n, 1, 28, 28), images),
            "labels": ("I64", (n,), array.array("q", labels))}


def write_safetensors(path, tensors):
    header, data, offset = {}, [], 0
    for name, (dtype, shape, values) in tensors.items():
        raw = values.tobytes()
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [offset, offset + len(raw)]}
        data.append(raw)
        offset += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))


def read_safetensors(path):
    with open(path, "rb") as f:
        raw = f.read()
    size, = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = array.array({"F32": "f", "I64": "q"}[entry["dtype"]])
        values.frombytes(raw[8 + size + begin:8 + size + end])
        tensors[name] = (entry["dtype"], tuple(entry["shape"]), values)
    return tensors


_places = {}


def places(count):
    """For each of `count` elements of a sketched tensor: 2 · its bucket, plus 1 if the element is
    subtracted from the bucket."""
    if count not in _places:
        _places[count] = array.array("H", (splitmix(i) >> 55 for i in range(count)))
    return _places[count]


def sketch(values):
    """Maps a tensor linearly to 256 numbers (buckets), so that distances are kept: each element is
    added to, or subtracted from, one bucket chosen by a hash of its index ("CountSketch": Charikar,
    Chen, Farach-Colton 2002). The squared norm of the difference of two sketches estimates that of
    the difference of the tensors, without bias and with a relative standard deviation of
    sqrt(2 / 256). The sketch of a tensor of at most 256 elements is the tensor itself.
    """
    if len(values) <= SKETCH_SIZE:
        return [float(v) for v in values]
    buckets = [0.0] * (2 * SKETCH_SIZE)
    for place, value in zip(places(len(values)), values):
        buckets[place] += value
    return [plus - minus for plus, minus in zip(buckets[::2], buckets[1::2])]


def norm(values):
    return math.sqrt(math.fsum(v * v for v in values))


def error(values, golden):
    """Estimates ||values - tensor||, where `golden` holds the sketch of the tensor."""
    return norm([a - b for a, b in zip(sketch(values), golden["sketch"])])


# Two correct programs differ by rounding. A result may differ from the golden by this many times
# the difference ("rounding") between PyTorch's own single and double precision.
TIMES_ROUNDING = 10
# A golden with larger limits than these is refused. A tensor's limit is a fraction of how far the
# tensor moved in training; a loss's limit is a fraction of the loss. The latter may be loose,
# because errors show more clearly in the tensors.
MAX_TENSOR_LIMIT = 0.1
MAX_LOSS_LIMIT = 1e-3


def tensor_limit(golden, name):
    """How far from the golden's a tensor may be: TIMES_ROUNDING times the tensor's own rounding or
    the distance that it moved times the model's largest relative rounding, whichever is larger. The
    second is needed because rounding may turn a unit (such as a ReLU) on or off, and it is chance
    which tensors this moves."""
    entry = golden["tensors"][name]
    return TIMES_ROUNDING * max(entry["rounding"], entry["moved"] * golden["rounding"]["tensors"])


def loss_limit(rounding):
    """How far each loss may be from the golden's, as a fraction of the loss."""
    return TIMES_ROUNDING * max(rounding, 2.0 ** -23)
