#include "models/families/torchvision.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "formats/file_dtype.h"
#include "formats/safetensors.h"

namespace linnet {
namespace {

bool is_filter(const Shape& shape) { return shape.rank() == 4; }

// [O, R, S, C] -> [O, C, R, S]
Shape shape_in_file(const Shape& shape) {
  return is_filter(shape) ? Shape{shape[0], shape[3], shape[1], shape[2]} : shape;
}

// Calls move(index in the file, index of ours) for every element.
template <class Move>
void for_elements(const Shape& shape, const Move& move) {
  if (!is_filter(shape)) {
    for (int64_t i = 0; i < shape.elements(); ++i) move(i, i);
    return;
  }
  const int64_t window = shape[1] * shape[2], channels = shape[3];
  for (int64_t o = 0; o < shape[0]; ++o)
    for (int64_t at = 0; at < window; ++at)
      for (int64_t c = 0; c < channels; ++c) move((o * channels + c) * window + at, (o * window + at) * channels + c);
}

}  // namespace

void load_torchvision(const std::string& path, const ParameterLayout& layout, float* parameters) {
  const SafetensorsFile file(path, SafetensorsTypes::kAll);
  std::vector<float> values;
  for (const ParameterSlot& slot : layout.parameters()) {
    const SafetensorsEntry& entry = file.at(slot.spec.name);
    const Shape shape = shape_in_file(slot.spec.shape);
    if (entry.type.shape != shape)
      fail_user(path + ": tensor \"" + entry.name + "\" has shape " + entry.type.shape.text() + ", the model needs " +
                shape.text());
    values.resize(static_cast<size_t>(shape.elements()));
    read_floats(entry.dtype, entry.data, shape.elements(), values.data());
    for_elements(slot.spec.shape, [&](int64_t theirs, int64_t ours) {
      parameters[slot.offset + ours] = values[static_cast<size_t>(theirs)];
    });
  }
  for (const SafetensorsEntry& entry : file.entries()) {
    if (entry.name.ends_with(".num_batches_tracked")) continue;
    const auto known = [&](const ParameterSlot& slot) { return slot.spec.name == entry.name; };
    if (std::ranges::none_of(layout.parameters(), known))
      fail_user(path + ": the model has no tensor \"" + entry.name + "\"");
  }
}

void save_torchvision(const std::string& path, const ParameterLayout& layout, const float* parameters) {
  std::vector<std::vector<float>> values;
  std::vector<SafetensorsTensor> tensors;
  for (const ParameterSlot& slot : layout.parameters()) {
    std::vector<float>& in_file = values.emplace_back(static_cast<size_t>(slot.spec.shape.elements()));
    for_elements(slot.spec.shape, [&](int64_t theirs, int64_t ours) {
      in_file[static_cast<size_t>(theirs)] = parameters[slot.offset + ours];
    });
    tensors.push_back({slot.spec.name, {DType::kF32, shape_in_file(slot.spec.shape)}, in_file.data()});
  }
  save_safetensors(path, tensors, {{"format", "pt"}});
}

}  // namespace linnet
