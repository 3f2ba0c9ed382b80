#!/usr/bin/env bash
# A formula may span several lines.
source "$(dirname "$0")/../lib.sh"
grade_all math
