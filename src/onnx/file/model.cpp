#include "onnx/file/model.h"

namespace linnet {
namespace {
struct ElementRow {
  OnnxElement element;
  const char* name;
  std::optional<FileDType> dtype;
};

constexpr ElementRow kElements[] = {
    {OnnxElement::kFloat, "float", FileDType::kF32},
    {OnnxElement::kUint8, "uint8", FileDType::kU8},
    {OnnxElement::kInt8, "int8", FileDType::kI8},
    {OnnxElement::kUint16, "uint16", FileDType::kU16},
    {OnnxElement::kInt16, "int16", FileDType::kI16},
    {OnnxElement::kInt32, "int32", FileDType::kI32},
    {OnnxElement::kInt64, "int64", FileDType::kI64},
    {OnnxElement::kString, "string", std::nullopt},
    {OnnxElement::kBool, "bool", FileDType::kBool},
    {OnnxElement::kFloat16, "float16", FileDType::kF16},
    {OnnxElement::kDouble, "double", FileDType::kF64},
    {OnnxElement::kUint32, "uint32", FileDType::kU32},
    {OnnxElement::kUint64, "uint64", FileDType::kU64},
    {OnnxElement::kBFloat16, "bfloat16", FileDType::kBF16},
};
}  // namespace

std::string element_name(OnnxElement element) {
  for (const ElementRow& row : kElements)
    if (row.element == element) return row.name;
  return "type " + std::to_string(static_cast<int32_t>(element));
}

std::optional<FileDType> element_dtype(OnnxElement element) {
  for (const ElementRow& row : kElements)
    if (row.element == element) return row.dtype;
  return std::nullopt;
}

OnnxElement onnx_element(FileDType dtype) {
  for (const ElementRow& row : kElements)
    if (row.dtype == dtype) return row.element;
  return OnnxElement::kUndefined;
}

int64_t OnnxTensor::elements() const {
  int64_t count = 1;
  for (const int64_t dim : dims) count *= dim;
  return count;
}

OnnxAttribute int_attribute(std::string name, int64_t value) {
  return {.name = std::move(name), .type = OnnxAttribute::kInt, .i = value};
}
OnnxAttribute float_attribute(std::string name, float value) {
  return {.name = std::move(name), .type = OnnxAttribute::kFloat, .f = value};
}
OnnxAttribute text_attribute(std::string name, std::string value) {
  return {.name = std::move(name), .type = OnnxAttribute::kString, .s = std::move(value)};
}
OnnxAttribute ints_attribute(std::string name, std::vector<int64_t> values) {
  return {.name = std::move(name), .type = OnnxAttribute::kInts, .ints = std::move(values)};
}
OnnxAttribute tensor_attribute(std::string name, OnnxTensor tensor) {
  return {.name = std::move(name),
      .type = OnnxAttribute::kTensor,
      .tensor = std::make_shared<OnnxTensor>(std::move(tensor))};
}

const OnnxAttribute* OnnxNode::find(const std::string& attribute) const {
  for (const OnnxAttribute& candidate : attributes)
    if (candidate.name == attribute) return &candidate;
  return nullptr;
}
}  // namespace linnet
