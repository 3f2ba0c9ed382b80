"""The LM head with log-softmax and gather as usually written in torch, on the shapes of lm_head_bench.

    python3 bench/peers/lm_head.py ROWS VOCABULARY K [ROWS VOCABULARY K ...]
"""
import sys

import torch


def time(function):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(2):
        function()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3 / 2


def main():
    torch.manual_seed(0)
    numbers = [int(a) for a in sys.argv[1:]]
    for rows, vocabulary, k in zip(*[iter(numbers)] * 3):
        hidden = torch.randn(rows, k, device="cuda").bfloat16()
        w = 0.02 * torch.randn(vocabulary, k, device="cuda", dtype=torch.bfloat16)
        targets = torch.randint(vocabulary, (rows, 1), device="cuda")

        def product():
            return torch.nn.functional.linear(hidden, w)

        def log_probs():
            return torch.log_softmax(product().float(), -1).gather(1, targets)

        kinds = {"linear": product, "linear, float, log_softmax, gather": log_probs}
        times = {name: [] for name in kinds}
        for turn in range(6):
            for name, function in kinds.items():
                us = time(function)
                if turn > 0:
                    times[name].append(us)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        log_probs()
        scratch = (torch.cuda.max_memory_allocated() - before) / 2**20
        for name in kinds:
            us = sorted(times[name])[2]
            print(f"torch {rows} {vocabulary} {k} {name}: {us:9.1f} us "
                  f"{2 * rows * vocabulary * k / us * 1e-6:6.1f} TFLOP/s", flush=True)
        print(f"torch {rows} {vocabulary} {k} scratch {scratch:.0f} MiB", flush=True)
        del hidden, w, targets


main()
