// Binds a name table to a parameter layout: which elements of the flat buffer each tensor of a file is.
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

// In the table's order. Internal error if it names an unknown parameter or leaves out rows of one.
std::vector<BoundRow> bind_names(const NameTable& names, const ParameterLayout& layout);

// Reads a file's tensor into the flat buffer; writes elements [first, first + count) of it back.
void read_tensor(const BoundRow& bound, FileDType dtype, const std::byte* data, float* parameters);
void write_tensor(
    const BoundRow& bound, const float* parameters, FileDType dtype, int64_t first, int64_t count, std::byte* out);
// Whether the first `count` elements of `data` equal those in the flat buffer (or the constant).
bool equals_tensor(const BoundRow& bound, FileDType dtype, const std::byte* data, const float* parameters);
}  // namespace linnet
