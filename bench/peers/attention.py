"""Times the attention forward of PyTorch's own backends, long enough to reach the power limit. Run it directly after attention_bench."""
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

SHAPES = [(1, 32, 2, 128, 8192), (1, 32, 2, 128, 16384), (1, 32, 8, 128, 8192),
          (8, 32, 8, 128, 1024), (4, 32, 8, 128, 2048), (16, 32, 8, 128, 512), (1, 32, 8, 64, 8192)]
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def median_ms(work):
    """Median of five runs of 0.2 s without pause, as in attention_bench."""
    def run(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            work()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) / repeats
    run(3)
    repeats = max(1, round(200 / run(3)))
    run(repeats)
    return sorted(run(repeats) for _ in range(5))[2]


def time_shape(batch, query_heads, kv_heads, dim, length):
    q = torch.randn(batch, query_heads, length, dim, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(batch, kv_heads, length, dim, device="cuda", dtype=torch.bfloat16)
            for _ in range(2))
    flops = 2 * batch * query_heads * length * length * dim
    shape = f"batch {batch} hq {query_heads} hk {kv_heads} d {dim} s {length}"
    for backend in (BACKENDS[name] for name in sys.argv[1:] or BACKENDS):
        with sdpa_kernel(backend):
            ms = median_ms(lambda: scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))
        print(f"peer {backend.name} {shape}: {ms:.3f} ms, {flops / ms / 1e9:.0f} TFLOP/s")


torch.manual_seed(0)
for shape in SHAPES:
    time_shape(*shape)
