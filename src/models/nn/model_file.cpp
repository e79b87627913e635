#include "models/nn/model_file.h"
#include <set>
#include "base/fail.h"
#include "base/files.h"
#include "engine/plan/store.h"
#include "models/nn/parameter_file.h"
#include "models/nn/weight_quantization.h"

namespace linnet {
namespace {
std::string text_of(const PackedShape& shape) {
  const auto name = [](WeightFormat format) { return std::string(enum_name(format)) + " "; };
  return name(shape.format) + std::to_string(shape.rows) + " " + std::to_string(shape.columns) + " " +
         name(shape.tail_format) + std::to_string(shape.tail_rows);
}

std::optional<PackedShape> parsed(const std::string& text) {
  char format[16], tail_format[16];
  long long rows = 0, columns = 0, tail_rows = 0;
  constexpr long long kMost = 1 << 30;  // no product of two overflows
  if (std::sscanf(text.c_str(), "%15s %lld %lld %15s %lld", format, &rows, &columns, tail_format, &tail_rows) != 5 ||
      rows <= 0 || rows >= kMost || columns <= 0 || columns >= kMost || tail_rows < 0 || tail_rows >= rows)
    return {};
  const auto all = enum_value<WeightFormat>(format), tail = enum_value<WeightFormat>(tail_format);
  if (!all || !tail) return {};
  return PackedShape{*all, rows, columns, tail_rows, *tail};
}
}  // namespace

const std::byte* tensor_data(const SafetensorsFile& file, const std::string& name, const TensorType& expected) {
  const SafetensorsEntry& entry = file.at(name);
  if (entry.type != expected)
    fail_user(file.path(), ": tensor ", entry.name, " is ", entry.type.text(), ", expected ", expected.text());
  return entry.data;
}

void copy_tensor(const SafetensorsFile& file, const std::string& name, const TensorType& expected, void* to) {
  std::memcpy(to, tensor_data(file, name, expected), expected.bytes());
  file.drop_pages();
}

void copy_tensors(const SafetensorsFile& file, std::span<const ParameterSlot> slots, const std::string& prefix,
    const ParameterTarget& target) {
  for (const ParameterSlot& slot : slots) {
    // A model that was trained in fp32 has no steps; the target keeps its own.
    if (!weight_of_input_step(slot.spec.name).empty() && !file.find(prefix + slot.spec.name)) continue;
    copy_tensor(file, prefix + slot.spec.name, {DType::kF32, slot.spec.shape}, target.flat + slot.offset);
    target.finish(slot);
  }
}

Metadata load_model(const std::string& path, const ParameterLayout& layout, const ParameterTarget& target) {
  if (const auto packed = ParameterFile::open(split_packed_path(path).packed)) {
    packed->read(layout, target);
    return packed->metadata();
  }
  const SafetensorsFile file(path);
  file.check_data();
  const auto frozen = FrozenWeights::beside(file);
  for (const ParameterSlot& slot : layout.parameters()) {
    if (!frozen || !frozen->has(slot.spec.name)) {
      copy_tensors(file, {&slot, 1}, "", target);
      continue;
    }
    frozen->read(slot, target.flat + slot.offset);
    target.finish(slot);
  }
  if (file.entries().size() != layout.parameters().size())
    for (const SafetensorsEntry& entry : file.entries()) {
      if (!weight_of_input_step(entry.name).empty()) continue;  // scales of static int8, read by who needs them
      if (!contains(layout.parameters(), entry.name, &ParameterSlot::name))
        fail_user(path, ": tensor ", entry.name, " is not part of the model");
    }
  return file.metadata();
}

void save_model(
    const std::string& path, const ParameterLayout& layout, const ParameterValues& values, const Metadata& metadata) {
  std::vector<SafetensorsTensor> tensors;
  std::map<std::string, const ParameterSlot*> quantized;
  std::vector<float> unpacked;
  std::set<std::string> apart;
  if (metadata.contains(kFrozenKey))
    for (const QuantizedSlot* slot : frozen_packed(layout)) apart.insert(slot->slot.spec.name);
  for (const ParameterSlot& slot : layout.parameters()) {
    if (apart.contains(slot.spec.name)) continue;
    const bool is_quantized = layout.is_quantized(slot);
    if (is_quantized) quantized[slot.spec.name] = &slot;
    tensors.push_back(
        {slot.spec.name, {DType::kF32, slot.spec.shape}, is_quantized ? nullptr : values.of(slot, unpacked)});
  }
  save_safetensors(path, tensors, metadata, [&](const SafetensorsTensor& tensor, size_t first) {
    return std::as_bytes(
        values.from(*quantized.at(tensor.name), static_cast<int64_t>(first / sizeof(float)), unpacked));
  });
}

std::vector<const QuantizedSlot*> frozen_packed(const ParameterLayout& layout) {
  std::vector<const QuantizedSlot*> frozen;
  for (size_t i = 0; i < layout.quantized().size(); ++i)
    if (!contains(layout.packed_ranges(), i, &PackedRange::quantized)) frozen.push_back(&layout.quantized()[i]);
  return frozen;
}

void save_frozen_weights(
    const std::string& path, const Store& store, const ParameterLayout& layout, SafetensorsMetadata metadata) {
  std::vector<SafetensorsTensor> tensors;
  for (const QuantizedSlot* slot : frozen_packed(layout)) {
    const std::string& name = slot->slot.spec.name;
    tensors.push_back({name, slot->type(), store.data(slot->input())});
    metadata[name] = text_of(slot->shape);
  }
  save_safetensors(path, tensors, metadata);
}

std::unique_ptr<const FrozenWeights> FrozenWeights::beside(const SafetensorsFile& file, Check check) {
  const auto found = file.metadata().find(kFrozenKey);
  if (found == file.metadata().end()) return nullptr;
  const size_t slash = file.path().rfind('/');
  const std::string path = (slash == std::string::npos ? "" : file.path().substr(0, slash + 1)) + found->second;
  if (!file_exists(path))
    fail_user("'", file.path(), "' has the trained weights alone; the others are missing: there is no '", path, "'");
  std::unique_ptr<const FrozenWeights> frozen(new FrozenWeights(path));
  if (check == Check::kData) frozen->file_.check_data();
  return frozen;
}

int64_t FrozenWeights::parameter_count() const {
  return sum_of<int64_t>(file_.entries(), [&](const SafetensorsEntry& entry) {
    const PackedShape packed = shape(entry.name);
    return packed.rows * packed.columns;
  });
}

PackedShape FrozenWeights::shape(const std::string& parameter) const {
  const auto found = file_.metadata().find(parameter);
  const std::optional<PackedShape> shape = found == file_.metadata().end() ? std::nullopt : parsed(found->second);
  const TensorType& type = file_.at(parameter).type;
  if (!shape || type.dtype != DType::kU8 || type.bytes() != shape->bytes())
    fail_user("'", file_.path(), "' is damaged: it does not say in which form ", parameter, " is");
  return *shape;
}

void FrozenWeights::read(const ParameterSlot& slot, float* values) const {
  const PackedShape packed = shape(slot.spec.name);
  const Shape& wanted = slot.spec.shape;
  if (wanted.rank() < 2 || wanted[0] != packed.rows || wanted.elements() != packed.rows * packed.columns)
    fail_user("'", file_.path(), "': ", slot.spec.name, " is ", text_of(packed), ", expected ", wanted.text());
  dequantize_unaligned(packed, file_.at(slot.spec.name).data, values);
  file_.drop_pages();
}

void FrozenWeights::copy(const QuantizedSlot& slot, std::byte* to) const {
  const std::string& name = slot.slot.spec.name;
  if (const PackedShape packed = shape(name); packed != slot.shape)
    fail_user("'", file_.path(), "': ", name, " is ", text_of(packed), ", expected ", text_of(slot.shape));
  std::memcpy(to, file_.at(name).data, slot.shape.bytes());
  file_.drop_pages();
}
}  // namespace linnet
