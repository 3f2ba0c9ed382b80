"""Tests scripts/follow_wandb.py with a fake wandb module; scripts/check.sh runs this test."""
import json
import os
import subprocess
import sys
import tempfile

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "follow_wandb.py")
FAKE = """
import json, os
class Run:
    def __init__(self, **options): self.note(["init", options["id"], options["resume"], options["name"]])
    def note(self, what): open(os.environ["FAKE_LOG"], "a").write(json.dumps(what) + "\\n")
    def define_metric(self, name, step_metric): self.note(["axis", name, step_metric])
    def log(self, values): self.note(["log", values])
    def finish(self): self.note(["finish"])
def init(**options): return Run(**options)
"""


def follow(folder, run):
    log = os.path.join(folder, "log")
    if os.path.exists(log):
        os.remove(log)
    env = {**os.environ, "PYTHONPATH": folder, "FAKE_LOG": log}
    subprocess.run([sys.executable, SCRIPT, run, "--interval", "0.01"], env=env, check=True, timeout=60)
    with open(log, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    with tempfile.TemporaryDirectory() as folder:
        write(os.path.join(folder, "wandb.py"), FAKE)
        run = os.path.join(folder, "first")
        os.mkdir(run)
        write(os.path.join(run, "status.json"), '{"state": "interrupted"}')
        write(os.path.join(run, "metrics.jsonl"),
              '{"step": -1, "wall_time": 1, "eval/a": 0.5}\n{"step": 0, "train/loss": 1, "train/lr": null}\n{"step": 1, "tr')
        write(os.path.join(run, "train_steps.jsonl"),
              '{"step": 1, "rollout": 0, "train_step/loss": 2}\n{"step": 2, "rollout": 0, "train_step/loss": 3}\n')
        first = follow(folder, run)
        assert first[0][2:] == ["allow", "first"], first
        assert first[1:3] == [["axis", "*", "rollout"], ["axis", "train_step/*", "optimizer_step"]], first
        assert first[3:] == [
            ["log", {"rollout": -1, "eval/a": 0.5}],
            ["log", {"rollout": 0, "train/loss": 1}],
            ["log", {"optimizer_step": 1, "train_step/loss": 2}],
            ["log", {"optimizer_step": 2, "train_step/loss": 3}],
            ["finish"],
        ], first
        # After the run continues, only new rows are sent, to the same W&B run.
        write(os.path.join(run, "status.json"), '{"state": "done"}')
        write(os.path.join(run, "metrics.jsonl"), '{"step": 0, "train/loss": 9}\n{"step": 1, "train/loss": 4}\n')
        second = follow(folder, run)
        assert second[0][1] == first[0][1], second
        assert second[3:] == [["log", {"rollout": 1, "train/loss": 4}], ["finish"]], second


main()
