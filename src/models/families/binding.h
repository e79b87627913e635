// A name table against a parameter layout: which elements of the flat buffer each tensor of a file is.
#pragma once
#include <string>
#include <vector>
#include "formats/file_dtype.h"
#include "models/families/name_table.h"
#include "models/nn/parameter_layout.h"

namespace linnet {

struct BoundRow {
  const NameRow* row;
  const ParameterSpec* spec;  // null for a constant
  int64_t offset;             // of the tensor's first element in the flat buffer
  Shape shape;                // in the file
};

// In the table's order. Internal error when the table names a parameter the layout has not, or leaves rows of one out.
std::vector<BoundRow> bind_names(const NameTable& names, const ParameterLayout& layout);

// One tensor from a file's elements into the flat buffer, and elements [first, first + count) of it back.
void read_tensor(const BoundRow& bound, FileDType dtype, const std::byte* data, float* parameters);
void write_tensor(const BoundRow& bound, const float* parameters, FileDType dtype, int64_t first, int64_t count,
                  std::byte* out);
// The first `count` elements of the tensor `data` are what the flat buffer (or a constant) has.
bool equals_tensor(const BoundRow& bound, FileDType dtype, const std::byte* data, const float* parameters);

}  // namespace linnet
