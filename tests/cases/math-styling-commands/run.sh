#!/usr/bin/env bash
# Commands for colour, size, spacing and number formats do not change an answer.
source "$(dirname "$0")/../lib.sh"
grade_all math
