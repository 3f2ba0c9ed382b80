// Columns of a matrix from one place on a device to another.
#pragma once
#include <cstdint>

#include "slimexx/tensor/tensor.h"

namespace slimexx::tensor {

struct StridedBytes {
  void* begin = nullptr;
  int64_t stride = 0;  // bytes from one row to the next, at least the width
};
// `rows` times `width` bytes; queued on the stream.
void copy_row_bytes(Stream stream, StridedBytes destination, StridedBytes source, int64_t width,
                    int64_t rows);

}  // namespace slimexx::tensor
