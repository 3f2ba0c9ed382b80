#!/usr/bin/env bash
# SIGKILL around saves costs no complete checkpoint and no byte of the run's end. In full: scripts/kill_saves.sh --times 50.
exec "$(dirname "$0")/../../../scripts/kill_saves.sh" --times 6 --slimexx "$(realpath "$1")"
