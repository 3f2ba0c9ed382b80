"""torch.nn.functional.linear on the shapes of gemm_bench, timed in the same way: graph replays over
weights that together exceed L2.

    python3 bench/peers/gemm.py M N K [M N K ...]
"""
import sys

import torch


def capture(x, weights):
    graph = torch.cuda.CUDAGraph()
    torch.nn.functional.linear(x, weights[0])
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for w in weights:
            torch.nn.functional.linear(x, w)
    return graph


def measure(graph, products, target_us):
    def time(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(repeats):
            graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3 / (repeats * products)

    first = time(2)
    return time(min(400, max(2, int(target_us / (first * products)))))


def main():
    torch.manual_seed(0)
    numbers = [int(a) for a in sys.argv[1:]]
    for m, n, k in zip(*[iter(numbers)] * 3):
        copies = min(32, max(2, (300 << 20) // (n * k * 2) + 1))
        x = torch.randn(m, k, device="cuda").bfloat16()
        weights = [0.02 * torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
        graph = capture(x, weights)
        times = sorted(measure(graph, copies, 40e3 if m > 1024 else 4e3) for _ in range(5))
        us = times[2]
        print(f"torch {m} {n} {k} {us:9.2f} us {2 * m * n * k / us * 1e-6:6.1f} TFLOP/s "
              f"{n * k * 2 / us * 1e-3:6.0f} GB/s of weights", flush=True)
        del graph, weights, x


main()
