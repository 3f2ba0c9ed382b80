#!/usr/bin/env bash
# User, password and query of reward.rm_url appear in no log, no file of the run and not on the terminal; ${env:...}
# stays in the resolved configuration.
source "$(dirname "$0")/../lib.sh"
secret() { # what must not be found, then settings
  rm -rf run; train --set reward.rm_type=remote reward.rm_retries=1 observe.tensorboard=true "${@:2}"; local rc=$?
  [[ $rc == 4 || $rc == 2 ]] || wrong "status $rc: $(tail -2 out)"
  local found; found=$(grep -rlaF "$1" run out 2>/dev/null | tr '\n' ' ')
  [[ -z $found ]] || wrong "$1 is in $found"
}
secret s3cret "reward.rm_url=http://user:s3cret@127.0.0.1:9/r?key=s3cret"
secret us3r "reward.rm_url=http://us3r:word@127.0.0.1:9/r"
secret t0ken "reward.rm_url=http://127.0.0.1:9/r?a=1&auth=t0ken"
secret sl/sh "reward.rm_url=http://user:sl/sh@127.0.0.1:9/r"
secret noscheme "reward.rm_url=user:noscheme@127.0.0.1:9"
secret wr0ng "reward.rm_url=[http://user:wr0ng@127.0.0.1:9/r]"
export SLX_KEY=fr0menv SLX_URL=http://user:fr0menv@127.0.0.1:9/r?key=fr0menv
secret fr0menv 'reward.rm_url=http://${env:SLX_KEY}@127.0.0.1:9/r?key=${env:SLX_KEY}'
grep -qF '${env:SLX_KEY}' run/config.resolved.yaml || wrong "the resolved configuration has no \${env:SLX_KEY}"
secret fr0menv 'reward.rm_url=${env:SLX_URL}'
http_proxy=gopher://user:pr0xy@127.0.0.1:9 secret pr0xy reward.rm_url=http://127.0.0.1:9/r
# The resolved configuration starts the same run.
timeout 60 "$B" train --config run/config.resolved.yaml --dry-run --set observe.run_dir=again >out 2>&1 || wrong "the resolved configuration does not load: $(tail -3 out)"
