#!/usr/bin/env bash
# gpqa: a response that names several options by their texts chooses none, or the last one that it affirms.
source "$(dirname "$0")/../lib.sh"
grade_all gpqa
