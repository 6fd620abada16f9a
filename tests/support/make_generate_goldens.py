#!/usr/bin/env python3
"""Makes a tiny random Llama with its tokenizer, and what Hugging Face's generate makes of prompts.

usage: make_generate_goldens.py        needs PyTorch, transformers and tokenizers; writes
                                       goldens/generate/ beside this script
"""
import json
import os
import sys

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens", "generate")
PROMPTS = ["Once upon a time", "a", "The oars of a trireme, three by three: 170 of them.", "été"]
NEW = 24


def make_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<s>", "</s>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(PROMPTS * 3 + ["rowing over the sea, time upon time"], trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    tokenizer.save(os.path.join(FOLDER, "tokenizer.json"))
    return tokenizer


def main():
    os.makedirs(FOLDER, exist_ok=True)
    tokenizer = make_tokenizer()
    torch.manual_seed(1)
    config = transformers.LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=16, intermediate_size=24,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=128, initializer_range=0.4, bos_token_id=0, eos_token_id=1,
        rope_theta=500.0)
    model = transformers.LlamaForCausalLM(config).eval()
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
    model.config.save_pretrained(FOLDER)
    model.save_pretrained(FOLDER, safe_serialization=True)
    config_file = os.path.join(FOLDER, "config.json")
    with open(config_file, encoding="utf-8") as file:
        written = json.load(file)
    written["eos_token_id"] = ends
    with open(config_file, "w", encoding="utf-8") as file:
        json.dump(written, file, indent=1)
    with open(os.path.join(FOLDER, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(texts, file, indent=0)
    name = os.path.join(FOLDER, "generation_config.json")
    if os.path.exists(name):
        os.remove(name)


if __name__ == "__main__":
    sys.exit(main())
