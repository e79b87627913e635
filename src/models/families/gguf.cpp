#include "models/families/gguf.h"
#include "base/functions.h"
#include "models/families/binding.h"
#include "models/families/family.h"

namespace linnet {
namespace {
constexpr int64_t kMostExperts = 65536;

// A list with one number per layer becomes a number if all are equal.
Json one_value(const GgufFile& file, const std::string& name, const Json& value) {
  if (!value.is_array()) return value;
  if (value.empty() || std::any_of(value.begin(), value.end(), [&](const Json& other) { return other != value[0]; }))
    file.fail("its layers differ in " + quoted_name(name) + ", which Linnet does not support");
  return value[0];
}

// Of a tensor under the file's own name.
std::vector<double> floats_of(const GgufFile& file, const TensorEntry& entry) {
  std::vector<float> values(entry.type.shape.elements());
  file.GgufFile::read(entry, values.data());
  return {values.begin(), values.end()};
}

// Adds what keys and tensors say of rotary positions.
void add_rotary(const GgufFile& file, const GgufArchitecture& architecture, Json& config) {
  const auto key = [&](const char* name) { return file.key(architecture.name + (".rope." + std::string(name))); };
  const auto whole_number = [](const Json* value) { return value && value->is_integer(1, 1 << 30); };
  const Json *turned = key("dimension_count"), *size = config.find("head_dim"), *width = config.find("hidden_size"),
             *heads = config.find("num_attention_heads");
  if (whole_number(turned) && whole_number(width) && whole_number(heads)) {
    const int64_t whole = whole_number(size) ? size->get<int64_t>() : width->get<int64_t>() / heads->get<int64_t>();
    if (whole > 0) config[architecture.share_key] = turned->get<double>() / static_cast<double>(whole);
    if (turned->get<int64_t>() != whole && !contains(std::vector<std::string>{"phi3", "gptneox"}, architecture.name))
      file.fail("\"rope.dimension_count\" is not the size of its heads");
  }
  const Json* type = key("scaling.type");
  const Json* factor = key("scaling.factor");
  if (!factor) factor = key("scale_linear");  // the name in old files
  const bool is_scaled = factor && factor->is_number() && factor->get<double>() > 0;
  const std::string name = type && type->is_string() ? type->text() : is_scaled ? "linear" : "none";
  Json scaling = Json::object();
  const TensorEntry *freqs = file.find("rope_freqs.weight"), *longer = file.find("rope_factors_long.weight"),
                    *shorter = file.find("rope_factors_short.weight");
  if (freqs) shorter = longer = freqs;
  const Json *original = key("scaling.original_context_length"), *attention = key("scaling.attn_factor");
  if (shorter) {
    // These divisors of frequencies are equivalent to Llama 3's scaling.
    scaling["rope_type"] = "longrope";
    scaling["short_factor"] = floats_of(file, *shorter);
    scaling["long_factor"] = floats_of(file, longer ? *longer : *shorter);
    if (freqs || attention) scaling["attention_factor"] = attention && !freqs ? *attention : Json(1.0);
    if (original && !freqs) config["original_max_position_embeddings"] = *original;
  } else if (name != "none" && name != "longrope") {
    scaling["rope_type"] = name;
    if (factor) scaling["factor"] = *factor;
    if (name == "yarn" && is_scaled && attention)  // llama.cpp multiplies YaRN's own factor by it
      scaling["attention_factor"] =
          attention->get<double>() * (0.1 * std::log(std::max(factor->get<double>(), 1.0)) + 1);
    if (original) scaling["original_max_position_embeddings"] = *original;
  }
  if (!scaling.empty()) config["rope_scaling"] = std::move(scaling);
}

using Names = GgufArchitecture::Names;

// Names of Llama and similar architectures; theirs first.
const Names kTensors = {{"token_embd", "embed_tokens"}, {"output_norm", "norm"}, {"output", "lm_head"},
    {"attn_norm", "input_layernorm"}, {"attn_q", "self_attn.q_proj"}, {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"}, {"attn_qkv", "self_attn.qkv_proj"}, {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"}, {"ffn_up", "mlp.up_proj"}, {"ffn_down", "mlp.down_proj"},
    {"ffn_gate_inp", "mlp.gate"}, {"ffn_gate_exps", "mlp.experts.*.gate_proj"},
    {"ffn_up_exps", "mlp.experts.*.up_proj"}, {"ffn_down_exps", "mlp.experts.*.down_proj"}};
const Names kKeys = {{"context_length", "max_position_embeddings"}, {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"}, {"block_count", "num_hidden_layers"},
    {"attention.head_count", "num_attention_heads"}, {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"}, {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.layer_norm_epsilon", "layer_norm_eps"}, {"attention.sliding_window", "sliding_window"},
    {"attention.clamp_kqv", "clip_qkv"}, {"rope.freq_base", "rope_theta"}, {"expert_count", "num_local_experts"},
    {"expert_used_count", "num_experts_per_tok"}, {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_weights_norm", "norm_topk_prob"}, {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"}};

const Names kResultNorms = {{"post_attention_norm", "post_attention_layernorm"},
                {"post_ffw_norm", "post_feedforward_layernorm"}},
            kFourNorms = {{"ffn_norm", "pre_feedforward_layernorm"}, kResultNorms[0], kResultNorms[1]};

const std::vector<GgufArchitecture>& gguf_architectures() {
  static const std::vector<GgufArchitecture> all = {{.name = "llama", .pairs = true},
      {.name = "llama", .model_type = "mistral", .pairs = true},
      {.name = "llama",
          .model_type = "mixtral",
          .has_experts = true,
          .pairs = true,
          .tensors = {{"ffn_gate_inp", "block_sparse_moe.gate"}, {"ffn_gate_exps", "block_sparse_moe.experts.*.w1"},
              {"ffn_up_exps", "block_sparse_moe.experts.*.w3"}, {"ffn_down_exps", "block_sparse_moe.experts.*.w2"}}},
      {.name = "qwen2", .pre = "qwen2"}, {.name = "qwen3", .pre = "qwen2"},
      {.name = "qwen3moe", .model_type = "qwen3_moe", .has_experts = true, .pre = "qwen2"},
      {.name = "gemma", .plus_one = true}, {.name = "gemma2", .plus_one = true, .tensors = kFourNorms},
      {.name = "gemma3",
          .model_type = "gemma3_text",
          .plus_one = true,
          .tensors = kFourNorms,
          .keys = {{"rope.freq_base_swa", "rope_local_base_freq"}}},
      {.name = "phi3", .tensors = {{"ffn_up", "mlp.gate_up_proj"}}, .pre = "gpt-4o"},
      {.name = "olmo2", .tensors = kResultNorms, .pre = "dbrx"}, {.name = "olmoe", .has_experts = true, .pre = "olmo"},
      {.name = "granite",
          .pairs = true,
          .keys = {{"attention.scale", "attention_multiplier"}, {"embedding_scale", "embedding_multiplier"},
              {"residual_scale", "residual_multiplier"}, {"logit_scale", "logits_scaling"}},
          .pre = "refact"},
      {.name = "smollm3", .pairs = true},
      {.name = "starcoder2",
          .tensors = {{"ffn_up", "mlp.c_fc"}, {"ffn_down", "mlp.c_proj"}},
          .keys = {{"attention.layer_norm_epsilon", "norm_epsilon"}},
          .bias_key = "use_bias",
          .pre = "starcoder"},
      {.name = "gptneox",
          .model_type = "gpt_neox",
          .prefix = "gpt_neox.",
          .tensors = {{"token_embd", "embed_in"}, {"output_norm", "final_layer_norm"}, {"output", "embed_out"},
              {"attn_qkv", "attention.query_key_value"}, {"attn_output", "attention.dense"},
              {"ffn_up", "mlp.dense_h_to_4h"}, {"ffn_down", "mlp.dense_4h_to_h"}},
          .keys = {{"rope.freq_base", "rotary_emb_base"}, {"use_parallel_residual", "use_parallel_residual"}},
          .share_key = "rotary_pct",
          .pre = "olmo"},
      {.name = "gpt2",
          .transposed = true,
          .prefix = "transformer.",
          .layers = "h.",
          .tensors = {{"token_embd", "wte"}, {"position_embd", "wpe"}, {"output_norm", "ln_f"}, {"attn_norm", "ln_1"},
              {"ffn_norm", "ln_2"}, {"attn_qkv", "attn.c_attn"}, {"attn_output", "attn.c_proj"}, {"ffn_up", "mlp.c_fc"},
              {"ffn_down", "mlp.c_proj"}},
          .keys = {{"context_length", "n_positions"}, {"embedding_length", "n_embd"},
              {"feed_forward_length", "n_inner"}, {"block_count", "n_layer"}, {"attention.head_count", "n_head"},
              {"attention.head_count_kv", ""}, {"attention.layer_norm_epsilon", "layer_norm_epsilon"}},
          .pre = "gpt-2"}};
  return all;
}

std::string named(const Names& own, const Names& common, std::string_view theirs) {  // "" if neither has it
  for (const Names* names : {&own, &common})
    for (const auto& [name, ours] : *names)
      if (theirs == name) return ours;
  return "";
}
}  // namespace

GgufModel::GgufModel(const std::string& path) : GgufFile(path) { take(); }
GgufModel::GgufModel(std::span<const std::byte> bytes, const std::string& name) : GgufFile(bytes, name) { take(); }

std::string GgufModel::config(const GgufArchitecture& architecture) const {
  Json config = Json::object();
  config["architectures"] =
      std::vector<std::string>{find_family(architecture.model_type).architecture(ModelHead::kTokens).name};
  config["model_type"] = architecture.model_type;
  for (const auto& [theirs, ours] : gguf_keys(architecture)) {
    const std::string name = std::string(architecture.name) + "." + theirs;
    if (const Json* value = key(name)) config[ours] = one_value(*this, name, *value);
  }
  const TensorEntry* tokens = find("token_embd.weight");
  if (!tokens || tokens->type.shape.rank() != 2) fail("it has no tensor token_embd.weight of two axes");
  config["vocab_size"] = tokens->type.shape[0];
  config["tie_word_embeddings"] = find("output.weight") == nullptr;
  config[architecture.bias_key] = find("blk.0.attn_q.bias") || find("blk.0.attn_qkv.bias");
  if (architecture.pairs) config["mlp_bias"] = find("blk.0.ffn_down.bias") != nullptr;
  for (const auto& [theirs, ours] :
      {std::pair("bos", "bos_token_id"), {"eos", "eos_token_id"}, {"padding", "pad_token_id"}})
    if (const Json* id = key("tokenizer.ggml." + std::string(theirs) + "_token_id")) config[ours] = *id;
  add_rotary(*this, architecture, config);
  const std::string type = architecture.model_type;
  if (type == "gemma2" || type == "gemma3_text") {
    // The largest of each scales scores by another number, which no key gives.
    const bool largest = config.value("num_hidden_layers", 0) == (type == "gemma2" ? 46 : 62);
    const int64_t heads = config.value("num_attention_heads", int64_t{1}),
                  size = config.value("head_dim", int64_t{256});
    config["query_pre_attn_scalar"] = largest && heads > 0 ? config.value("hidden_size", int64_t{1}) / heads : size;
  }
  if (type == "qwen3_moe" && !config.contains("norm_topk_prob")) config["norm_topk_prob"] = true;
  return config.dump(2) + "\n";
}

void GgufModel::take() {
  if (const Json* parts = key("split.count"); parts && *parts != Json(1) && *parts != Json(0))
    fail("it is one of " + shown(*parts) + " files; llama.cpp's `llama-gguf-split --merge` makes one of them");
  const GgufArchitecture& architecture = find_gguf_architecture(*this);
  for (const auto& [name, value] : keys())
    if (name.starts_with(architecture.name + std::string(".")) && value.is_float() &&
        !std::isfinite(value.get<double>()))
      fail(quoted_name(name) + " is not a finite number");
  files_ = gguf_tokenizer_files(*this, architecture);
  try {
    files_["config.json"] = config(architecture);
  } catch (const JsonError& error) {
    fail(std::string("a key has a value of another type: ") + error.what());
  }
  const auto count = [&](const char* name, int64_t otherwise) {
    const Json* value = key(std::string(architecture.name) + ".attention." + name);
    if (value && value->is_array() && !value->empty()) value = &(*value)[0];
    return value && value->is_integer(1, 1 << 20) ? value->get<int64_t>() : otherwise;
  };
  const int64_t heads = count("head_count", 1), kv_heads = count("head_count_kv", heads);
  std::vector<TensorEntry> entries;
  for (const TensorEntry& source : entries_) {
    if (source.name.starts_with("rope_f")) continue;  // in the configuration
    const GgufName found = gguf_name(architecture, source.name);
    Part part{source, found.form, found.queries || found.form != GgufForm::kPairs ? heads : kv_heads};
    TensorEntry entry = source;
    entry.name = found.name.empty() ? source.name : found.name;
    if (found.form == GgufForm::kPlusOne) entry.dtype = FileDType::kF32;
    const Shape& shape = source.type.shape;
    const int64_t unit = found.form == GgufForm::kPairs ? 2 * part.heads : 3 * part.heads;
    const bool rows = found.form == GgufForm::kPairs || found.form == GgufForm::kByPart;
    const bool fits =
        rows ? shape.rank() > 0 && shape[0] % unit == 0 : found.form != GgufForm::kTransposed || shape.rank() == 2;
    if (!fits) fail("tensor " + quoted_name(source.name) + " is " + source.text() + ", which does not fit its heads");
    if (found.form == GgufForm::kTransposed) entry.type.shape = {shape[1], shape[0]};
    const size_t star = found.name.find('*');
    if (star == found.name.npos || shape.rank() != 3) {
      entries.push_back(std::move(entry)), parts_.push_back(std::move(part));
      continue;
    }
    const int64_t experts = shape[0];
    if (experts > kMostExperts)
      fail("tensor " + quoted_name(source.name) + " is of " + std::to_string(experts) + " experts");
    part.source.type.shape = entry.type.shape = {shape[1], shape[2]};
    part.source.form_bytes = entry.form_bytes = experts > 0 ? source.form_bytes / static_cast<size_t>(experts) : 0;
    for (int64_t i = 0; i < experts; ++i) {
      entry.name = found.name.substr(0, star) + std::to_string(i) + found.name.substr(star + 1);
      entry.data = part.source.data = source.data + static_cast<size_t>(i) * entry.form_bytes;
      entries.push_back(entry), parts_.push_back(part);
    }
  }
  entries_ = std::move(entries);
  index();
}

const std::byte* GgufModel::elements(const TensorEntry& entry, std::vector<std::byte>& room) const {
  const auto& [source, form, heads] = parts_.at(&entry - entries_.data());
  if (form == GgufForm::kSame || source.type.shape.elements() == 0) return GgufFile::elements(source, room);
  std::vector<std::byte> whole;
  const std::byte* from = GgufFile::elements(source, whole);
  const Shape& shape = source.type.shape;
  if (form == GgufForm::kPlusOne) {
    room.resize(float_bytes(shape.elements()));
    const std::span values(reinterpret_cast<float*>(room.data()), static_cast<size_t>(shape.elements()));
    read_floats(source.dtype, from, shape.elements(), values.data());
    for (float& value : values) value -= 1;
    return room.data();
  }
  const int64_t rows = shape[0], width = shape.elements() / rows;
  const size_t size = file_dtype_size(entry.dtype), row_bytes = size * static_cast<size_t>(width);
  room.resize(row_bytes * static_cast<size_t>(rows));
  if (form == GgufForm::kTransposed) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < width; ++column)
        std::memcpy(room.data() + static_cast<size_t>(column * rows + row) * size,
            from + static_cast<size_t>(row * width + column) * size, size);
    return room.data();
  }
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t their_row = gguf_row(form, heads, rows, row);
    std::memcpy(room.data() + static_cast<size_t>(row) * row_bytes, from + static_cast<size_t>(their_row) * row_bytes,
        row_bytes);
  }
  return room.data();
}

void GgufModel::read(const TensorEntry& entry, float* out) const {
  if (parts_.at(&entry - entries_.data()).form == GgufForm::kSame) return GgufFile::read(entry, out);
  std::vector<std::byte> room;
  read_floats(entry.dtype, elements(entry, room), entry.type.shape.elements(), out);
}

const std::byte* GgufModel::block_row(const TensorEntry& entry, int64_t row, bool in_file) const {
  const auto& [source, form, heads] = parts_.at(&entry - entries_.data());
  const bool is_other = form == GgufForm::kTransposed || form == GgufForm::kByPart;
  if (!source.form || source.type.shape.rank() != 2 || is_other != in_file) return nullptr;
  const int64_t rows = source.type.shape[0];
  if (form == GgufForm::kPairs) row = gguf_row(form, heads, rows, row);
  return source.data + static_cast<size_t>(row) * (source.form_bytes / static_cast<size_t>(rows));
}

int64_t gguf_row(GgufForm form, int64_t heads, int64_t rows, int64_t row) {
  if (form == GgufForm::kPairs) {
    const int64_t size = rows / heads, half = size / 2, in = row % size;
    return row - in + in % half * 2 + in / half;
  }
  return stacked_row(heads, rows, row);
}

void use_gguf_models() {
  set_packed_reader(kGgufEnding, [](const std::string& path) {
    const auto model = std::make_shared<const GgufModel>(path);
    PackedFiles files{.owner = std::static_pointer_cast<const TensorFile>(model)};
    for (const auto& [name, text] : model->files()) files.files[name] = text;
    return files;
  });
}

const GgufArchitecture& find_gguf_architecture(const GgufFile& file) {
  const Json* given = file.key("general.architecture");
  if (!given || !given->is_string()) file.fail("it has no \"general.architecture\": it is no model");
  const std::string& name = given->text();
  const Json* experts = file.key(name + ".expert_count");
  const bool has_experts = experts && experts->is_natural() && experts->get<uint64_t>() > 0;
  std::string known;
  for (const GgufArchitecture& architecture : gguf_architectures()) {
    if (name == architecture.name && has_experts == architecture.has_experts) return architecture;
    if (!known.ends_with(architecture.name)) known += (known.empty() ? "" : ", ") + std::string(architecture.name);
  }
  file.fail(
      "its architecture is " + quoted_name(name) + (has_experts ? " with experts" : "") + ", Linnet reads " + known);
}

GgufName gguf_name(const GgufArchitecture& architecture, const std::string& tensor) {
  std::string_view rest = tensor;
  std::string layer;
  if (rest.starts_with("blk.")) {
    const size_t end = rest.find('.', 4);
    if (end == rest.npos) return {};
    layer = architecture.layers + std::string(rest.substr(4, end - 3));
    rest.remove_prefix(end + 1);
  }
  const size_t point = rest.rfind('.');
  if (point == rest.npos) return {};
  const std::string_view theirs = rest.substr(0, point), ending = rest.substr(point);
  const std::string ours = named(architecture.tensors, kTensors, theirs);
  if (ours.empty()) return {};
  GgufName name{(theirs == "output" ? "" : architecture.prefix) + layer + ours + std::string(ending), GgufForm::kSame};
  const bool is_bias = ending == ".bias";
  if (architecture.pairs && (theirs == "attn_q" || theirs == "attn_k"))
    name.form = GgufForm::kPairs, name.queries = theirs == "attn_q";
  if (std::string_view(architecture.model_type) == "gpt_neox" && theirs == "attn_qkv") name.form = GgufForm::kByPart;
  if (architecture.transposed && !is_bias && !layer.empty() && !theirs.ends_with("norm"))
    name.form = GgufForm::kTransposed;
  if (architecture.plus_one && theirs.ends_with("norm")) name.form = GgufForm::kPlusOne;
  return name;
}

std::string gguf_tensor(const GgufArchitecture& architecture, const std::string& name) {
  const size_t point = name.rfind('.');
  if (point == name.npos) return "";
  std::string_view rest = std::string_view(name).substr(0, point);
  const std::string ending = name.substr(point);
  if (rest.starts_with(architecture.prefix)) rest.remove_prefix(std::string_view(architecture.prefix).size());
  std::string layer;
  if (rest.starts_with(architecture.layers)) {
    const size_t begin = std::string_view(architecture.layers).size(), end = rest.find('.', begin);
    if (end == rest.npos) return "";
    layer = "blk." + std::string(rest.substr(begin, end + 1 - begin));
    rest.remove_prefix(end + 1);
  }
  for (const Names* names : {&architecture.tensors, &kTensors})
    for (const auto& [theirs, ours] : *names)
      if (rest == ours && gguf_name(architecture, layer + theirs + ending).name == name) return layer + theirs + ending;
  return "";
}

const GgufArchitecture* gguf_architecture_of(std::string_view model_type) {
  return find_item(gguf_architectures(), model_type, &GgufArchitecture::model_type);
}

Names gguf_keys(const GgufArchitecture& architecture) {
  Names all = architecture.keys;
  for (const auto& key : kKeys)
    if (!contains(architecture.keys, std::string_view(key.first), &Names::value_type::first)) all.push_back(key);
  std::erase_if(all, [](const auto& key) { return *key.second == '\0'; });
  return all;
}
}  // namespace linnet
