#!/usr/bin/env bash
# An option with its text equals its letter and its text.
source "$(dirname "$0")/../lib.sh"
grade_all math
