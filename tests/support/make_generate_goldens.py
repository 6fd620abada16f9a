#!/usr/bin/env python3
"""Makes tiny random models with their tokenizer, and what Hugging Face's generate makes of prompts.

usage: make_generate_goldens.py [FOLDER ...]   needs PyTorch, transformers and tokenizers; writes
                                               goldens/FOLDER/ beside this script
"""
import json
import os
import sys

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

GOLDENS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens")
PROMPTS = ["Once upon a time", "a", "The oars of a trireme, three by three: 170 of them.", "été"]
NEW = 24


MODELS = {
    "generate": lambda tokens: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=tokens, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
        initializer_range=0.4, bos_token_id=0, eos_token_id=1, rope_theta=500.0)),
    "generate-gpt2": lambda tokens: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=tokens, n_positions=128, n_embd=16, n_layer=2, n_head=4,
        initializer_range=0.4, bos_token_id=0, eos_token_id=1)),
}


def make_tokenizer(folder):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "</s>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(PROMPTS * 3 + ["rowing over the sea, time upon time"], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    return tokenizer


def make(name):
    folder = os.path.join(GOLDENS, name)
    os.makedirs(folder, exist_ok=True)
    tokenizer = make_tokenizer(folder)
    torch.manual_seed(1)
    model = MODELS[name](tokenizer.get_vocab_size()).eval()
    model.generation_config.eos_token_id = None

    def generate(ids, penalty, ends):
        # Without a mask, the begin mark would count as padding.
        out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)),
                             max_new_tokens=NEW, do_sample=False, repetition_penalty=penalty,
                             eos_token_id=ends, pad_token_id=0)
        return out[0, len(ids):].tolist()

    # Tokens that the model makes often, so that some texts end early.
    prompts = [tokenizer.encode(prompt).ids for prompt in PROMPTS]
    free = [generate(ids, 1.0, None) for ids in prompts]
    ends = [free[0][9], 1]
    texts = []
    for prompt, ids in zip(PROMPTS, prompts):
        for penalty in 1.0, 1.5:
            new = generate(ids, penalty, ends)
            shown = new[:-1] if new[-1] in ends else new
            texts.append({"prompt": prompt, "repetition_penalty": penalty, "prompt_ids": ids,
                          "ids": new, "text": tokenizer.decode(shown, skip_special_tokens=False)})
    model.config.eos_token_id = ends
    model.config.save_pretrained(folder)
    model.save_pretrained(folder)
    config_file = os.path.join(folder, "config.json")
    with open(config_file, encoding="utf-8") as file:
        written = json.load(file)
    written["eos_token_id"] = ends
    with open(config_file, "w", encoding="utf-8") as file:
        json.dump(written, file, indent=1)
    with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(texts, file, indent=0)
    name = os.path.join(folder, "generation_config.json")
    if os.path.exists(name):
        os.remove(name)


if __name__ == "__main__":
    for model_name in sys.argv[1:] or MODELS:
        make(model_name)
