#!/usr/bin/env bash
# Arguments of max, min, gcd and lcm commute; n! = n (n-1)!, binom(n,2) = n(n-1)/2 and floor(x+1) = floor(x)+1 hold for
# letters.
source "$(dirname "$0")/../lib.sh"
grade_all math
