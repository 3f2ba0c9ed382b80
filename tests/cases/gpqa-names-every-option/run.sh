#!/usr/bin/env bash
# gpqa: a response that names several options by their texts settles on none, or on the last that it affirms.
source "$(dirname "$0")/../lib.sh"
grade_all gpqa
