#!/usr/bin/env bash
# Commands of colour, size, space and number do not change an answer.
source "$(dirname "$0")/../lib.sh"
grade_all math
