# Read by ctest. These settings let tests start Open MPI ranks as root and on any number of cores.
set(ENV{OMPI_ALLOW_RUN_AS_ROOT} 1)
set(ENV{OMPI_ALLOW_RUN_AS_ROOT_CONFIRM} 1)
set(ENV{OMPI_MCA_rmaps_base_oversubscribe} 1)
# Ranks share the cores with their own threads and with other tests: no pinning, no spinning.
set(ENV{OMPI_MCA_hwloc_base_binding_policy} none)
set(ENV{OMPI_MCA_mpi_yield_when_idle} 1)
# Single-copy messages need ptrace rights, which containers lack; Open MPI would print a warning.
set(ENV{OMPI_MCA_btl_vader_single_copy_mechanism} none)
# Tests make allocations that are too large; in a sanitizer build these must fail as in other builds. Leaks are not
# detected: Open MPI's plugins are unloaded at exit, so their leaks cannot be told from ours.
if(NOT DEFINED ENV{ASAN_OPTIONS})
  set(ENV{ASAN_OPTIONS} allocator_may_return_null=1:detect_leaks=0)
endif()
if(NOT DEFINED ENV{TSAN_OPTIONS})
  set(ENV{TSAN_OPTIONS} allocator_may_return_null=1)
endif()
