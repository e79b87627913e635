// What the files of a model's ONNX folder compute, with the names that optimum gives them: inputs, outputs and files
// are those that its ORTModel classes look for.
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
  // Of a merged decoder: what it computes when its input "use_cache_branch" is true; `source` is what it does else.
  std::optional<OnnxSource> with_past = {};
  // The merged decoder declares no size of keys and values: optimum gives it, where nothing came before, tensors of
  // width / heads, which are not read and may be of another size than the model's heads.
  bool any_head_size = false;
};

struct OnnxFileOptions {
  bool cache = true;  // decoders take and give the keys and values of earlier positions
  // GPT-2: past_<i> and present_<i> [2, B, heads, T, size] hold a layer's keys and values together, in the form that
  // ONNX Runtime's transformer optimizer makes one Attention of.
  bool joined_past = false;
};

// Writes the file in a folder that exists.
void save_onnx(const ParameterLayout& layout, const float* parameters, const OnnxFile& file, const std::string& folder,
               const OnnxOptions& options);

// User error when there is no form of this model in ONNX. The model must outlive the result.
std::vector<OnnxFile> onnx_files(const PretrainedModel& model, const OnnxFileOptions& options = {});
std::vector<OnnxFile> onnx_files(TextDecoder& model, const OnnxFileOptions& options = {});
std::vector<OnnxFile> onnx_files(EncoderDecoder& model, const OnnxFileOptions& options = {});
std::vector<OnnxFile> onnx_files(ImageModel& model);

struct OnnxFolderOptions {
  OnnxOptions onnx = {};
  OnnxFileOptions files = {};
};

// Writes a model folder in ONNX, what optimum, Transformers.js and other programs load: the ONNX files, and
// config.json, generation_config.json and tokenizer files beside them.
void export_onnx_folder(const PretrainedModel& model, const ParameterLayout& layout, const float* parameters,
                        const std::string& folder, const OnnxFolderOptions& options = {});

}  // namespace linnet
