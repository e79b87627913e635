// GGUF, the format of llama.cpp: keys with values, then named tensors, in one file that is mapped.
//
//   "GGUF", version (2 or 3), number of tensors, number of keys
//   keys      name, type, value: numbers, truth values, strings, lists of these
//   tensors   name, sizes (the innermost first), type, offset in the data
//   data      from the next multiple of "general.alignment" on
//
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "base/fail.h"
#include "base/json.h"
#include "engine/kernels/quantized/packed_weight.h"
#include "formats/tensor_file.h"

namespace linnet {
// Element types: numbers, or blocks of neighbors in a row that share scales.

struct GgufBlocks {
  uint32_t id;  // in files
  const char* name;
  int64_t elements;                                                // of a block
  size_t bytes;                                                    // of a block
  FileDType dtype;                                                 // of elements when read; F32 for blocks
  std::optional<WeightFormat> format;                              // empty: plain numbers of that type
  void (*write)(const float* values, std::byte* block) = nullptr;  // null: not written
};

// Null for types that Linnet does not read.
const GgufBlocks* find_gguf_blocks(uint32_t id);
const GgufBlocks* find_gguf_blocks(std::string_view name);  // "Q8_0"
std::string gguf_type_name(uint32_t id);                    // also of those that are not read
std::string gguf_type_names();                              // of all that are read

// `count` elements in whole blocks to `blocks.dtype`, and from fp32.
void read_gguf(const GgufBlocks& blocks, const std::byte* data, int64_t count, std::byte* out);
void write_gguf(const GgufBlocks& blocks, const float* values, int64_t count, std::byte* out);

using GgufKeys = std::map<std::string, Json>;

// An open file: its tensors with the file's names and forms, outermost size first. User errors of one line name the
// file, for broken formats and unsupported types.
class GgufFile : public TensorFile {
 public:
  explicit GgufFile(const std::string& path) : TensorFile(path, MappedFile(path)) { parse(mapped_.bytes()); }
  // Reads `bytes`, which must outlive this object; `name` stands for the path in messages.
  GgufFile(std::span<const std::byte> bytes, const std::string& name) : TensorFile(name) { parse(bytes); }

  const GgufKeys& keys() const { return keys_; }
  const Json* key(const std::string& name) const;  // null when absent
  const GgufBlocks& blocks(const TensorEntry& entry) const;
  const std::byte* elements(const TensorEntry& entry, std::vector<std::byte>& room) const override;
  void read(const TensorEntry& entry, float* out) const override;
  template <class... Parts> [[noreturn]] void fail(const Parts&... problem) const {
    fail_user("'", path_, "': ", problem...);
  }

 private:
  void parse(std::span<const std::byte> bytes);

  GgufKeys keys_;
};

// A tensor to write, of plain numbers or blocks with write(). `fill` makes elements [first, first + count).
struct GgufSource {
  std::string name;
  const GgufBlocks* blocks;
  Shape shape;
  std::function<void(int64_t first, int64_t count, float* out)> fill;
};
// Replaces `path` in one step. User error for values that are not finite: blocks cannot hold them.
void save_gguf(const std::string& path, const std::vector<std::pair<std::string, Json>>& keys,
    const std::vector<GgufSource>& tensors);
}  // namespace linnet
