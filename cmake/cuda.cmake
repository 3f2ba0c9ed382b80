# The CUDA language for kernels/ and the programs that test them.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a)
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc 13 speaks C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
find_package(CUDAToolkit 12.4 REQUIRED)
if(SLX_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${SLX_CCACHE})
endif()
