list(APPEND SLX_KERNELS_SOURCES common/device.cpp)
