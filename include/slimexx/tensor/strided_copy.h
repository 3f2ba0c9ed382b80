// Strided copy of a matrix's columns on one device.
#pragma once
#include <cstdint>

#include "slimexx/tensor/tensor.h"

namespace slimexx::tensor {

struct StridedBytes {
  void* begin = nullptr;
  int64_t stride = 0;  // bytes from one row to the next, at least the width
};
// Copies `rows` rows of `width` bytes each; queued on the stream.
void copy_row_bytes(Stream stream, StridedBytes destination, StridedBytes source, int64_t width,
                    int64_t rows);

}  // namespace slimexx::tensor
