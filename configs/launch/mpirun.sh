#!/usr/bin/env bash
# Starts a recipe on the GPUs of one host or several, one rank a GPU, over Open MPI; with a program that was built without CUDA
# (SLX_BINARY=build/cpu/slimexx) on CPUs.
#
#   configs/launch/mpirun.sh configs/glm-z1-9b-colocated.yaml 4
#   HOSTS=node0:8,node1:8 configs/launch/mpirun.sh configs/glm4.7-flash-30b-16gpus.yaml 16 --set rollout.num_rollout=100
#
# Flags behind the number of ranks go to `slimexx train`, and those of --set to `slimexx plan` too.
# The ranks of a host are neighbours, so that tensor-parallel ranks talk over NVLink. All hosts must see this folder, the
# model, the data and the run's folder under the same names. A second start goes on where the first stopped.
set -euo pipefail
config=${1:?usage: mpirun.sh CONFIG RANKS [flags of slimexx train]}
ranks=${2:?usage: mpirun.sh CONFIG RANKS [flags of slimexx train]}
shift 2
binary=${SLX_BINARY:-build/cuda/slimexx}

# What does not fit is said before anything is loaded. --set takes all values up to the next flag.
settings=()
of_set=false
for argument in "$@"; do
  case $argument in
    --set | --set=*) of_set=true; settings+=("$argument"); [[ $argument == --set ]] || of_set=false ;;
    -*) of_set=false ;;
    *) if $of_set; then settings+=("$argument"); fi ;;
  esac
done
# The plan is one of GPUs: a program for CPUs has nothing to ask it.
if [[ $("$binary" version) == *"cuda yes"* ]]; then
  plan=$("$binary" plan --config "$config" --gpus "$ranks" "${settings[@]}") || { printf '%s\n' "$plan" >&2; exit 2; }
fi

# SIGUSR1 to mpirun stops the run after a checkpoint; a SIGTERM leaves it ten minutes for that.
exec mpirun -np "$ranks" ${HOSTS:+--host "$HOSTS"} --map-by slot --bind-to none --mca odls_base_sigkill_timeout 600 \
  -x PATH -x LD_LIBRARY_PATH "$binary" train --config "$config" --resume auto "$@"
