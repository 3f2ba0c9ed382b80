#!/usr/bin/env python3
"""Compares the log-probs of slimexx in FP8 with a model of transformers in float32 that rounds as docs/numerics.md says.

    slimexx eval --hf-checkpoint MODEL --data drift=prompts.jsonl --samples OUT --set numerics.fp8=on reward.rm_type=random
    jq -c '{tokens}' OUT/eval_drift.jsonl > tokens.jsonl
    slimexx score --hf-checkpoint MODEL --input tokens.jsonl --output plain.jsonl
    fp8_drift.py --model MODEL --samples OUT/eval_drift.jsonl --plain plain.jsonl --weights ue8m0

Drift is the mean of |log p(FP8) - log p(plain)| over the response tokens. The base is the oracle with scales of
amax / 448 for its weights. Rounding to FP8 amplifies differences of float32 sums: a sum that is one ulp larger can be
rounded to another e4m3 value. The noise shows by how much: it is the oracle's difference from itself if the embeddings
are one ulp larger, in the first 8 samples.
Prints one row of a Markdown table, and stops with status 1 if slimexx's drift is more than 1.05 of the oracle's or of
the base's, or if slimexx and the oracle differ by more than half of the drift.
Needs torch and transformers >= 5.
"""
import argparse, json, pathlib, sys
import torch, transformers
from torch.nn import functional

FP8_MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "gate_proj",
                "up_proj", "gate_up_proj", "down_proj")
LARGEST = 448
BATCH = 8


def rounded(x, rows, columns, scale_of, divide=False):
    """x [..., N, K] as e4m3 times a scale per block of rows x columns. scale_of(amax) gives scale and factor."""
    n, k = x.shape[-2:]
    blocks = functional.pad(x, (0, -k % columns, 0, -n % rows)).unflatten(-1, (-1, columns)).unflatten(-3, (-1, rows))
    scale, factor = scale_of(blocks.abs().amax((-3, -1), keepdim=True))
    q = blocks / scale if divide else blocks * factor
    q = q.clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn).float()
    return (q * scale).flatten(-2, -1).flatten(-3, -2)[..., :n, :k]


def power_of_two(amax):
    mantissa, exponent = torch.frexp(amax.double() / LARGEST)  # amax / 448 = mantissa 2^exponent, mantissa in [0.5, 1)
    scale = torch.ldexp(torch.ones_like(mantissa), exponent - (mantissa == 0.5).int())
    return torch.where(amax == 0, 1.0, scale).float(), None


def largest_by_448(amax):
    return amax.clamp_min(1e-12) / LARGEST, None


def of_row(amax):
    amax = amax.clamp_min(1e-10)
    return amax / LARGEST, LARGEST / amax


def of_key(amax):
    exact = amax.clamp_min(1e-10) / LARGEST
    nearest = exact.bfloat16().float()
    up = (exact.view(torch.int32) & -0x10000) + 0x10000
    scale = torch.where(nearest >= exact, nearest, up.view(torch.float32))
    return scale, 1 / scale


WEIGHT_SCALES = {"ue8m0": power_of_two, "float": largest_by_448}


class Fp8Linear(torch.overrides.TorchFunctionMode):
    """Rounds the rows that enter a product if its weight is in an FP8 matrix."""

    def __init__(self, storages):
        super().__init__()
        self.storages = storages

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function is functional.linear and args[1].untyped_storage().data_ptr() in self.storages:
            args = (rounded(args[0].flatten(0, -2), 1, 128, of_row).view_as(args[0]), *args[1:])
        return function(*args, **(kwargs or {}))


class Fp8Cache(transformers.DynamicCache):
    """Returns keys and values [batch, heads, tokens, width] as an FP8 cache does; with `latent`, latent rows and keys
    after rotation, which stay as they are."""

    def __init__(self, latent):
        super().__init__()
        self.latent = latent

    def update(self, keys, values, *args, **kwargs):
        keys = rounded(keys, 1, 128 if self.latent else keys.shape[-1], of_key)
        values = values if self.latent else rounded(values, 1, values.shape[-1], of_key)
        return super().update(keys, values, *args, **kwargs)


def load(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
    return model.eval().requires_grad_(False)


def quantise_weights(model, rule):
    """Rounds the FP8 matrices in place and returns their storages."""
    storages = set()
    for name, p in model.named_parameters():
        if not name.removesuffix(".weight").endswith(FP8_MATRICES):
            continue
        stacked = p.dim() == 3 and name.endswith("gate_up_proj")  # two matrices of an expert
        for matrix in (m for expert in (p if p.dim() == 3 else [p]) for m in expert.chunk(2 if stacked else 1)):
            matrix.copy_(rounded(matrix, 128, 128, WEIGHT_SCALES[rule], divide=True))
        storages.add(p.untyped_storage().data_ptr())
    return storages


def response_logprobs(model, samples, storages, fp8_keys):
    found, latent = [], hasattr(model.config, "kv_lora_rank")
    for start in range(0, len(samples), BATCH):
        part = samples[start:start + BATCH]
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(s["tokens"]) for s in part], batch_first=True)
        with Fp8Linear(storages):
            cache = {"past_key_values": Fp8Cache(latent)} if fp8_keys else {}
            logits = model(input_ids=ids, use_cache=fp8_keys, **cache).logits[:, :-1]
        logprobs = torch.log_softmax(logits.double(), -1).gather(-1, ids[:, 1:, None])[..., 0]
        for row, sample in zip(logprobs, part):
            last = len(sample["tokens"]) - 1
            found.append(row[last - sample["response_length"]:last])
    return torch.cat(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=pathlib.Path, help="Hugging Face folder, not in FP8")
    parser.add_argument("--samples", required=True, type=pathlib.Path, help="samples with the log-probs of a run in FP8")
    parser.add_argument("--plain", required=True, type=pathlib.Path, help="output of slimexx score for the same tokens")
    parser.add_argument("--weights", choices=["off", *WEIGHT_SCALES], default="ue8m0", help="numerics.fp8_scale_fmt of the run")
    parser.add_argument("--keys", action="store_true", help="the run had rollout.kv_cache_dtype: fp8_e4m3")
    args = parser.parse_args()
    torch.set_num_threads(2)
    samples = [json.loads(line) for line in open(args.samples)]
    scores = [json.loads(line)["logprobs"] for line in open(args.plain)]
    ours = torch.tensor([x for s in samples for x in s["rollout_log_probs"]], dtype=torch.float64)
    ours_plain = torch.tensor([x for s, score in zip(samples, scores, strict=True) for x in score[-s["response_length"]:]],
                              dtype=torch.float64)

    plain = response_logprobs(load(args.model), samples, set(), False)

    def in_fp8(rule, part, one_ulp=False):
        model = load(args.model)
        storages = set() if rule == "off" else quantise_weights(model, rule)
        if one_ulp:
            embeddings = model.get_input_embeddings().weight
            embeddings.copy_(torch.nextafter(embeddings, torch.tensor(torch.inf)))
        return response_logprobs(model, part, storages, args.keys)

    def distance(a, b):
        return float((a - b).abs().mean())

    oracle = in_fp8(args.weights, samples)
    base = in_fp8("float", samples) if args.weights == "ue8m0" else oracle
    changed = in_fp8(args.weights, samples[:BATCH], one_ulp=True)
    drift, of_oracle, of_base = distance(ours, ours_plain), distance(oracle, plain), distance(base, plain)
    difference, noise = distance(ours, oracle), distance(changed, oracle[:len(changed)])
    print(f"| {args.model.name} | {args.weights} | {'FP8' if args.keys else 'plain'} | {len(ours):,} | {drift:.5f} | "
          f"{of_oracle:.5f} | {drift / of_oracle:.4f} | {of_base:.5f} | {drift / of_base:.4f} | {difference:.2e} | "
          f"{difference / drift:.4f} | {noise / drift:.4f} | {distance(ours_plain, plain):.1e} |", flush=True)
    sys.exit(drift > 1.05 * min(of_oracle, of_base) or difference > 0.5 * drift)


main()
