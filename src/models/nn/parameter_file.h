// The weights of a packed model (formats/packed_model.h) in the form and order in which graphs read them, so that the
// file's pages can be the model's memory. Tensors are named after the parameters:
//
//   NAME           a parameter that is not quantized: F32, or the type that the folder had all of it in
//   NAME           BF16 [rows, columns]: WeightFormat::kBf16
//   NAME.codes     I8 [panels, blocks, 8, 16, 4] of kInt8 and kInt8Blocks; of kInt4Blocks, with two codes per byte,
//                  U8 [panels, blocks, 4, 16, 4] (engine/kernels/quantized/packed_weight.h)
//   NAME.scales    F32 [panels * 16] of kInt8, BF16 [panels, blocks, 16] of the others
//   NAME.sums      I32 [panels * 16], of kInt8 alone
//   NAME.padding   U8, where the parts before it do not make a multiple of 64 bytes
//   linnet.padding U8, up to the next page: behind the quantized parameters, and behind the others
//   __metadata__   linnet_parameters: {"quantize": "int8", "tables": "", "keep": ["head*"]}, see parse_quantization()
//
// Quantized parameters come first, then the others, each in the order of ParameterLayout without gaps. The first begin
// a page and are the region of packed weights; the others begin another and are the flat buffer.
#pragma once
#include "base/files.h"
#include "formats/packed_model.h"
#include "models/nn/parameter_layout.h"

namespace linnet {
constexpr const char* kParametersKey = "linnet_parameters";  // of the metadata

// What the model was packed with, in the words of the command line.
struct QuantizationWords {
  std::string quantize = "none";
  std::string tables = {};  // embeddings, and heads that share their weight; "": as `quantize` says
  std::vector<std::string> keep = {};

  WeightQuantization parsed() const;
  std::string text() const;  // "--quantize int8 --keep head*"
};

// When the weights are compared with their checksums (PackedFiles::check()).
enum class WeightCheck {
  kNow,    // before they are used
  kLater,  // by whoever asked for this, before an answer that was computed with them counts
};

class ParameterFile {
 public:
  // Null if `folder` is no packed model, or one whose tensors are those of its folder.
  static std::unique_ptr<const ParameterFile> open(const std::string& folder);
  // User error for metadata that are not as above. `tensors` must outlive this object unless `opened` keeps them;
  // without `opened` nothing is mapped or compared.
  ParameterFile(const SafetensorsFile& tensors, std::shared_ptr<const OpenedPackedModel> opened);

  const std::string& path() const { return tensors_.path(); }
  const QuantizationWords& words() const { return words_; }
  const SafetensorsMetadata& metadata() const { return tensors_.metadata(); }
  bool has(const std::string& parameter) const { return find(parameter) != nullptr; }
  // User error if it is missing, of another shape or incomplete.
  void check(const ParameterSpec& parameter) const;
  FileDType dtype(const std::string& parameter) const;  // F32 for quantized ones

  // Puts all parameters where graphs read them: the file's pages become the store's memory if they lie as its regions
  // do, otherwise they are copied. Nobody may write to the parameters afterwards. Returns false and does nothing if the
  // file lacks a parameter. The store has its memory. On a device the caller pushes state::kParameters; packed weights
  // are pushed here.
  bool load(
      const Store& store, const ParameterLayout& layout, ThreadPool& pool, WeightCheck check = WeightCheck::kNow) const;
  void check_weights() const;  // OpenedPackedModel's
  bool can_map(const ParameterLayout& layout) const;
  // Fills a flat buffer with the weights' values. Without `missing`, parameters that the file lacks are user errors.
  using Missing = std::function<void(const ParameterSlot& slot)>;
  void read(const ParameterLayout& layout, const ParameterTarget& target, const Missing& missing = {}) const;

 private:
  const SafetensorsEntry* find(const std::string& parameter) const;
  std::optional<PackedShape> packed_shape(const ParameterSpec& spec) const;
  const std::byte* packed_bytes(const std::string& name, const PackedShape& shape) const;
  const std::byte* flat_values(const ParameterSlot& slot) const;
  void map(const Store& store, const ParameterLayout& layout) const;
  bool has_form(const QuantizedSlot& slot) const;
  void read_values(const ParameterSpec& spec, float* values) const;
  [[noreturn]] void fail(const std::string& problem) const;

  const SharedFile* shared() const { return opened_ ? &opened_->file : nullptr; }

  const SafetensorsFile& tensors_;
  const std::shared_ptr<const OpenedPackedModel> opened_;
  QuantizationWords words_;
};

// How to keep a model's weights: as packed or, if it is not packed or in fp32, as asked. User error if these differ.
WeightQuantization quantization_of(const std::string& folder, const WeightQuantization& asked);

// The tensors of the parameters in `store` (see declare_model()), in the order of the file. `dtypes`: of parameters
// that are not quantized, by name; F32 for others. The store must outlive them.
std::vector<WeightSource> parameter_sources(
    const Store& store, const ParameterLayout& layout, const std::map<std::string, FileDType>& dtypes);
std::string parameters_metadata(const QuantizationWords& words);
}  // namespace linnet
