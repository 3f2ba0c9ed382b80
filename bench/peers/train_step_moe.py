"""Train steps of mixture-of-experts models by Hugging Face transformers, one GPU: forward and
backward of one packed sequence, experts by grouped_mm. The peer of model_bench train.

    train_step_moe.py TOKENS CONFIG_FOLDER ...     folders with a config.json, with the layers to time
"""
import os
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM

HEAD_ROWS = 2048  # rows of f32 logits at a time


def spread_tokens(model, config):
    """Initialises as model_bench does: tokens stay different from layer to layer, so that routers do not send all to a few experts."""
    with torch.no_grad():
        if not config.tie_word_embeddings:
            model.model.embed_tokens.weight.normal_()
        for name, p in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj", "down_proj.weight")):
                p.div_((2 * config.num_hidden_layers) ** 0.5)


def time_step(folder, tokens, compiles, recomputes):
    config = AutoConfig.from_pretrained(folder)
    config.use_cache = False
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16, attn_implementation="sdpa", experts_implementation="grouped_mm")
    spread_tokens(model, config)
    if recomputes:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    if compiles:
        for layer in model.model.layers:
            layer.compile()
    ids = torch.randint(config.vocab_size, (1, tokens), device="cuda")

    def step():
        hidden = model.model(input_ids=ids).last_hidden_state[0]
        loss = 0
        for begin in range(0, tokens, HEAD_ROWS):
            logits = model.lm_head(hidden[begin:begin + HEAD_ROWS]).float()
            loss = loss + torch.nn.functional.cross_entropy(
                logits, ids[0, begin:begin + HEAD_ROWS], reduction="sum")
        (loss / tokens).backward()
        torch.nn.utils.get_total_norm(p.grad for p in model.parameters() if p.grad is not None)
        model.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    start = time.time()
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    seconds = (time.time() - start) / 5
    memory = torch.cuda.max_memory_allocated() / 2**30
    print(f"transformers {os.path.basename(folder)} T={tokens} compile={compiles} recompute={recomputes}: "
          f"{seconds * 1e3:.1f} ms, {tokens / seconds:.0f} tokens/s, {memory:.0f} GiB", flush=True)


def main():
    tokens = int(sys.argv[1])
    for folder in sys.argv[2:]:
        for compiles in (False, True):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            try:
                time_step(folder, tokens, compiles, False)
            except Exception as error:  # a peer that fails is a result too
                print(f"transformers {os.path.basename(folder)} compile={compiles}: {str(error)[:300]}", flush=True)


main()
