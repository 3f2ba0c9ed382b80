#define SLX_ISA avx2
#define SLX_ISA_TABLE kAvx2Kernels
#include "ops/cpu/isa/kernels.inl"
