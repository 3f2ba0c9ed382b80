"""Compares torch with rows_bench and optimizer_bench: the same work, through torch.compile unless it
is one torch kernel, timed by graph replays over operands that exceed L2.

    rows_bench > ours.txt; optimizer_bench >> ours.txt; python3 bench/peers/rows.py ours.txt
"""
import re
import sys

import torch
import torch.nn.functional as F

torch.manual_seed(0)
EPS = 1e-6


def noise(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)


def measure(work, copies, launches, target_us=1e4):
    for c in range(min(copies, 2)):
        work(c)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            work(i % copies)

    def time(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3 / (repeats * launches)

    repeats = min(400, max(1, int(target_us / (time(2) * launches))))
    return sorted(time(repeats) for _ in range(5))[2]


def copies_of(n, bytes_per):
    if n * bytes_per < 40 << 20:
        return 2
    return min(64, max(2, (300 << 20) // (n * bytes_per) + 1))


def norm(x, w):
    return F.rms_norm(x, (x.shape[-1],), w, EPS)


@torch.compile(dynamic=False)
def fused_norm(x, w):
    return norm(x, w)


@torch.compile(dynamic=False)
def add_norm(x, branch, w):
    s = x + branch
    return s, norm(s, w)


@torch.compile(dynamic=False)
def swiglu(gate_up):
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


@torch.compile(dynamic=False)
def swiglu_backward(dh, gate_up):
    gate, up = gate_up.float().chunk(2, -1)
    s = torch.sigmoid(gate)
    dh = dh.float()
    return torch.cat([dh * up * s * (1 + gate * (1 - s)), dh * gate * s], -1).bfloat16()


@torch.compile(dynamic=False)
def norm_backward(dy, x, w):
    xf, g = x.float(), dy.float() * w.float()
    r = torch.rsqrt(xf.square().mean(-1, keepdim=True) + EPS)
    n = xf * r
    return (r * (g - n * (g * n).mean(-1, keepdim=True))).bfloat16(), (dy.float() * n).sum(0)


@torch.compile(dynamic=False)
def heads(qkv, qw, kw, cos, sin):
    q, k, v = qkv.split([32, 8, 8], 1)

    def turn(x, w):
        x = norm(x, w).float()
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1).bfloat16()

    return torch.cat([turn(q, qw), turn(k, kw), v], 1)


def peer(name, rows, width):
    n = rows * width
    launches = 200 if rows < 1000 else 8
    if name in ("rms_norm", "add_rms_norm", "rms_norm_backward"):
        copies = copies_of(n, 4)
        x, y, w = noise(copies, rows, width), noise(copies, rows, width), noise(width)
        if name == "rms_norm":
            return measure(lambda c: fused_norm(x[c], w), copies, launches)
        if name == "add_rms_norm":
            return measure(lambda c: add_norm(x[c], y[c], w), copies, launches)
        return measure(lambda c: norm_backward(y[c], x[c], w), copies, launches)
    if name == "swiglu":
        copies = copies_of(n, 6)
        x = noise(copies, rows, 2 * width)
        return measure(lambda c: swiglu(x[c]), copies, launches)
    if name == "swiglu_backward":
        x, d = noise(2, rows, 2 * width), noise(2, rows, width)
        return measure(lambda c: swiglu_backward(d[c], x[c]), 2, launches)
    if name == "gather_rows":
        table = noise(151936, width)
        index = torch.randint(151936, (rows,), device="cuda")
        return measure(lambda c: F.embedding(index, table), 1, launches)
    if name == "embedding_backward":
        d = noise(rows, width)
        index = (torch.exp(torch.rand(rows, device="cuda") * 11.9).long() * 7919) % 151936
        grad = torch.zeros(151936, width, device="cuda")
        return measure(lambda c: grad.index_add_(0, index, d.float()), 1, launches)
    if name == "column_sums":
        d = noise(4, rows, width)
        return measure(lambda c: d[c].sum(0, dtype=torch.float32), 4, launches)
    if name == "add bf16":
        a, b = noise(3, rows, width), noise(3, rows, width)
        return measure(lambda c: torch.add(a[c], b[c]), 3, launches)
    if name == "convert f32 to bf16":
        a = noise(3, rows, width, dtype=torch.float32)
        return measure(lambda c: a[c].bfloat16(), 3, launches)
    return None


def peer_heads(tokens):
    copies = copies_of(tokens * 48 * 128, 4)
    x = noise(copies, tokens, 48, 128)
    qw, kw = noise(128), noise(128)
    cos, sin = noise(tokens, 1, 64, dtype=torch.float32), noise(tokens, 1, 64, dtype=torch.float32)
    return measure(lambda c: heads(x[c], qw, kw, cos, sin), copies, 8 if tokens > 1000 else 200)


def peer_adamw(n):
    p = torch.zeros(n, device="cuda", requires_grad=True)
    p.grad = torch.ones(n, device="cuda")
    optimizer = torch.optim.AdamW([p], lr=1e-6, fused=True, capturable=True)
    weights = torch.empty(n, device="cuda", dtype=torch.bfloat16)

    def step(_):
        optimizer.step()
        weights.copy_(p.detach())

    return measure(step, 1, 1, 3e4)


def main():
    for line in open(sys.argv[1]):
        found = re.match(r"(.{24}) (\S+) +([\d.]+) us", line)
        if not found:
            continue
        name, shape, ours = found[1].strip(), found[2], float(found[3])
        try:
            if name in ("qk_norm_rotary", "qk_norm_rotary_pages") and "32+2*8" in shape:
                us = peer_heads(int(shape.split("x")[0]))
            elif name == "adamw":
                us = peer_adamw(int(shape))
            elif name == "sum_of_squares":
                x = torch.ones(int(shape), device="cuda")
                us = measure(lambda c: torch.linalg.vector_norm(x), 1, 4)
            elif re.fullmatch(r"\d+x\d+", shape):
                us = peer(name, *map(int, shape.split("x")))
            else:
                us = None
        except torch.OutOfMemoryError:
            us = None
        torch.cuda.empty_cache()
        if us is not None:
            print(f"{name:24} {shape:20} ours {ours:9.2f} us torch {us:9.2f} us, torch / ours {us / ours:.2f}",
                  flush=True)


main()
