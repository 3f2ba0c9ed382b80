"""Times the gradient of causal attention by cuDNN through PyTorch. Run it directly after
attention_backward_bench. FLOPs are counted as 2.5 times those of the causal forward."""
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from triton.testing import do_bench

SHAPES = [(1, 32, 2, 128, 8192), (1, 32, 2, 128, 16384), (1, 32, 8, 128, 8192),
          (8, 32, 8, 128, 1024), (1, 16, 8, 64, 8192)]
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


def time_shape(name, batch, query_heads, kv_heads, dim, length):
    def draw(heads):
        x = torch.randn(batch, length, heads, dim, device="cuda", dtype=torch.bfloat16)
        return x.transpose(1, 2).requires_grad_()

    q, k, v = draw(query_heads), draw(kv_heads), draw(kv_heads)
    with sdpa_kernel(BACKENDS[name]):
        out = scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    dout = torch.randn_like(out)
    ms = do_bench(lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True), warmup=20,
                  rep=80, return_mode="median")
    flops = 2.5 * 2 * batch * query_heads * length * length * dim
    print(f"peer {name} hq {query_heads} hk {kv_heads} d {dim}, {batch} x {length}: "
          f"{ms * 1e3:.1f} us, {flops / ms / 1e9:.0f} TFLOP/s", flush=True)


torch.manual_seed(0)
for backend in sys.argv[1:] or ["cudnn"]:
    for shape in SHAPES:
        time_shape(backend, *shape)
