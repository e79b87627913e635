// Writes a model as an ONNX file whose batch and lengths stay open.
//
//   OnnxSource source{.symbols = {"batch_size", "sequence_length"}, .trace = [&](Trace& trace, auto sizes) {
//     const Tensor tokens = trace.input("input_ids", {DType::kI32, {sizes[0], sizes[1]}});
//     trace.graph().output("logits", model(tokens));
//   }};
//   save_onnx(model, layout, parameters, source, "model.onnx");
//
// The model is traced at several sets of sizes; traces must be alike but for sizes, and each size must follow from the
// symbols (onnx/lowering/lowering.h). Ops become ONNX nodes by onnx/lowering, or by their decomposition.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>
#include "base/enum_names.h"
#include "models/families/pretrained.h"
#include "models/modules/encoder_decoder.h"
#include "models/modules/image_model.h"
#include "models/modules/text_decoder.h"
#include "models/nn/parameter_layout.h"
#include "models/nn/trace.h"
#include "onnx/file/model.h"
#include "onnx/lowering/lowering.h"

namespace linnet {
enum class OnnxPrecision {
  kF32,
  kF16,          // weights and computation; inputs and outputs of the model stay float32
  kInt8Dynamic,  // 8-bit products: activations are quantized at run time, each tensor by its range
  kInt8Qdq,      // 8-bit weights, each with a DequantizeLinear: the form for TensorRT and ONNX Runtime
};
template <> inline constexpr std::array kEnumNames<OnnxPrecision>{"fp32", "fp16", "int8-dynamic", "int8-qdq"};

// By parameter: the scale of its product's input, from calibration or training for static int8.
using InputScales = std::map<std::string, float>;

OnnxPrecision onnx_precision(const std::string& name);  // user error for an unknown name

// Changes a model in fp32. 8-bit weights are those of matrix products (with int8-qdq also convolutions) without
// other readers, with a scale per output channel and zero point 0, from -127 to 127; with int8-dynamic from -63 to 63,
// as pairs of larger products overflow the 16-bit sums of processors without VNNI. Scales are found now, values are
// written piece by piece. With int8-qdq and input scales, only weights with one get 8 bits, and their products' inputs
// go through QuantizeLinear and DequantizeLinear with zero point 0, so that a runtime can multiply 8-bit numbers.
void set_precision(OnnxModel& model, OnnxPrecision precision, const InputScales& input_scales = {});

// The traced input "lengths" i32 [B] is in ONNX a mask int64 [B, keys], 1 for valid keys.
struct OnnxMask {
  std::string lengths, name;
  SymbolicShape shape;
};

struct OnnxSource {
  std::vector<std::string> symbols;  // names of sizes known at run time
  // Declares inputs and names outputs, with the file's names and order; sizes[i] is that of symbols[i].
  std::function<void(Trace& trace, std::span<const int64_t> sizes)> trace;
  std::vector<OnnxMask> masks = {};
  SizeSets sizes = {};                          // sizes to trace at; empty: small ones
  std::vector<std::string> first_outputs = {};  // outputs that come before the others
  OnnxForm form = {};
};

struct OnnxOptions {
  int64_t opset = 17;  // 14 to 18
  OnnxPrecision precision = OnnxPrecision::kF32;
  InputScales input_scales = {};  // of kInt8Qdq
};

// `parameters` in the order of `layout`. User error naming op and line if ONNX cannot express the computation.
void save_onnx(const ParameterLayout& layout, const float* parameters, const OnnxSource& source,
    const std::string& path, const OnnxOptions& options = {});

// An ONNX file of a model's folder, with optimum's names of inputs, outputs and files (ORTModel classes).
struct OnnxFile {
  std::string name;  // "model.onnx"
  OnnxSource source;
  // A merged decoder's computation if its input "use_cache_branch" is true; otherwise `source`.
  std::optional<OnnxSource> with_past = {};
  // Merged decoders declare no size of keys and values: without a past, optimum passes tensors of width / heads, unread
  // and maybe of another size than the heads.
  bool any_head_size = false;
};

struct OnnxFileOptions {
  bool cache = true;  // decoders take and return earlier keys and values
  // GPT-2: past_<i> and present_<i> [2, B, heads, T, size] join a layer's keys and values, which ONNX Runtime's
  // transformer optimizer turns into one Attention.
  bool joined_past = false;
};

// Writes the file in a folder that exists.
void save_onnx(const ParameterLayout& layout, const float* parameters, const OnnxFile& file, const std::string& folder,
    const OnnxOptions& options);

// User error for an unsupported model. The model must outlive the result.
std::vector<OnnxFile> onnx_files(const PretrainedModel& model, const OnnxFileOptions& options = {});
std::vector<OnnxFile> onnx_files(TextDecoder& model, const OnnxFileOptions& options = {});
std::vector<OnnxFile> onnx_files(EncoderDecoder& model, const OnnxFileOptions& options = {});
std::vector<OnnxFile> onnx_files(ImageModel& model);

struct OnnxFolderOptions {
  OnnxOptions onnx = {};
  OnnxFileOptions files = {};
};

// Writes ONNX files, config.json, generation_config.json and tokenizer files for optimum, Transformers.js and others.
void export_onnx_folder(const PretrainedModel& model, const ParameterLayout& layout, const float* parameters,
    const std::string& folder, const OnnxFolderOptions& options = {});
}  // namespace linnet
