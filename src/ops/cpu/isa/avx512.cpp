#define SLX_ISA avx512
#define SLX_ISA_TABLE kAvx512Kernels
#include "ops/cpu/isa/kernels.inl"
