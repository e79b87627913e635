// An ONNX model as data: what Linnet reads and writes of onnx.proto (https://github.com/onnx/onnx).
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>
#include "base/files.h"
#include "formats/tensor_file.h"

namespace linnet {
// TensorProto.DataType
enum class OnnxElement : int32_t {
  kUndefined = 0,
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kDouble = 11,
  kUint32 = 12,
  kUint64 = 13,
  kBFloat16 = 16,
};

std::string element_name(OnnxElement element);                // "float", "int64"; a number where ONNX names none
std::optional<FileDType> element_dtype(OnnxElement element);  // how elements lie in memory; empty: not supported
OnnxElement onnx_element(FileDType dtype);

// Elements are at `data`, row-major and little endian, or come from `fill` on writing.
struct OnnxTensor {
  std::string name;
  OnnxElement element = OnnxElement::kFloat;
  std::vector<int64_t> dims = {};
  std::span<const std::byte> data = {};
  std::shared_ptr<const void> owner = {};  // keeps `data` alive; null: the model's file
  std::vector<std::string> strings = {};
  // Writes elements [first, first + count) to `out`.
  std::function<void(int64_t first, int64_t count, std::byte* out)> fill = {};
  // On writing: a file of the model's folder that already has the elements; empty: none.
  std::string external_file = {};
  uint64_t external_offset = 0;

  int64_t elements() const;
  uint64_t bytes() const { return static_cast<uint64_t>(elements()) * file_dtype_size(element_dtype(element).value()); }
};

template <class T>
OnnxTensor tensor_of(std::string name, OnnxElement element, std::vector<int64_t> dims, std::vector<T> values) {
  const auto kept = std::make_shared<const std::vector<T>>(std::move(values));
  OnnxTensor tensor{.name = std::move(name), .element = element, .dims = std::move(dims)};
  tensor.data = std::as_bytes(std::span(*kept)), tensor.owner = kept;
  return tensor;
}
inline OnnxTensor int64_tensor(std::vector<int64_t> dims, std::vector<int64_t> values, std::string name = "") {
  return tensor_of(std::move(name), OnnxElement::kInt64, std::move(dims), std::move(values));
}
inline OnnxTensor float_tensor(std::vector<int64_t> dims, std::vector<float> values, std::string name = "") {
  return tensor_of(std::move(name), OnnxElement::kFloat, std::move(dims), std::move(values));
}

struct OnnxGraph;

// AttributeProto; `type` says which member holds the value.
struct OnnxAttribute {
  enum Type {
    kUndefined = 0,
    kFloat = 1,
    kInt = 2,
    kString = 3,
    kTensor = 4,
    kGraph = 5,
    kFloats = 6,
    kInts = 7,
    kStrings = 8
  };
  std::string name;
  Type type = kUndefined;
  float f = 0;
  int64_t i = 0;
  std::string s = {};
  std::shared_ptr<OnnxTensor> tensor = {};
  std::shared_ptr<OnnxGraph> graph = {};
  std::vector<float> floats = {};
  std::vector<int64_t> ints = {};
  std::vector<std::string> strings = {};
  std::string reference = {};  // in a function: the node's attribute with the value
};

OnnxAttribute int_attribute(std::string name, int64_t value);
OnnxAttribute float_attribute(std::string name, float value);
OnnxAttribute ints_attribute(std::string name, std::vector<int64_t> values);
OnnxAttribute tensor_attribute(std::string name, OnnxTensor tensor);

struct OnnxNode {
  std::string name, op, domain = {};
  std::vector<std::string> in, out;  // an empty name: omitted
  std::vector<OnnxAttribute> attributes = {};

  const OnnxAttribute* find(const std::string& attribute) const;  // null when missing
};
// A node of one result of the same name.
inline OnnxNode named_node(
    std::string name, std::string op, std::vector<std::string> in, std::vector<OnnxAttribute> attributes = {}) {
  return {name, std::move(op), {}, std::move(in), {name}, std::move(attributes)};
}

// One axis of a declared shape: a number, or the name of a size known at run time ("": any).
struct OnnxDim {
  int64_t size = -1;  // -1: `symbol`
  std::string symbol = {};
};

struct OnnxValueInfo {
  std::string name;
  OnnxElement element = OnnxElement::kUndefined;  // kUndefined: no tensor (a sequence, a map, an optional)
  bool has_shape = false;
  std::vector<OnnxDim> dims = {};
};

struct OnnxGraph {
  std::string name;
  std::vector<OnnxNode> nodes = {};  // in an order in which they can run
  std::vector<OnnxTensor> initializers = {};
  std::vector<OnnxValueInfo> inputs = {}, outputs = {};
};

// Nodes that replace a node of its name. Their attributes may refer to those of that node.
struct OnnxFunction {
  std::string name, domain;
  std::vector<std::string> in = {}, out = {};
  std::vector<OnnxAttribute> defaults = {};
  std::vector<OnnxNode> nodes = {};
};

// Writes functions' nodes where nodes of their names are, in graphs within nodes too. `fail` is called for functions
// that contain themselves or stand for more than a million nodes.
void expand_functions(OnnxGraph& graph, const std::vector<OnnxFunction>& functions,
    const std::function<void(const std::string& problem)>& fail);

struct OnnxModel {
  int64_t ir_version = 8;
  std::map<std::string, int64_t> opsets = {};  // by domain; "": ONNX's own operators
  std::string producer = {}, producer_version = {};
  OnnxGraph graph = {};
  std::vector<std::shared_ptr<const MappedFile>> files = {};  // that tensors point into

  // To be called after a tensor was read: see MappedFile::drop_pages().
  void drop_pages(const OnnxTensor& read) const;
};

// Reads a model, and locates external data of initializers. Checks names, sizes, node order, and that external paths
// stay in the model's folder. User errors of one line name the file.
OnnxModel read_onnx(const std::string& path);
// The same from bytes that must outlive the model; `name` stands for the path in messages. External data are an error.
OnnxModel read_onnx(std::span<const std::byte> bytes, const std::string& name);
// A file with one TensorProto, as in ONNX's backend tests.
OnnxTensor read_onnx_tensor(const std::string& path);

// Replaces each file in one step; the same bytes for the same model. Tensors with `fill` are made piece by piece, in a
// few megabytes. Initializers of over `most_inside` bytes together go to a second file, the model's name + "_data".
constexpr uint64_t kMostInsideOnnx = 1'800'000'000;
void write_onnx(const OnnxModel& model, const std::string& path, uint64_t most_inside = kMostInsideOnnx);
}  // namespace linnet
