// llama.cpp's files (formats/gguf_file.h) as model folders with config.json, the tensors of model.safetensors,
// tokenizer and chat template. After use_gguf_models(), readers of model folders read "model.gguf".
#pragma once
#include "base/files.h"
#include "formats/gguf_file.h"

namespace linnet {
struct PretrainedModel;
class ParameterLayout;
class PretrainedTokenizer;

// How a tensor's rows lie in the file if not as in model.safetensors ("there").
enum class GgufForm {
  kSame,
  kPairs,       // of each head: rows that turn together are adjacent; there half a head apart
  kByPart,      // [3, heads, size]; there [heads, 3, size]
  kTransposed,  // [out, in]; there [in, out]
  kPlusOne,     // 1 more than there
};

// What general.architecture stands for.
struct GgufArchitecture {
  using Names = std::vector<std::pair<const char*, const char*>>;  // theirs, ours

  const char* name;
  const char* model_type = name;
  bool has_experts = false;
  bool pairs = false, plus_one = false, transposed = false;  // forms of queries and keys, of norms, of matrices
  const char* prefix = "model.";                             // before names of all tensors but the head
  const char* layers = "layers.";                            // and before the number of a layer
  Names tensors = {}, keys = {};                             // where they differ from Llama's (gguf.cpp)
  const char* bias_key = "attention_bias";
  const char* share_key = "partial_rotary_factor";
  const char* pre = "llama-bpe";  // of tokenizers that do not name theirs
};

const GgufArchitecture& find_gguf_architecture(const GgufFile& file);  // user error naming the file if unknown
// One tensor, or all experts' tensors in one. Empty: not a part of models.
struct GgufName {
  std::string name;  // of experts with '*' for the number
  GgufForm form;
  bool queries = false;  // of kPairs: of queries' heads, not of keys'
};
GgufName gguf_name(const GgufArchitecture& architecture, const std::string& tensor);
// The file's name of a tensor of model.safetensors, with '*' for the number of an expert; "" for others.
std::string gguf_tensor(const GgufArchitecture& architecture, const std::string& name);
const GgufArchitecture* gguf_architecture_of(std::string_view model_type);  // null: none
// For kPairs and kByPart: the row of the file's `rows` that is row `row` of model.safetensors.
int64_t gguf_row(GgufForm form, int64_t heads, int64_t rows, int64_t row);
// Names of keys, theirs without the architecture's name.
GgufArchitecture::Names gguf_keys(const GgufArchitecture& architecture);

// How text is split before tokenization, as tokenizer.ggml.pre names it.
struct GgufPreTokenizer {
  struct Options {
    bool ignore_merges = false, add_begin = false, nfc = false;
  };
  std::vector<const char*> names;
  std::vector<const char*> patterns;
  Options options = {};
};
const std::vector<GgufPreTokenizer>& gguf_pre_tokenizers();
// tokenizer.json or tokenizer.model, tokenizer_config.json and generation_config.json; none without a tokenizer.
std::map<std::string, std::string> gguf_tokenizer_files(const GgufFile& file, const GgufArchitecture& architecture);

class GgufModel : public GgufFile {
 public:
  explicit GgufModel(const std::string& path);
  GgufModel(std::span<const std::byte> bytes, const std::string& name);

  const std::map<std::string, std::string>& files() const { return files_; }
  const std::byte* elements(const TensorEntry& entry, std::vector<std::byte>& room) const override;
  void read(const TensorEntry& entry, float* out) const override;
  const std::byte* block_row(const TensorEntry& entry, int64_t row, bool in_file) const override;

 private:
  struct Part {
    TensorEntry source;
    GgufForm form;
    int64_t heads;
  };
  void take();
  std::string config(const GgufArchitecture& architecture) const;

  std::vector<Part> parts_;  // of entries()
  std::map<std::string, std::string> files_;
};

void use_gguf_models();

// Writes a decoder as a file of llama.cpp: matrices as `type`, or in F16 if their rows are no whole blocks; norms and
// biases in F32; with Q4_0, the head in Q8_0. User error if such a file cannot describe the model.
void save_gguf_model(const PretrainedModel& model, const ParameterLayout& layout, const float* parameters,
    const std::string& path, const GgufBlocks& type);
// The keys of a tokenizer for a vocabulary of that size.
std::vector<std::pair<std::string, Json>> gguf_tokenizer_keys(const PretrainedTokenizer& tokenizer, int64_t vocab_size);
}  // namespace linnet
