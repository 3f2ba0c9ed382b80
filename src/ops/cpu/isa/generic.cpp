#define SLX_ISA generic
#define SLX_ISA_TABLE kGenericKernels
#include "ops/cpu/isa/kernels.inl"
