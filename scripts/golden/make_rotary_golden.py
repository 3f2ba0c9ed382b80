#!/usr/bin/env python3
"""Writes tests/model/rotary_frequencies.jsonl: the inverse frequencies that transformers computes in float32.

    make_rotary_golden.py --out tests/model/rotary_frequencies.jsonl

Needs torch and transformers >= 5.
"""
import argparse, json
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

LLAMA3 = dict(rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0)
CASES = [(16, dict(rope_type="default", rope_theta=500.0)), (128, dict(rope_type="default", rope_theta=1e4)),
         (128, dict(rope_type="default", rope_theta=1e6)), (10, dict(rope_type="linear", rope_theta=3e2, factor=3.0)),
         (128, dict(LLAMA3, rope_theta=5e5, factor=8.0, original_max_position_embeddings=8192)),
         (64, dict(LLAMA3, rope_theta=5e5, factor=32.0, original_max_position_embeddings=8192)),
         (22, dict(LLAMA3, rope_theta=1e2, factor=3.0, original_max_position_embeddings=64))]

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    with open(parser.parse_args().out, "w") as out:
        for dim, rope in CASES:
            config = LlamaConfig(hidden_size=dim, num_attention_heads=1, head_dim=dim, rope_parameters=dict(rope))
            frequencies = LlamaRotaryEmbedding(config).inv_freq.tolist()
            out.write(json.dumps(dict(head_dim=dim, rope=rope, frequencies=frequencies)) + "\n")
