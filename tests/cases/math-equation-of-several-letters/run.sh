#!/usr/bin/env bash
# An equation gives the value after its last sign of equality.
source "$(dirname "$0")/../lib.sh"
grade_all math
