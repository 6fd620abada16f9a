#!/usr/bin/env python3
"""`trireme generate` continues texts as Hugging Face's generate does (make_generate_goldens.py), on
each device and on several ranks; draws by a seed; is measured; refuses what a model cannot do.

usage: test_generate.py BUILD_FOLDER
"""
import json
import os
import shutil
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from runs import TRIREME, check_all, on_ranks, run  # noqa: E402
import programs  # noqa: E402

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "goldens",
                     "generate")
GPT2 = f"{MODEL}-gpt2"
NEW = "24"


def expected(model):
    with open(f"{model}/expected.json", encoding="utf-8") as file:
        return json.load(file)


EXPECTED = expected(MODEL)


def command(*words, model=MODEL):
    return [TRIREME, "generate", model, "--max-new-tokens", NEW, *words]


def objects(text):
    return [json.loads(line) for line in text.splitlines()]


def check_goldens(folder):
    """Greedy texts, with and without a penalty of repetitions, one by one and several together,
    of other lengths each and with end marks."""
    for model in MODEL, GPT2:
        for text in expected(model):
            words = ["--prompt", text["prompt"], "--repetition-penalty",
                     str(text["repetition_penalty"])]
            found = objects(run(command(*words, "--json", model=model)).stdout)
            assert found == [{key: text[key] for key in ("prompt_ids", "ids", "text")}], found
    plain = [text for text in EXPECTED if text["repetition_penalty"] == 1]
    assert len({len(text["ids"]) for text in plain}) > 1
    assert run(command("--prompt", plain[0]["prompt"])).stdout == plain[0]["text"] + "\n"
    with open(f"{folder}/prompts.txt", "w", encoding="utf-8") as file:
        file.write("".join(text["prompt"] + "\n" for text in plain))
    together = command("--prompt-file", f"{folder}/prompts.txt", "--json")
    modules = os.path.join(os.path.abspath(sys.argv[1]), "lib", "emulated")
    for ranks, words, env in (
            (1, [], None), (1, ["batch.eval=3"], None), (1, ["--device", "far"], None),
            (1, ["--device", "ref"], None),
            (1, ["--device", "cuda"], {**os.environ, "TRIREME_MODULES": modules}),
            (2, ["strategy.mesh.tensor=2"], None),
            (2, ["strategy.mesh.pipeline=2", "batch.micro=1"], None),
            (2, ["strategy.name=fsdp"], None)):
        words = on_ranks(ranks, together + words) if ranks > 1 else together + words
        found = objects(run(words, env=env).stdout)
        assert [text["ids"] for text in found] == [text["ids"] for text in plain], (words, found)


def check_exported(folder):
    """The same models as torch.export wrote them, with tokens alone and without caches."""
    parity = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "parity", "exported")
    with open(f"{folder}/exported.yaml", "w", encoding="utf-8") as file:
        file.write("optimizer: {name: sgd}\nmodel: {name: torch}\ndata: {name: jsonl, "
                   f"train: none, sequence: 8, tokenizer: {MODEL}/tokenizer.json}}\n")

    def of(program, *words):
        return [TRIREME, "generate", f"{folder}/exported.yaml", f"model.program={program}",
                "--checkpoint", program, *words]

    for model in MODEL, GPT2:
        plain = [text for text in expected(model) if text["repetition_penalty"] == 1]
        with open(f"{folder}/prompts.txt", "w", encoding="utf-8") as file:
            file.write("".join(text["prompt"] + "\n" for text in plain))
        words = of(f"{model}/net.pt2", "--max-new-tokens", NEW, "--prompt-file",
                   f"{folder}/prompts.txt", "--json")
        for ranks, more in [(1, []), (1, ["batch.eval=3"]), (2, ["strategy.name=fsdp"]),
                            (2, ["strategy.mesh.pipeline=2", "batch.micro=1"])]:
            found = objects(run(on_ranks(ranks, words + more)).stdout)
            assert found == [{key: text[key] for key in ("prompt_ids", "ids", "text")}
                             for text in plain], found
    for program, count, part in [
            (f"{GPT2}/net.pt2", "300", "at most 128"),
            (f"{parity}/cnn.pt2", "4", "argument 'image'"),
            (f"{parity}/gpt.pt2", "4", "takes more than"),
            (f"{parity}/llama.pt2", "4", "only 40 tokens"),
            (f"{parity}/lstm.pt2", "4", "only 30 tokens")]:
        done = run(of(program, "--max-new-tokens", count, "--prompt", "a"), 2)
        assert part in done.stderr and done.stderr.count("\n") == 1, done.stderr


def check_exported_bytes(folder):
    """A token is a byte for a decoder without a tokenizer that knows 256 of them. What is behind a
    text must not change its scores."""
    layers = {"e": [256, 8], "w": [256, 8]}
    lines = ["y N,12,8 = embedding.default(p_e, x)", "z N,12,256 = linear.default(y, p_w)"]
    mean = ["m N,1,8 = mean.dim(y, [1], True)", "v N,12,8 = add.Tensor(y, m)",
            "z N,12,256 = linear.default(v, p_w)"]
    for name, text in ("bytes", lines), ("mean", lines[:1] + mean):
        program = programs.Program([12], layers, "\n".join(text))
        program.values["x"]["dtype"] = programs.TYPES["i"]
        program.write(f"{folder}/{name}.pt2", ["z"])
    with open(f"{folder}/exported-bytes.yaml", "w", encoding="utf-8") as file:
        file.write("optimizer: {name: sgd}\nmodel: {name: torch}\n"
                   "data: {name: tokens, train: none, sequence: 12}\n")

    def of(name, *words):
        program = f"{folder}/{name}.pt2"
        return [TRIREME, "generate", f"{folder}/exported-bytes.yaml", f"model.program={program}",
                "--checkpoint", program, "--max-new-tokens", "4", *words]

    found = objects(run(of("bytes", "--prompt", "süß", "--json")).stdout)[0]
    assert found["prompt_ids"] == list("süß".encode()) and len(found["ids"]) == 4, found
    for ranks, words in (1, []), (2, ["strategy.name=fsdp"]):
        done = run(on_ranks(ranks, of("mean", "--prompt", "ab", *words)), 2)
        assert "mean.pt2 generates no text: it is not causal" in done.stderr, done.stderr
        assert not done.stdout and (ranks > 1 or done.stderr.count("\n") == 1), done


def make_stored(folder):
    """A model whose matrices are large enough to be mapped, in BF16, in F16, and each of them
    rounded to F32, as folders of Hugging Face's."""
    shutil.copytree(MODEL, f"{folder}/stored")
    os.remove(f"{folder}/stored/model.safetensors")
    with open(f"{folder}/stored/config.json", encoding="utf-8") as file:
        config = json.load(file)
    config.update(hidden_size=128, intermediate_size=256)
    with open(f"{folder}/stored/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    with open(f"{folder}/stored.yaml", "w", encoding="utf-8") as file:
        file.write(f"model: {{config: {folder}/stored/config.json}}\noptimizer: {{name: sgd}}\n"
                   "data: {name: synthetic, shapes: {input_ids: [8], labels: [8]}}\n")
    run([TRIREME, "checkpoint", "init", f"{folder}/stored.yaml", "--out", f"{folder}/start"])
    for dtype in "BF16", "F16":
        for out, source, of in ((dtype, f"{folder}/start", dtype),
                                (f"{dtype}-wide", f"{folder}/{dtype}/model.safetensors", "F32")):
            shutil.copytree(f"{folder}/stored", f"{folder}/{out}")
            run([TRIREME, "checkpoint", "export", source, "--dtype", of, "--out",
                 f"{folder}/{out}/model.safetensors"])


def check_stored(folder):
    """Weights in BF16 or F16 are computed with as they are; asked for F32, as those that a file has
    in F32. A damaged file is refused."""
    make_stored(folder)

    def ids(name, *words, ranks=1, env=None):
        words = [TRIREME, "generate", f"{folder}/{name}", "--prompt", "Once upon a time",
                 "--max-new-tokens", NEW, "--json", *words]
        words = on_ranks(ranks, words) if ranks > 1 else words
        return objects(run(words, env=env).stdout)[0]["ids"]

    for dtype, precision in ("BF16", "bf16-mixed"), ("F16", "16-mixed"):
        found = ids(dtype)
        assert found == ids(f"{dtype}-wide", f"trainer.precision={precision}"), dtype
        wide = ids(f"{dtype}-wide")
        assert wide == ids(dtype, "trainer.precision=32-true"), dtype
    modules = os.path.join(os.path.abspath(sys.argv[1]), "lib", "emulated")
    found = ids("BF16")
    for ranks, words, env in (
            (1, ["--device", "far"], None), (1, ["--device", "ref"], None),
            (1, ["--device", "cuda"], {**os.environ, "TRIREME_MODULES": modules}),
            (1, [], {**os.environ, "TRIREME_CPU_ISA": "avx2"}),
            (2, ["strategy.mesh.tensor=2"], None),
            (2, ["strategy.mesh.pipeline=2", "batch.micro=1"], None),
            (2, ["strategy.name=fsdp"], None)):
        assert ids("BF16", *words, ranks=ranks, env=env) == found, words
    os.truncate(f"{folder}/BF16/model.safetensors",
                os.path.getsize(f"{folder}/BF16/model.safetensors") - 2)
    done = run(command("--prompt", "a", model=f"{folder}/BF16"), 2)
    assert done.stderr.count("\n") == 1 and "model.safetensors" in done.stderr, done.stderr


def check_recipe(folder):
    """A recipe and a file of weights do what the folder does, with the recipe's tokenizer, or the
    one beside the weights; of a config.json with other numbers the recipe is refused."""
    with open(f"{MODEL}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    keys = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
            "num_attention_heads", "num_key_value_heads", "rope_theta", "max_position_embeddings")
    model = ", ".join(f"{key}: {config[key]}" for key in keys)
    with open(f"{folder}/recipe.yaml", "w", encoding="utf-8") as file:
        file.write(f"model: {{name: llama, {model}}}\noptimizer: {{name: sgd}}\n"
                   f"data: {{name: jsonl, train: none.jsonl, sequence: 8, tokenizer: "
                   f"{os.path.abspath(MODEL)}/tokenizer.json}}\n")
    shutil.copy(f"{MODEL}/model.safetensors", f"{folder}/weights.safetensors")
    text = EXPECTED[0]
    words = [TRIREME, "generate", f"{folder}/recipe.yaml", "--prompt", text["prompt"],
             "--max-new-tokens", NEW, "--json", "--checkpoint"]
    found = objects(run([*words, f"{folder}/weights.safetensors"]).stdout)
    # Without config.json beside the weights, a text ends only at the tokenizer's own mark.
    assert found[0]["ids"][:len(text["ids"])] == text["ids"], found
    found = objects(run([*words, MODEL, "data.name=synthetic"]).stdout)
    assert found[0]["ids"] == text["ids"], found
    done = run([*words, MODEL, "model.rope_theta=10000"], 2)
    assert "rope_theta" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def check_bytes(folder):
    """A run's folder; of a model that was trained on bytes, a token is one."""
    with open(f"{folder}/text", "wb") as file:
        file.write("Ein süßes Bäckerstück. ".encode() * 40)
    run([TRIREME, "train", "recipes/llama-tiny.yaml", f"data.path={folder}", "data.train=text",
         "data.test=text", "model.num_hidden_layers=1", "model.hidden_size=16", "data.sequence=32",
         "batch.global=4", "trainer.max_steps=8", "--run-dir", f"{folder}/run"])
    prompt = "süß"
    words = [TRIREME, "generate", f"{folder}/run", "--prompt", prompt, "--max-new-tokens", "40",
             "--temperature", "2"]
    found = objects(run([*words, "--json"]).stdout)[0]
    assert found["prompt_ids"] == list(prompt.encode()), found
    text = bytes(found["ids"]).decode("utf-8", errors="replace")
    assert len(found["ids"]) == 40 and "\ufffd" in text and found["text"] == text, found
    assert run(words).stdout == text + "\n"
    # The character 0 is one too; and a line of Windows ends without its mark.
    with open(f"{folder}/lines.txt", "wb") as file:
        file.write(b"a\r\n" * 20)
    found = objects(run([TRIREME, "generate", f"{folder}/run", "--prompt-file",
                         f"{folder}/lines.txt", "--max-new-tokens", "200", "--temperature",
                         "1e6", "--json"]).stdout)
    assert all(text["prompt_ids"] == [97] for text in found), found
    assert any(0 in text["ids"] for text in found)
    for text in found:
        assert text["text"] == bytes(text["ids"]).decode("utf-8", errors="replace"), text


def check_odd_folders(folder):
    """A Mistral whose window has room for the text, and a model with more tokens than its
    tokenizer, which stand for no text."""
    with open(f"{MODEL}/config.json", encoding="utf-8") as file:
        config = json.load(file)
    with open(f"{MODEL}/tokenizer.json", encoding="utf-8") as file:
        tokens = json.load(file)
    shutil.copytree(MODEL, f"{folder}/odd")
    config.update(model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=128)
    with open(f"{folder}/odd/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    greedy = EXPECTED[0]
    with open(f"{folder}/odd/generation_config.json", "w", encoding="utf-8") as file:
        json.dump({"eos_token_id": None, "temperature": 1.0}, file)
    words = [TRIREME, "generate", f"{folder}/odd", "--prompt", greedy["prompt"], "--json",
             "--max-new-tokens", NEW]
    found = objects(run(words).stdout)[0]
    assert found["ids"] == greedy["ids"], found
    # The marks of generation_config.json hold.
    with open(f"{folder}/odd/generation_config.json", "w", encoding="utf-8") as file:
        json.dump({"eos_token_id": [greedy["ids"][3]]}, file)
    cut = greedy["ids"][:greedy["ids"].index(greedy["ids"][3]) + 1]
    found = objects(run(words).stdout)[0]
    assert found["ids"] == cut or found["ids"] == cut[:-1], (found, cut)
    os.remove(f"{folder}/odd/generation_config.json")
    # Without a mark in config.json, a text does not end at the tokenizer's mark.
    names = {token: text for text, token in tokens["model"]["vocab"].items()}
    config["eos_token_id"] = None
    with open(f"{folder}/odd/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    with open(f"{folder}/odd/tokenizer_config.json", "w", encoding="utf-8") as file:
        json.dump({"eos_token": names[greedy["ids"][3]]}, file)
    found = objects(run(words).stdout)[0]
    whole = greedy["ids"]
    assert len(found["ids"]) == int(NEW) > len(whole) == len(os.path.commonprefix(
        [found["ids"], whole])), found
    os.remove(f"{folder}/odd/tokenizer_config.json")
    last = max(tokens["model"]["vocab"].values())
    tokens["model"]["vocab"] = {text: token for text, token in tokens["model"]["vocab"].items()
                                if token != last}
    tokens["model"]["merges"].pop()
    with open(f"{folder}/odd/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump(tokens, file)
    with open(f"{folder}/many.txt", "w", encoding="utf-8") as file:
        file.write("a\n" * 30)
    found = objects(run([*words[:3], "--prompt-file", f"{folder}/many.txt", "--json",
                         "--max-new-tokens", "100", "--temperature", "1e6"]).stdout)
    assert len(found) == 30 and any(last in text["ids"] for text in found), found


def check_draws(folder):
    """Random texts depend on the seed alone; the likeliest token of one is the greedy one."""
    prompt = ["--prompt", EXPECTED[0]["prompt"], "--json", "--temperature", "1.5"]
    ids = [objects(run(command(*prompt, *words)).stdout)[0]["ids"]
           for words in (["--seed", "1"], ["--seed", "1"], ["--seed", "2"], ["--top-k", "1"],
                         ["--top-p", "1e-9"])]
    assert ids[0] == ids[1] != ids[2], ids
    assert ids[3] == ids[4] == EXPECTED[0]["ids"], ids


def check_bench(folder):
    """`bench generate` needs no tokenizer, and says how fast prompts and tokens are."""
    shutil.copytree(MODEL, f"{folder}/bench", ignore=shutil.ignore_patterns("tokenizer*"))
    words = [TRIREME, "bench", "generate", f"{folder}/bench", "--prompt-tokens", "40",
             "--max-new-tokens", "4", "--texts", "2", "--json"]
    for ranks, more in (1, []), (2, ["strategy.mesh.tensor=2"]):
        found = objects(run(on_ranks(ranks, words + more) if ranks > 1 else words).stdout)[0]
        assert found["ranks"] == ranks and found["prefill_tokens"] == 80, found
        assert found["prefill_tokens_per_s"] > 0 < found["decode_tokens_per_s"], found
        assert abs(found["decode_tokens_per_s"] * found["decode_s"] - 2) < 1e-3, found
        assert found["weights_gb_per_s"] > 0, found
    done = run([*words[:4], "--texts", "0"], 2)
    assert "--texts" in done.stderr and done.stderr.count("\n") == 1, done.stderr


def check_refused(folder):
    """One line says what is wrong."""
    shutil.copytree(MODEL, f"{folder}/model")
    os.remove(f"{folder}/model/tokenizer.json")
    with open(f"{folder}/empty.txt", "w", encoding="utf-8"):
        pass
    os.mkdir(f"{folder}/none.d")
    gpt2 = [f"{folder}/{name}" for name in ("activation_function", "add_cross_attention")]
    for model, value in zip(gpt2, ("swish", True)):
        shutil.copytree(GPT2, model)
        with open(f"{model}/config.json", encoding="utf-8") as file:
            config = {**json.load(file), os.path.basename(model): value}
        with open(f"{model}/config.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
    for words, parts in ((command("--prompt", "a", "--max-new-tokens", "200"),
                          ["--max-new-tokens", "max_position_embeddings", "128"]),
                         (command("--prompt", "a", "--max-new-tokens", "200", model=GPT2),
                          ["--max-new-tokens", "n_positions", "128"]),
                         ([TRIREME, "generate", f"{folder}/nowhere", "--prompt", "a"],
                          [f"{folder}/nowhere", "nowhere"]),
                         (command("--prompt", "a", model=gpt2[0]),
                          ["activation_function", "swish", "gelu_new"]),
                         (command("--prompt", "a", model=gpt2[1]), ["add_cross_attention", "true"]),
                         (command("--prompt", "a", "--top-p", "2"), ["--top-p", "2"]),
                         (command("--prompt", "a", "--top-k", "-1"), ["--top-k", "-1"]),
                         (command(), ["--prompt"]),
                         (command("--prompt-file", f"{folder}/none"), [f"{folder}/none"]),
                         (command("--prompt-file", f"{folder}/empty.txt"), ["empty.txt"]),
                         ([TRIREME, "generate", f"{folder}/none.d", "--prompt", "a"],
                          ["config.json", "recipe.yaml"]),
                         ([TRIREME, "generate", f"{folder}/model", "--prompt", "a"],
                          ["tokenizer.json"]),
                         ([TRIREME, "generate", "recipes/llama-tiny.yaml", "--prompt", "a"],
                          ["--checkpoint"])):
        done = run(words, 2)
        assert done.stderr.count("\n") == 1, done.stderr
        assert all(part in done.stderr for part in parts), (parts, done.stderr)


def main():
    with tempfile.TemporaryDirectory(prefix="trireme-generate-") as folder:
        return check_all([check_goldens, check_exported, check_exported_bytes, check_stored,
                          check_recipe, check_bytes, check_odd_folders, check_draws, check_bench,
                          check_refused], folder)


if __name__ == "__main__":
    sys.exit(main())
