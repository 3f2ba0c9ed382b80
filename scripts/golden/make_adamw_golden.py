#!/usr/bin/env python3
"""Writes tests/train/optimizer_test.jsonl: results of torch.optim.AdamW on a golden checkpoint, in four steps
of synthetic gradients. One line per tensor: the 2-norm and the first elements of the weight after every step.

    make_adamw_golden.py --model tests/golden/models/llama3_scaled_tied_biased --out tests/train/optimizer_test.jsonl

Needs torch and safetensors. Gradient of element i of the tensor, step k: ((7919 i + 104729 k + 13 c) mod 2001 - 1000) /
1000, where c is the sum of the bytes of the tensor's name; times 1e-4 in the third step, so that it is not clipped.
"""
import argparse, json, pathlib
import torch
from safetensors.torch import load_file

LR, DECAY, BETAS, EPS, CLIP, STEPS = [0.01, 0.02, 0.005, 0.01], 0.1, (0.9, 0.98), 1e-8, 1.0, 4


def gradient(name, p, k):
    i = torch.arange(p.numel(), dtype=torch.int64)
    g = ((7919 * i + 104729 * k + 13 * sum(name.encode())) % 2001 - 1000).double() / 1000
    return (g.float() * (1e-4 if k == 2 else 1.0)).reshape(p.shape)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--out", required=True, type=pathlib.Path)
    args = parser.parse_args()
    tensors = load_file(args.model / "model.safetensors")
    parameters = {name: torch.nn.Parameter(t.double()) for name, t in sorted(tensors.items())}
    groups = [{"params": [p for p in parameters.values() if p.dim() > 1], "weight_decay": DECAY},
              {"params": [p for p in parameters.values() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1, betas=BETAS, eps=EPS)
    lines = {name: {"tensor": name, "norm": [], "first": []} for name in parameters}
    norms = []
    for k in range(STEPS):
        for name, p in parameters.items():
            p.grad = gradient(name, p, k).double()
        norms.append(float(torch.nn.utils.clip_grad_norm_(list(parameters.values()), CLIP)))
        for group in optimizer.param_groups:
            group["lr"] = LR[k]
        optimizer.step()
        for name, p in parameters.items():
            lines[name]["norm"].append(float(p.detach().norm()))
            lines[name]["first"].append([float(x) for x in p.detach().flatten()[:3]])
    with open(args.out, "w") as out:
        out.write(json.dumps({"gradient_norms": norms}) + "\n")
        for line in lines.values():
            out.write(json.dumps(line) + "\n")


main()
