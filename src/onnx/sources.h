// The ONNX files of a model's folder, with optimum's names of inputs, outputs and files (ORTModel classes).
#pragma once
#include <string>
#include <vector>
#include "models/families/pretrained.h"
#include "models/modules/encoder_decoder.h"
#include "models/modules/image_model.h"
#include "models/modules/text_decoder.h"
#include "onnx/save_onnx.h"

namespace linnet {
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
