#!/usr/bin/env python3
"""Writes fp8.jsonl: XXH3-128 of the FP8 values and scales of golden models, by the formulas of slime's
tools/convert_hf_to_fp8.py (amax / 448 in f32 with amax at least 1e-12, IEEE division, clamp, nearest even).

    python3 make_fp8.py        needs numpy, ml_dtypes, xxhash
"""
import json
import os

import ml_dtypes
import numpy as np
import xxhash

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = ["layernorm", "embed", "router", "mlp.gate.", "norm", "lm_head", "eh_proj", "weights_proj", "shared_head.head"]


def read(path):
    raw = open(path, "rb").read()
    size = int.from_bytes(raw[:8], "little")
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        dtype = {"BF16": ml_dtypes.bfloat16, "F32": np.float32, "F16": np.float16}[entry["dtype"]]
        yield name, np.frombuffer(raw[8 + size + begin:8 + size + end], dtype).reshape(entry["shape"])


def quantise(w, scale):
    return np.clip(w / scale, np.float32(-448), np.float32(448)).astype(ml_dtypes.float8_e4m3fn)


def convert(w, strategy, block):
    w = w.astype(np.float32)
    least, most = np.float32(1e-12), np.float32(448)
    if strategy == "tensor":
        scale = np.maximum(np.abs(w).max(), least) / most
        return quantise(w, scale), scale.reshape(1)
    if strategy == "channel":
        scale = np.maximum(np.abs(w).max(axis=1, keepdims=True), least) / most
        return quantise(w, scale), scale
    n, k = (-(-w.shape[i] // block[i]) for i in (0, 1))
    padded = np.zeros((n * block[0], k * block[1]), np.float32)
    padded[:w.shape[0], :w.shape[1]] = w
    tiles = padded.reshape(n, block[0], k, block[1])
    scale = np.maximum(np.abs(tiles).max(axis=(1, 3), keepdims=True), least) / most
    q = quantise(tiles, scale).reshape(padded.shape)[:w.shape[0], :w.shape[1]]
    return np.ascontiguousarray(q), scale.reshape(n, k)


with open(os.path.join(HERE, "fp8.jsonl"), "w") as out:
    for model in ("qwen3_odd", "qwen3_moe_odd", "deepseek_v3_odd"):
        folder = os.path.join(HERE, "..", "models", model)
        for strategy, block in (("block", (128, 128)), ("block", (16, 24)), ("channel", None), ("tensor", None)):
            digest, count = xxhash.xxh3_128(), 0
            for file in sorted(f for f in os.listdir(folder) if f.startswith("model") and f.endswith(".safetensors")):
                for name, w in sorted(read(os.path.join(folder, file))):
                    if not name.endswith(".weight") or w.ndim != 2 or any(piece in name for piece in KEPT):
                        continue
                    q, scale = convert(w, strategy, block)
                    digest.update(name.encode() + q.tobytes() + scale.astype(np.float32).tobytes())
                    count += 1
            out.write(json.dumps({"model": model, "strategy": strategy, "block": block, "tensors": count,
                                  "xxh3_128": digest.hexdigest()}) + "\n")
