#!/usr/bin/env python3
"""Checks that transformers reads the FP8 folders that slimexx writes.

    slimexx convert-hf --to fp8 --strategy block --hf-checkpoint MODEL --save MODEL-FP8
    fp8_folder.py MODEL-FP8

Loads the folder with FineGrainedFP8Config(dequantize=True), on the CPU. Multiplies each e4m3 value of the folder by the
scale of its block, and loads a folder with these weights too. Stops with status 1 unless all weights and the logits of
80 tokens are equal in both models. Needs torch, transformers >= 5.24 and safetensors.
transformers 5.24 takes the size of a block from the shapes of a weight and its scales. So the sizes of every FP8 matrix
must be multiples of 128, or at most 128.
"""
import json, pathlib, shutil, sys, tempfile
import torch, transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, FineGrainedFP8Config

BLOCK = 128


def dequantise(folder, to):
    """Writes the folder with bf16 weights and without quantization_config. Returns the number of FP8 tensors."""
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text())
    del config["quantization_config"]
    (to / "config.json").write_text(json.dumps(config))
    count = 0
    for file in to.glob("*.safetensors"):
        tensors = load_file(file)
        for name in [n for n in tensors if n.endswith("_scale_inv")]:
            scale, value = tensors.pop(name), tensors[name.removesuffix("_scale_inv")]
            rows, columns = value.shape
            scale = scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)[:rows, :columns]
            tensors[name.removesuffix("_scale_inv")] = (value.float() * scale).bfloat16()
            count += 1
        save_file(tensors, file, metadata={"format": "pt"})
    return count


def main():
    folder = pathlib.Path(sys.argv[1])
    options = dict(dtype=torch.bfloat16, attn_implementation="eager", experts_implementation="eager")
    read = AutoModelForCausalLM.from_pretrained(folder, quantization_config=FineGrainedFP8Config(dequantize=True), **options)
    with tempfile.TemporaryDirectory() as parent:
        count = dequantise(folder, pathlib.Path(parent) / "plain")
        expected = AutoModelForCausalLM.from_pretrained(pathlib.Path(parent) / "plain", **options)
    weights = expected.state_dict()
    unequal = [name for name, w in read.state_dict().items() if not torch.equal(w, weights[name])]
    ids = torch.randint(0, read.config.vocab_size, (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits, expected_logits = (m.float().eval()(ids).logits for m in (read, expected))
    largest = float((logits - expected_logits).abs().max())
    print(f"{folder.name}: torch {torch.__version__}, transformers {transformers.__version__}, {count} FP8 tensors, "
          f"{len(unequal)} unequal weights {unequal[:3]}, largest difference of a logit {largest}")
    sys.exit(bool(unequal) or largest > 0 or count == 0)


main()
