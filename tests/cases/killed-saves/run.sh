#!/usr/bin/env bash
# SIGKILL around saves loses no complete checkpoint and changes no byte of the final result. Full version:
# scripts/kill_saves.sh --times 50.
exec "$(dirname "$0")/../../../scripts/kill_saves.sh" --times 6 --slimexx "$(realpath "$1")"
