# Several processes that a launcher started, but that MPI sees as one, are refused; a launch that is meant to have one process starts.
source "$(dirname "$0")/../lib.sh"
unset OMPI_COMM_WORLD_SIZE PMIX_RANK PMI_SIZE PMI_RANK SLURM_STEP_NUM_TASKS WORLD_SIZE RANK
with() { env "$@" timeout 60 "$B" train --config run.yaml --dry-run >out 2>&1; }
refused() { with "${@:2}" && wrong "${*:2} starts"; grep -q "$1" out || wrong "${*:2}: $(cat out)"; }
refused 'srun started 2 processes' SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_PROCID=1 SLURM_LOCALID=1
refused 'started 2 processes' PMI_SIZE=2 PMI_RANK=1
refused 'mpirun started 2 processes' OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1
refused 'torchrun started 2 processes' TORCHELASTIC_RUN_ID=none WORLD_SIZE=2 RANK=1 LOCAL_RANK=1
with WORLD_SIZE=2 RANK=1 || wrong "WORLD_SIZE of something else: $(cat out)"
grep -q 'WORLD_SIZE is 2' out || wrong "no warning of WORLD_SIZE: $(cat out)"
with SLURM_JOB_ID=7 SLURM_NTASKS=8 SLURM_PROCID=0 SLURM_NNODES=2 || wrong "inside an allocation: $(cat out)"
grep -qi 'srun\|processes' <(grep -v '^  resume' out) && wrong "a warning inside an allocation: $(cat out)"
with OMPI_COMM_WORLD_SIZE=1 SLURM_STEP_NUM_TASKS=2 || wrong "mpirun of one process in a step of two: $(cat out)"
if command -v mpirun >/dev/null && [[ $("$B" version) == *"mpi yes"* ]]; then
  timeout 60 mpirun -np 2 --oversubscribe "$B" train --config run.yaml --dry-run >out 2>&1 || wrong "mpirun -np 2: $(cat out)"
fi
