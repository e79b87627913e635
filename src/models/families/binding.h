// Binds a name table to a parameter layout: which elements of the flat buffer each tensor of a file is. And matches the
// tensors of a folder's files with the rows of the table.
#pragma once
#include "formats/tensor_file.h"
#include "formats/weight_files.h"
#include "models/families/family.h"
#include "models/families/pretrained.h"
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
// The row of [3, heads, size], of `rows` in all, that is row `row` of [heads, 3, size].
int64_t stacked_row(int64_t heads, int64_t rows, int64_t row);
// Whether the first `count` elements of `data` equal those in the flat buffer (or the constant).
bool equals_tensor(const BoundRow& bound, FileDType dtype, const std::byte* data, const float* parameters);

struct MatchedRow {
  const BoundRow* bound;
  const WeightFiles::Weight* weight;  // null: not in the files
};

// User error of one line naming the file and a tensor that is missing, unknown, or of another shape or type.
class TensorMatch {
 public:
  // new_head: tensors of a head may be missing.
  TensorMatch(const PretrainedModel& model, const ParameterLayout& layout, const WeightFiles& files, bool new_head);

  const std::vector<BoundRow> bound;  // all of the table
  std::vector<MatchedRow> rows;       // the same
  bool with_prefix;
  std::vector<std::string> fresh, unused;
  std::map<std::string, FileDType> dtypes() const;
  [[noreturn]] void fail_different(const MatchedRow& matched) const;

 private:
  std::string table_name(const std::string& name) const;
  void match(bool new_head);
  void check_missing(bool new_head);
  void check_extra();

  const PretrainedModel& model_;
  const WeightFiles& files_;
  std::map<std::string, const WeightFiles::Weight*> by_name_;  // as the table calls them
};

// By parameter, matrices in blocks in a file of llama.cpp, which inference keeps. `folder` may be a file. Matrices made
// of tensors in three or more formats are left out.
std::map<std::string, PackedShape> parameters_in_blocks(const std::string& folder);

// The blocks of such a parameter, row by row, in the location of its numbers. User error for an infinite scale or NaN.
void load_blocks(const TensorMatch& match, const ParameterSlot& slot, float* parameters);
}  // namespace linnet
