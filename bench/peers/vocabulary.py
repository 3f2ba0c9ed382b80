"""Peers of the vocabulary kernels in PyTorch: microseconds, and GB/s for the bytes that must move.

vocabulary.py          [1024, 151936] f32 passes, sampling of 1 to 1024 rows, on one device
"""

import torch

ROWS, COLUMNS = 1024, 151936


def measure(function, calls):
    """Microseconds of one call, median of five graph replays of `calls` of them."""
    for i in range(min(3, calls)):
        function(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            function(i)
    times = []
    for _ in range(6):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / calls)
    return sorted(times[1:])[2]


def report(name, us, elements, element_bytes):
    print(f"{name:44s} {us:9.2f} us {elements * element_bytes / us * 1e-3:6.0f} GB/s", flush=True)


def log_prob_and_entropy(z, targets):
    log_p = torch.log_softmax(z, -1)
    return log_p.gather(1, targets)[:, 0], -(log_p.exp() * log_p).sum(-1)


def gradient(z, lse, dlp):
    return (-dlp[:, None] * torch.exp(z - lse[:, None])).to(torch.bfloat16)


def draw(z):
    # An exponential race, the method of torch.multinomial for one sample, but without its wait for the host.
    p = torch.softmax(z, -1)
    return (p / torch.empty_like(p).exponential_()).argmax(-1)


def draw_top_p(z):
    ordered, ids = z.sort(descending=True)
    p = torch.softmax(ordered, -1)
    p = torch.where(p.cumsum(-1) - p >= 0.95, 0.0, p)
    return ids.gather(1, (p / torch.empty_like(p).exponential_()).argmax(-1, keepdim=True))


def main():
    torch.manual_seed(0)
    z = torch.randn(ROWS, COLUMNS, device="cuda") * 2.5
    targets = torch.zeros(ROWS, 1, dtype=torch.int64, device="cuda")
    lse, dlp = torch.logsumexp(z, -1), torch.ones(ROWS, device="cuda")
    n = ROWS * COLUMNS
    out = torch.empty_like(z)
    report("torch copy", measure(lambda i: out.copy_(z), 4), n, 8)
    del out
    report("torch logsumexp", measure(lambda i: torch.logsumexp(z, -1), 4), n, 4)
    report("torch log_softmax", measure(lambda i: torch.log_softmax(z, -1), 4), n, 8)
    compiled = [
        ("logsumexp", lambda i, f=torch.compile(lambda z: torch.logsumexp(z, -1)): f(z), 4),
        ("log_prob and entropy", lambda i, f=torch.compile(log_prob_and_entropy): f(z, targets), 4),
        ("gradient", lambda i, f=torch.compile(gradient): f(z, lse, dlp), 6),
    ]
    for name, function, element_bytes in compiled:
        report(f"torch.compile {name}", measure(function, 4), n, element_bytes)
    for rows in (1, 8, 64, 256, 1024):
        parts = z.split(rows)
        calls = min(16, len(parts))
        for name, function in (("argmax", lambda z: z.argmax(-1)), ("sample", draw)):
            us = measure(lambda i: function(parts[i]), calls)
            report(f"torch {name} {rows}", us, rows * COLUMNS, 4)
        if rows <= 256:
            us = measure(lambda i: draw_top_p(parts[i]), min(4, calls))
            report(f"torch sample top_p 0.95 {rows}", us, rows * COLUMNS, 4)


if __name__ == "__main__":
    main()
