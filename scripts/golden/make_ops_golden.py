#!/usr/bin/env python3
"""Writes tests/ops/golden/ops.jsonl: inputs, outputs and gradients of the ops as torch computes them
in float64 (rounded to float32 at the end). One JSON object per line: {"op", "settings", "in", "out"};
a tensor is {"shape", "data"}. Run from the repository's root; needs torch."""
import json
import math

import torch
import torch.nn.functional as F

PATH = "tests/ops/golden/ops.jsonl"
generator = torch.Generator().manual_seed(20)


def random(*shape, scale=1.0, shift=0.0):
    """float32 values held in float64, so that both sides start from the same numbers."""
    x = torch.randn(*shape, generator=generator, dtype=torch.float64) * scale + shift
    return x.float().double().requires_grad_()


def as_json(x):
    data = x.detach().to(torch.float32 if x.is_floating_point() else torch.int32).flatten().tolist()
    return {"shape": list(x.shape), "data": [float(f"{v:.8g}") if isinstance(v, float) else v for v in data]}


def record(op, settings, inputs, outputs):
    return json.dumps({"op": op, "settings": settings,
                       "in": {k: as_json(v) for k, v in inputs.items()},
                       "out": {k: as_json(v) for k, v in outputs.items()}}, separators=(",", ":"))


def gradients(y, dy, inputs):
    """Returns {"dname": gradient} of sum(y * dy)."""
    return {"d" + k: g for k, g in zip(inputs, torch.autograd.grad((y * dy).sum(), list(inputs.values())))}


def linear():
    t = {"x": random(5, 19), "w": random(23, 19), "bias": random(23)}
    y, dy = F.linear(t["x"], t["w"], t["bias"]), random(5, 23)
    return record("matmul", {}, {**t, "dy": dy}, {"y": y, **gradients(y, dy, t)})


def rms_norm():
    t = {"x": random(4, 37), "w": random(37, scale=0.2, shift=1.0)}
    y, dy = F.rms_norm(t["x"], (37,), t["w"], 1e-5), random(4, 37)
    return record("rms_norm", {"eps": 1e-5}, {**t, "dy": dy}, {"y": y, **gradients(y, dy, t)})


def swiglu():
    t = {"gate_up": random(3, 42, scale=2.0)}
    h, dh = F.silu(t["gate_up"][:, :21]) * t["gate_up"][:, 21:], random(3, 21)
    return record("swiglu", {}, {**t, "dh": dh}, {"h": h, **gradients(h, dh, t)})


def attention(lengths, heads, kv_heads, dim):
    total, scale = sum(lengths), 1.0 / math.sqrt(dim)
    t = {"q": random(total, heads, dim), "k": random(total, kv_heads, dim), "v": random(total, kv_heads, dim)}
    parts, begin = [], 0
    for n in lengths:
        q, k, v = (t[name][begin:begin + n].transpose(0, 1)[None] for name in "qkv")
        parts.append(F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)[0].transpose(0, 1))
        begin += n
    out, dout = torch.cat(parts), random(total, heads, dim)
    cu = torch.tensor([0] + lengths).cumsum(0)
    return record("attention", {"scale": scale}, {**t, "dout": dout, "cu_seqlens": cu},
                  {"out": out, **gradients(out, dout, t)})


def log_probs(temperature):
    t = {"logits": random(3, 130, scale=3.0)}
    targets = torch.tensor([0, 129, 64])
    log_p = F.log_softmax(t["logits"] / temperature, -1)
    chosen = log_p.gather(1, targets[:, None])[:, 0]
    entropies = -(log_p.exp() * log_p).sum(-1)
    dlp, dentropy = random(3), random(3)
    (dlogits,) = torch.autograd.grad((chosen * dlp).sum() + (entropies * dentropy).sum(), list(t.values()))
    return record("log_probs", {"temperature": temperature},
                  {**t, "targets": targets, "dlog_probs": dlp, "dentropies": dentropy},
                  {"log_probs": chosen, "entropies": entropies, "dlogits": dlogits})


def adamw():
    p = random(50).detach().clone().requires_grad_()
    start, grads = p.detach().clone(), [random(50).detach() for _ in range(3)]
    optimizer = torch.optim.AdamW([p], lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    for g in grads:
        p.grad = g.clone()
        optimizer.step()
    state = optimizer.state[p]
    return record("adamw", {"lr": 0.01, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1},
                  {"p": start, "gradients": torch.stack(grads)},
                  {"p": p, "exp_avg": state["exp_avg"], "exp_avg_sq": state["exp_avg_sq"]})


def main():
    lines = [linear(), rms_norm(), swiglu(), attention([5, 1, 9], 4, 2, 12), attention([70], 2, 1, 6),
             log_probs(1.0), log_probs(0.7), adamw()]
    with open(PATH, "w", encoding="ascii") as f:
        f.write("\n".join(lines) + "\n")
    print(f"{PATH}: {len(lines)} cases")


if __name__ == "__main__":
    main()
