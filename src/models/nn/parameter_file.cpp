#include "models/nn/parameter_file.h"
#include "base/fail.h"
#include "base/functions.h"
#include "base/json.h"
#include "engine/plan/store.h"
#include "models/nn/model_store.h"

namespace linnet {
namespace {
constexpr const char *kCodes = ".codes", *kSums = ".sums";

// A tensor of a quantized parameter, and the location of its bytes among the packed ones.
struct Piece {
  std::string name;
  FileDType dtype;
  Shape shape;
  size_t offset;
  size_t bytes() const { return static_cast<size_t>(shape.elements()) * file_dtype_size(dtype); }
};

std::vector<Piece> pieces_of(const std::string& name, const PackedShape& shape) {
  const int64_t panels = shape.panels(), blocks = shape.blocks(), rows = panels * PackedShape::kPanel;
  std::vector<Piece> pieces;
  size_t offset = 0;
  const auto add = [&](const std::string& ending, FileDType dtype, const Shape& of) {
    pieces.push_back({name + ending, dtype, of, offset});
    offset += pieces.back().bytes();
  };
  switch (shape.format) {
    default: fail_internal("packed models have no blocks of other files");
    case WeightFormat::kBf16: add("", FileDType::kBF16, {shape.rows, shape.columns}); break;
    case WeightFormat::kInt8:
      add(kCodes, FileDType::kI8, {panels, blocks, 8, PackedShape::kPanel, 4});
      add(".scales", FileDType::kF32, {rows});
      add(kSums, FileDType::kI32, {rows});
      break;
    case WeightFormat::kInt8Blocks:
    case WeightFormat::kInt4Blocks: {
      const int64_t bits = block_format(shape.format).bits;
      add(kCodes, bits == 8 ? FileDType::kI8 : FileDType::kU8, {panels, blocks, bits, PackedShape::kPanel, 4});
      add(".scales", FileDType::kBF16, {panels, blocks, PackedShape::kPanel});
      break;
    }
  }
  if (shape.bytes() > offset) add(".padding", FileDType::kU8, {static_cast<int64_t>(shape.bytes() - offset)});
  return pieces;
}

size_t to_page(size_t bytes) { return (SharedFile::kPage - bytes % SharedFile::kPage) % SharedFile::kPage; }
}  // namespace

WeightQuantization QuantizationWords::parsed() const {
  WeightQuantization parsed = parse_quantization(quantize, keep);
  if (!tables.empty()) parsed.table = parse_quantization(tables).table;
  return parsed;
}

std::string QuantizationWords::text() const {
  std::string text = "--quantize " + quantize;
  if (!tables.empty()) text += " --tables " + tables;
  for (const std::string& pattern : keep) text += " --keep \"" + pattern + "\"";
  return text;
}

std::string parameters_metadata(const QuantizationWords& words) {
  return Json{{"keep", words.keep}, {"quantize", words.quantize}, {"tables", words.tables}}.dump();
}

std::unique_ptr<const ParameterFile> ParameterFile::open(const std::string& folder) {
  if (!is_packed(folder)) return nullptr;
  const std::shared_ptr<const OpenedPackedModel> opened = open_packed_model(folder);
  if (!opened->tensors.metadata().contains(kParametersKey)) return nullptr;
  return std::make_unique<const ParameterFile>(opened->tensors, opened);
}

ParameterFile::ParameterFile(const SafetensorsFile& tensors, std::shared_ptr<const OpenedPackedModel> opened)
    : tensors_(tensors), opened_(std::move(opened)) {
  const Json words = Json::parse_or_null(find_or(tensors.metadata(), kParametersKey, ""), JsonLimits::settings());
  try {
    words.at("quantize").get_to(words_.quantize);
    words.at("tables").get_to(words_.tables);
    words.at("keep").get_to(words_.keep);
    words_.parsed();
  } catch (const JsonError&) {
    fail("its metadata do not say how its weights are quantized");
  } catch (const Error& error) {
    fail(error.what());
  }
}

void ParameterFile::fail(const std::string& problem) const { fail_user("'", path(), "' is damaged: ", problem); }

// The tensor that has the parameter's values or codes.
const SafetensorsEntry* ParameterFile::find(const std::string& parameter) const {
  const SafetensorsEntry* plain = tensors_.find(parameter);
  return plain ? plain : tensors_.find(parameter + kCodes);
}

// Empty: plain numbers. bf16 counts as plain here, as it is read the same way.
std::optional<PackedShape> ParameterFile::packed_shape(const ParameterSpec& spec) const {
  if (tensors_.find(spec.name)) return {};
  const SafetensorsEntry* codes = tensors_.find(spec.name + kCodes);
  if (!codes) fail_user("'", path(), "' has no parameter ", spec.name, ", which the model needs");
  if (spec.shape.rank() < 2) fail("parameter " + spec.name + " is no matrix");
  using enum WeightFormat;
  const WeightFormat format = codes->dtype == FileDType::kU8     ? kInt4Blocks
                              : tensors_.find(spec.name + kSums) ? kInt8
                                                                 : kInt8Blocks;
  return PackedShape{format, spec.shape[0], spec.shape.elements(1, spec.shape.rank())};
}

// Checks that all tensors are there, of the right size and next to each other.
const std::byte* ParameterFile::packed_bytes(const std::string& name, const PackedShape& shape) const {
  const std::byte* first = nullptr;
  for (const Piece& piece : pieces_of(name, shape)) {
    const SafetensorsEntry* entry = tensors_.find(piece.name);
    if (!entry) fail("it has no tensor " + piece.name);
    if (entry->dtype != piece.dtype || entry->type.shape != piece.shape)
      fail("tensor " + piece.name + " is " + entry->text() + ", expected " + file_dtype_name(piece.dtype) +
           piece.shape.text());
    if (!first) first = entry->data;
    if (entry->data != first + piece.offset) fail("tensor " + piece.name + " does not follow the one before it");
  }
  return first;
}

void ParameterFile::check(const ParameterSpec& spec) const {
  if (const std::optional<PackedShape> packed = packed_shape(spec)) return void(packed_bytes(spec.name, *packed));
  const SafetensorsEntry& entry = *tensors_.find(spec.name);
  if (entry.type.shape != spec.shape || !is_float(entry.dtype))
    fail("parameter " + spec.name + " is " + entry.text() + ", expected numbers of the shape " + spec.shape.text());
}

FileDType ParameterFile::dtype(const std::string& parameter) const {
  const SafetensorsEntry* plain = tensors_.find(parameter);
  return plain && is_float(plain->dtype) ? plain->dtype : FileDType::kF32;
}

// Whether the file has a quantized parameter in the form that graphs read.
bool ParameterFile::has_form(const QuantizedSlot& slot) const {
  const Piece first = pieces_of(slot.slot.spec.name, slot.shape).front();
  const SafetensorsEntry* entry = tensors_.find(first.name);
  const bool has_sums = tensors_.find(slot.slot.spec.name + kSums) != nullptr;
  return entry && entry->dtype == first.dtype && has_sums == (slot.shape.format == WeightFormat::kInt8);
}

void ParameterFile::read_values(const ParameterSpec& spec, float* values) const {
  check(spec);
  const std::optional<PackedShape> packed = packed_shape(spec);
  if (!packed) {
    const SafetensorsEntry& entry = *tensors_.find(spec.name);
    return read_floats(entry.dtype, entry.data, spec.shape.elements(), values);
  }
  dequantize_unaligned(*packed, packed_bytes(spec.name, *packed), values);
}

void ParameterFile::check_weights() const {
  if (opened_) opened_->check_weights();
}

void ParameterFile::read(const ParameterLayout& layout, const ParameterTarget& target, const Missing& missing) const {
  check_weights();
  for (const ParameterSlot& slot : layout.parameters()) {
    if (missing && !has(slot.spec.name)) missing(slot);
    else read_values(slot.spec, target.flat + slot.offset);
    target.finish(slot);
  }
}

bool ParameterFile::load(const Store& store, const ParameterLayout& layout, ThreadPool& pool, WeightCheck check) const {
  for (const ParameterSlot& slot : layout.parameters())
    if (!has(slot.spec.name)) return false;
  if (check == WeightCheck::kNow) check_weights();
  if (store.device().is_host() && can_map(layout)) {
    map(store, layout);
    return true;
  }
  std::vector<float> values;
  for (const ParameterSlot& slot : layout.parameters()) {
    if (!layout.is_quantized(slot)) {
      read_values(slot.spec, store.as<float>(state::kParameters) + slot.offset);
      continue;
    }
    const QuantizedSlot& quantized = layout.quantized_slot(slot);
    if (has_form(quantized)) {
      const std::byte* from = packed_bytes(slot.spec.name, quantized.shape);
      std::memcpy(store.data(quantized.input()), from, quantized.shape.bytes());
      store.push(quantized.input());
      continue;
    }
    values.resize(slot.spec.shape.elements());
    read_values(slot.spec, values.data());
    write_quantized(store, quantized, values.data(), pool);
  }
  if (check == WeightCheck::kNow) check_weights();
  return true;
}

// Null if the file does not have them as fp32.
const std::byte* ParameterFile::flat_values(const ParameterSlot& slot) const {
  const SafetensorsEntry* entry = tensors_.find(slot.spec.name);
  return entry && entry->dtype == FileDType::kF32 && entry->type.shape == slot.spec.shape ? entry->data : nullptr;
}

bool ParameterFile::can_map(const ParameterLayout& layout) const {
  if (!shared()) return false;
  const std::byte* const begin = shared()->bytes().data();
  const auto begins_page = [&](const std::byte* data) {
    return data >= begin && static_cast<size_t>(data - begin) % SharedFile::kPage == 0;
  };
  const std::byte *flat = nullptr, *packed = nullptr;
  for (const ParameterSlot& slot : layout.parameters()) {
    if (layout.is_quantized(slot)) continue;
    const std::byte* data = flat_values(slot);
    if (!flat) flat = data;
    if (!data || data != flat + float_bytes(slot.offset)) return false;
  }
  for (const QuantizedSlot& slot : layout.quantized()) {
    if (!has_form(slot)) return false;
    const std::byte* data = packed_bytes(slot.slot.spec.name, slot.shape);
    if (!packed) packed = data;
    if (data != packed + slot.offset) return false;
  }
  return (!flat || begins_page(flat)) && (!packed || begins_page(packed));
}

void ParameterFile::map(const Store& store, const ParameterLayout& layout) const {
  const auto put = [&](const std::string& input, const std::byte* data, size_t bytes) {
    shared()->map_over(store.data(input), static_cast<size_t>(data - shared()->bytes().data()), bytes);
  };
  if (!layout.quantized().empty()) {
    const QuantizedSlot& first = layout.quantized().front();
    put(first.input(), packed_bytes(first.slot.spec.name, first.shape), layout.quantized_bytes());
  }
  if (layout.stored_count() > 0)
    put("parameters", flat_values(layout.parameters().front()), float_bytes(layout.stored_count()));
}

WeightQuantization quantization_of(const std::string& folder, const WeightQuantization& asked) {
  const std::unique_ptr<const ParameterFile> file = ParameterFile::open(folder);
  if (!file) return asked;
  const WeightQuantization packed = file->words().parsed();
  if (asked.any() && packed.any() && asked != packed)
    fail_user("'", folder, "' was packed with ", file->words().text(), ": leave --quantize and --keep out");
  return packed.any() ? packed : asked;
}

std::vector<WeightSource> parameter_sources(
    const Store& store, const ParameterLayout& layout, const std::map<std::string, FileDType>& dtypes) {
  std::vector<WeightSource> sources;
  size_t bytes = 0;
  const auto add = [&](WeightSource source) {
    bytes += source.bytes();
    sources.push_back(std::move(source));
  };
  const auto add_padding = [&](const std::string& name) {
    if (const auto count = static_cast<int64_t>(to_page(bytes)))
      add({name, FileDType::kU8, {count},
          [](int64_t, int64_t n, std::byte* out) { std::fill_n(out, n, std::byte{}); }});
  };
  for (const QuantizedSlot& slot : layout.quantized())
    for (const Piece& piece : pieces_of(slot.slot.spec.name, slot.shape))
      add(stored_weight(piece.name, piece.dtype, piece.shape, store.data(slot.input()) + piece.offset));
  add_padding("linnet.padding");
  for (const ParameterSlot& slot : layout.parameters()) {
    if (layout.is_quantized(slot)) continue;
    const FileDType dtype = find_or(dtypes, slot.spec.name, FileDType::kF32);
    const float* values = store.as<float>(state::kParameters) + slot.offset;
    add({slot.spec.name, dtype, slot.spec.shape, [values, dtype](int64_t first, int64_t count, std::byte* out) {
           write_floats(dtype, values + first, count, out);
         }});
  }
  add_padding("linnet.padding.1");
  return sources;
}
}  // namespace linnet
