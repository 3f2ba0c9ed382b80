# Read by ctest. First, what Open MPI must be told so that a test can start ranks anywhere.
set(ENV{OMPI_ALLOW_RUN_AS_ROOT} 1)
set(ENV{OMPI_ALLOW_RUN_AS_ROOT_CONFIRM} 1)
set(ENV{OMPI_MCA_rmaps_base_oversubscribe} 1)
# Ranks share the cores with their own threads and with other tests: no pinning, no spinning.
set(ENV{OMPI_MCA_hwloc_base_binding_policy} none)
set(ENV{OMPI_MCA_mpi_yield_when_idle} 1)
# Copies between processes by ptrace rights, which containers take away, only end in a warning.
set(ENV{OMPI_MCA_btl_vader_single_copy_mechanism} none)
# In a sanitizer build an impossible allocation fails as it does elsewhere: tests ask for some. What Open
# MPI's plugins leave behind at the end cannot be told from leaks of ours: they are unloaded by then.
if(NOT DEFINED ENV{ASAN_OPTIONS})
  set(ENV{ASAN_OPTIONS} allocator_may_return_null=1:detect_leaks=0)
endif()
if(NOT DEFINED ENV{TSAN_OPTIONS})
  set(ENV{TSAN_OPTIONS} allocator_may_return_null=1)
endif()
