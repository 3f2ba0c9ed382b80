#!/usr/bin/env python3
"""Mirrors a run's metrics to Weights & Biases while it trains, or afterwards.

    pip install wandb && wandb login
    scripts/follow_wandb.py runs/quickstart --project slimexx

Reads RUN/metrics.jsonl and RUN/train_steps.jsonl, and ends when RUN/status.json says that the run has ended.
RUN/wandb.json stores the W&B run and the last steps sent, so that a second start continues with the next steps.
W&B keeps the first values of a step, so steps that a resumed run repeats are not sent again.
"""
import argparse
import json
import os
import secrets
import time

FILES = {"metrics.jsonl": "rollout", "train_steps.jsonl": "optimizer_step"}  # file: x-axis of its rows
ENDED = ("done", "failed", "interrupted")


def read_json(path, default):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return default


def save_json(path, value):
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(path + ".tmp", path)


def new_rows(path, last_step):
    """The rows after `last_step`; a last line without its newline is still being written."""
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        for line in file:
            row = json.loads(line) if line.endswith("\n") else {}
            if row.get("step", last_step) > last_step:
                yield row


def send_new_rows(wandb_run, run_dir, state):
    for name, axis in FILES.items():
        for row in new_rows(os.path.join(run_dir, name), state.get(name, -2)):  # -1: before training
            step = row.pop("step")
            row.pop("wall_time", None)
            row.pop("rollout", None)
            values = {key: value for key, value in row.items() if value is not None}
            wandb_run.log({axis: step, **values})
            state[name] = step
    save_json(os.path.join(run_dir, "wandb.json"), state)


def read_config(path):
    try:
        import yaml  # wandb depends on it

        with open(path, encoding="utf-8") as file:
            return yaml.safe_load(file)
    except (ImportError, FileNotFoundError):
        return {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run folder (observe.run_dir)")
    parser.add_argument("--project", default="slimexx")
    parser.add_argument("--name", help="name of the W&B run (default: the name of the run folder)")
    parser.add_argument("--interval", type=float, default=5, help="seconds between two reads of the files")
    arguments = parser.parse_args()
    if not os.path.isdir(arguments.run):
        parser.error(f"{arguments.run}: no such run folder")
    try:
        import wandb
    except ImportError:
        parser.error("wandb is not installed: pip install wandb")

    state = read_json(os.path.join(arguments.run, "wandb.json"), {"id": secrets.token_hex(4)})
    save_json(os.path.join(arguments.run, "wandb.json"), state)
    wandb_run = wandb.init(
        project=arguments.project,
        name=arguments.name or os.path.basename(os.path.abspath(arguments.run)),
        id=state["id"],
        resume="allow",
        config=read_config(os.path.join(arguments.run, "config.resolved.yaml")),
    )
    wandb_run.define_metric("*", step_metric="rollout")
    wandb_run.define_metric("train_step/*", step_metric="optimizer_step")
    while True:
        # Read the status before the rows, so that no row is missed.
        ended = read_json(os.path.join(arguments.run, "status.json"), {}).get("state") in ENDED
        send_new_rows(wandb_run, arguments.run, state)
        if ended:
            break
        time.sleep(arguments.interval)
    wandb_run.finish()


if __name__ == "__main__":
    main()
