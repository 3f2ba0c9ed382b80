"""Attention forward of PyTorch's own backends, to be run in one go with attention_check time."""
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from triton.testing import do_bench

SHAPES = [(1, 32, 2, 128, 8192), (1, 32, 2, 128, 16384), (1, 32, 8, 128, 8192),
          (8, 32, 8, 128, 1024), (1, 32, 8, 64, 8192)]
BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]


def time_shape(batch, query_heads, kv_heads, dim, length):
    q = torch.randn(batch, query_heads, length, dim, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(batch, kv_heads, length, dim, device="cuda", dtype=torch.bfloat16)
            for _ in range(2))
    flops = 2 * batch * query_heads * length * length * dim
    shape = f"batch {batch} hq {query_heads} hk {kv_heads} d {dim} s {length}"
    for backend in BACKENDS:
        with sdpa_kernel(backend):
            ms = do_bench(lambda: scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True), warmup=20, rep=60, return_mode="median")
        print(f"peer {backend.name} {shape}: {ms:.3f} ms, {flops / ms / 1e9:.0f} TFLOP/s")


torch.manual_seed(0)
for shape in SHAPES:
    time_shape(*shape)
