#include <filesystem>
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "data/text/pretrained_tokenizer.h"
#include "data/text/sentencepiece/sentencepiece_pretrained.h"
#include "models/families/binding.h"
#include "models/families/decoder_family.h"
#include "models/families/gguf.h"
#include "models/families/pretrained.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;
using ModelKeys = std::vector<std::pair<std::string, Json>>;

// All keys of a configuration, with the defaults that a folder leaves out.
Json whole_config(const ConfigFile& file) {
  const ConfigFile whole = decoder_config_file(file.text("model_type"), decoder_config(file));
  return Json::parse(whole.dump(), JsonLimits::settings());
}

// Keys whose values are floats, however a folder writes them.
bool is_real(std::string_view key) {
  for (const char* ending : {"epsilon", "freq_base", "freq_base_swa", "softcapping", "scale", "clamp_kqv"})
    if (key.ends_with(ending)) return true;
  return false;
}

std::vector<float> divisors_of(const RotaryConfig& rotary, int64_t turned) {
  if (rotary.scaling.kind == RopeScaling::Kind::kDivided) return rotary.scaling.divisors;
  const RopeAttrs scaled{.head_size = turned, .theta = rotary.theta, .scaling = rotary.scaling},
      plain{.head_size = turned, .theta = rotary.theta};
  return mapped<float>(turned / 2, [&](int64_t i) { return rope_frequency(plain, i) / rope_frequency(scaled, i); });
}

// The form that files describe by two numbers.
bool is_usual_yarn(const RopeScaling& scaling) {
  const RopeScaling usual{.kind = RopeScaling::Kind::kYarn,
      .factor = scaling.factor,
      .high_factor = 32,
      .original_length = scaling.original_length,
      .magnitude = scaling.factor <= 1 ? 1 : 0.1 * std::log(scaling.factor) + 1};
  return scaling == usual;
}

class Writer {
 public:
  Writer(const PretrainedModel& model, const ParameterLayout& layout, const float* parameters, const GgufBlocks& type)
      : model_(model), parameters_(parameters), type_(type), rows_(bind_names(model.names, layout)) {
    const std::string model_type = model.config.text("model_type");
    architecture_ = model.family->kind == FamilyKind::kDecoder ? gguf_architecture_of(model_type) : nullptr;
    if (!architecture_) fail_user("GGUF files hold no models of type \"", model_type, "\" that Linnet knows");
    config_ = whole_config(model.config);
    if (const Json* experts = config_.find("num_experts")) config_["num_local_experts"] = Json(*experts);
    const std::string_view name = architecture_->name;
    const bool has_no_window = name == "llama" || name.starts_with("qwen");
    if (has_no_window && config_.find("sliding_window") && !config_["sliding_window"].is_null())
      fail_user("a model whose positions see a window (\"sliding_window\" in config.json) cannot be written as GGUF: ",
          architecture_->name, " has none there");
  }

  void save(const std::string& path) {
    add_keys();
    add_tensors();
    std::unique_ptr<PretrainedTokenizer> tokenizer;
    if (!model_.folder.empty() && has_pretrained_tokenizer(model_.folder)) {
      tokenizer = load_pretrained_tokenizer(model_.folder);
      for (auto& key : gguf_tokenizer_keys(*tokenizer, config_["vocab_size"].get<int64_t>()))
        keys_.push_back(std::move(key));
    } else {
      keys_.emplace_back("tokenizer.ggml.model", "none");
    }
    const std::string written = path + ".part" + kGgufEnding;
    save_gguf(written, keys_, tensors_);
    try {
      compare(written);
      if (tokenizer) compare_tokens(*tokenizer, *load_pretrained_tokenizer(written));
    } catch (...) {
      fs::remove(written);
      throw;
    }
    fs::rename(written, path);
  }

 private:
  void add(const std::string& key, Json value) {
    keys_.emplace_back(architecture_->name + ("." + key), std::move(value));
  }

  void add_keys() {
    keys_.emplace_back("general.architecture", architecture_->name);
    const std::string folder = fs::path(model_.folder).lexically_normal().filename().string();
    keys_.emplace_back("general.name", folder.empty() ? model_.architecture : folder);
    constexpr std::pair<const char*, int> kFileTypes[] = {
        {"F32", 0}, {"F16", 1}, {"Q4_0", 2}, {"Q8_0", 7}, {"BF16", 32}};
    for (const auto& [name, file_type] : kFileTypes)
      if (type_.name == std::string_view(name)) keys_.emplace_back("general.file_type", file_type);
    keys_.emplace_back("general.quantization_version", 2);
    for (const auto& [theirs, ours] : gguf_keys(*architecture_)) {
      const Json* value = config_.find(ours);
      if (!value || value->is_null()) continue;
      add(theirs, is_real(theirs) ? Json(value->get<double>()) : *value);
      if (theirs == std::string_view("attention.key_length")) add("attention.value_length", *value);
    }
    add("vocab_size", config_["vocab_size"]);
    const DecoderConfig config = decoder_config(model_.config);
    if (!config.rotary) return;
    const RotaryConfig& rotary = *config.rotary;
    const auto turned = static_cast<int64_t>(std::lround(static_cast<double>(config.head_size) * rotary.share));
    add("rope.dimension_count", turned);
    const bool linear = rotary.scaling.kind == RopeScaling::Kind::kLinear;
    if (rotary.scaling.kind == RopeScaling::Kind::kNone) return;
    if (linear || is_usual_yarn(rotary.scaling)) {
      add("rope.scaling.type", linear ? "linear" : "yarn");
      add("rope.scaling.factor", rotary.scaling.factor);
      if (!linear) add("rope.scaling.original_context_length", static_cast<int64_t>(rotary.scaling.original_length));
      return;
    }
    const bool phi = std::string_view(architecture_->name) == "phi3";
    if (!phi && rotary.scaling.magnitude != 1)
      fail_user("\"attention_factor\" of \"rope_scaling\" cannot be written as GGUF of ", architecture_->name);
    if (phi) {
      add("rope.scaling.attn_factor", rotary.scaling.magnitude);
      add("rope.scaling.original_context_length", static_cast<int64_t>(rotary.scaling.original_length));
    }
    const auto add_divisors = [this](const char* name, const std::vector<float>& divisors) {
      tensors_.push_back({name, find_gguf_blocks("F32"), {std::ssize(divisors)},
          [divisors](int64_t first, int64_t count, float* out) { std::copy_n(divisors.begin() + first, count, out); }});
    };
    const std::vector<float> divisors = divisors_of(rotary, turned);
    if (phi) add_divisors("rope_factors_long.weight", rotary.long_divisors.empty() ? divisors : rotary.long_divisors);
    add_divisors(phi ? "rope_factors_short.weight" : "rope_freqs.weight", divisors);
  }

  void add_tensors() {
    std::vector<std::pair<std::string, std::vector<const BoundRow*>>> all;  // theirs, and our rows: one an expert
    for (const BoundRow& bound : rows_) {
      const TensorRole role = bound.row->role;
      if (role == TensorRole::kCopy || role == TensorRole::kConstant || role == TensorRole::kAdapter) continue;
      std::string name = bound.row->tensor;
      if (const size_t at = name.find(".experts."); at != name.npos) {
        const size_t begin = at + 9, end = name.find('.', begin);
        name.replace(begin, end - begin, "*");
      }
      const std::string theirs = gguf_tensor(*architecture_, name);
      if (theirs.empty()) fail_user("tensor ", name, " has no place in GGUF files of ", architecture_->name);
      const bool is_expert = name.find('*') != name.npos;
      auto* known = is_expert ? find_item(all, theirs, [](const auto& one) { return one.first; }) : nullptr;
      if (known) known->second.push_back(&bound);
      else all.push_back({theirs, {&bound}});
    }
    for (const auto& [theirs, rows] : all) add_tensor(theirs, rows);
  }

  void add_tensor(const std::string& name, const std::vector<const BoundRow*>& rows) {
    const GgufName form = gguf_name(*architecture_, name);
    Shape shape = rows[0]->shape;
    if (form.form == GgufForm::kTransposed) shape = {shape[1], shape[0]};
    if (form.name.find('*') != form.name.npos) shape = {std::ssize(rows), shape[0], shape[1]};
    tensors_.push_back({name, &blocks_of(name, shape), shape, nullptr});
    const char* heads = form.form == GgufForm::kPairs && !form.queries ? "num_key_value_heads" : "num_attention_heads";
    const int64_t count = config_.value(heads, int64_t{1});
    if (form.form == GgufForm::kSame) {
      const int64_t part = rows[0]->shape.elements();
      tensors_.back().fill = [this, rows, part](int64_t first, int64_t count, float* out) {
        for (int64_t done = 0; done < count;) {
          const int64_t at = first + done, in = at % part, size = std::min(part - in, count - done);
          read(*rows[at / part], in, size, out + done);
          done += size;
        }
      };
      return;
    }
    auto values = std::make_shared<std::vector<float>>();
    tensors_.back().fill = [this, bound = rows[0], form = form.form, count, values](
                               int64_t first, int64_t size, float* out) {
      if (first == 0) *values = in_their_form(*bound, form, count);
      std::copy_n(values->begin() + first, size, out);
      if (first + size == std::ssize(*values)) *values = {};
    };
  }

  const GgufBlocks& blocks_of(const std::string& name, const Shape& shape) const {
    const bool is_head =
        name == "output.weight" || (name == "token_embd.weight" && config_.value("tie_word_embeddings", false));
    const GgufBlocks* blocks = &type_;
    if (is_head && type_.name == std::string_view("Q4_0")) blocks = find_gguf_blocks("Q8_0");
    if (shape[-1] % blocks->elements != 0) blocks = find_gguf_blocks("F16");
    if (shape.rank() < 2 || name.find("ffn_gate_inp") != name.npos || name.starts_with("position_embd"))
      blocks = find_gguf_blocks("F32");
    return *blocks;
  }

  void read(const BoundRow& bound, int64_t first, int64_t count, float* out) const {
    write_tensor(bound, parameters_, FileDType::kF32, first, count, reinterpret_cast<std::byte*>(out));
  }

  std::vector<float> in_their_form(const BoundRow& bound, GgufForm form, int64_t heads) const {
    std::vector<float> ours(bound.shape.elements());
    read(bound, 0, std::ssize(ours), ours.data());
    if (form == GgufForm::kPlusOne) {
      for (float& value : ours) value += 1;
      return ours;
    }
    std::vector<float> theirs(ours.size());
    const int64_t rows = bound.shape[0], width = std::ssize(ours) / rows;
    for (int64_t row = 0; row < rows; ++row)
      if (form == GgufForm::kTransposed)
        for (int64_t column = 0; column < width; ++column) theirs[column * rows + row] = ours[row * width + column];
      else std::copy_n(ours.begin() + row * width, width, theirs.begin() + gguf_row(form, heads, rows, row) * width);
    return theirs;
  }

  // The file's keys cannot express all that config.json can, so what is read back must equal the model.
  void compare(const std::string& path) const {
    const GgufModel written(path);
    const Json other = whole_config(ConfigFile::parse(written.files().at("config.json"), path));
    for (const auto& [key, value] : config_.items()) {
      const Json* found = other.find(key);
      const bool elsewhere = key == "architectures" || key == "model_type" || key == "dtype" || key == "rope_scaling" ||
                             key.ends_with("_token_id") || key.find("dropout") != key.npos || key.ends_with("pdrop") ||
                             key == "original_max_position_embeddings" || key == "router_aux_loss_coef" ||
                             key == "initializer_range";
      if (!found || elsewhere || *found == value) continue;
      if (found->is_number() && value.is_number() &&
          std::abs(found->get<double>() - value.get<double>()) <= 1e-6 * std::abs(value.get<double>()))
        continue;
      fail_user("\"", key, "\" of the model is ", shown(value), ", which a GGUF file of ", architecture_->name,
          " cannot say (it would be ", shown(*found), ")");
    }
  }

  // The keys describe few steps of a tokenizer, so what is read back must cut these texts alike.
  static void compare_tokens(const PretrainedTokenizer& ours, const PretrainedTokenizer& written) {
    const auto differs = [&](const char* text) {
      return ours.encode(text, EncodeOptions{}).ids != written.encode(text, EncodeOptions{}).ids;
    };
    for (const auto& [text, step] :
        {std::pair("ab", "pre_tokenizer or post_processor"), {"AB", "normalizer"}, {"\u00e9 \ufb01", "normalizer"},
            {"a  b\tc", "normalizer or pre_tokenizer"}, {"it's 1234567 x_y?!", "pre_tokenizer"}})
      if (differs(text))
        fail_user("a GGUF file cannot describe the ", step, " of the model's tokenizer: ", quoted_name(text),
            " would become other tokens");
    if (differs("e\u0301"))
      log_warning(
          "the GGUF file does not describe the normalizer NFC of the model's tokenizer: letters with separate "
          "accents (e and U+0301) become other tokens");
  }

  const PretrainedModel& model_;
  const float* const parameters_;
  const GgufBlocks& type_;
  const std::vector<BoundRow> rows_;
  const GgufArchitecture* architecture_;
  Json config_;
  ModelKeys keys_;
  std::vector<GgufSource> tensors_;
};

// The regular expressions of a pre_tokenizer of tokenizer.json, and whether it turns the rest into bytes.
void add_patterns(const Json& step, std::vector<std::string>& patterns, bool& has_bytes) {
  const std::string type = step.value("type", "");
  if (const Json* steps = step.find("pretokenizers"))
    for (const Json& inner : *steps) add_patterns(inner, patterns, has_bytes);
  if (const Json* pattern = step.find("pattern")) patterns.push_back(pattern->value("Regex", ""));
  if (type == "Digits") patterns.emplace_back(step.value("individual_digits", false) ? "\\p{N}" : "\\p{N}+");
  if (type == "ByteLevel" && step.value("use_regex", true)) patterns.emplace_back(gguf_pre_tokenizers()[0].patterns[0]);
  has_bytes |= type == "ByteLevel";
}

class TokenizerKeys {
 public:
  TokenizerKeys(const PretrainedTokenizer& tokenizer, int64_t vocab_size)
      : tokenizer_(tokenizer), size_(std::max(vocab_size, tokenizer.vocab_size())) {
    for (int64_t id = 0; id < size_; ++id) tokens_.push_back(Json("[PAD" + std::to_string(id) + "]"));
    types_.assign(tokens_.size(), 5);
    scores_.assign(tokens_.size(), 0.0);
    const std::map<std::string, std::string> files = tokenizer.files();
    if (const auto file = files.find("tokenizer.json"); file != files.end())
      take_json(Json::parse(file->second, JsonLimits::tables()));
    else if (const auto model = files.find("tokenizer.model"); model != files.end())
      take_sentencepiece(read_sentencepiece_model(model->second, "tokenizer.model"));
    else fail();
    add("tokens", tokens_);
    add("token_type", types_);
    add_roles();
  }

  std::vector<std::pair<std::string, Json>> all;

 private:
  void add(const std::string& name, Json value) { all.emplace_back("tokenizer.ggml." + name, std::move(value)); }
  [[noreturn]] void fail() const {
    fail_user(
        "a tokenizer of this kind cannot be written as GGUF: Linnet writes byte-level BPE and SentencePiece's BPE");
  }
  void set(int64_t id, const std::string& text, int64_t type) {
    if (id < 0 || id >= size_) fail_user("the tokenizer has the token ", id, " outside of its vocabulary");
    tokens_[id] = text, types_[id] = type;
  }

  void take_json(const Json& json) {
    const Json& model = json.at("model");
    std::vector<std::string> patterns, merges;
    bool has_bytes = false;
    if (json.find("pre_tokenizer")) add_patterns(json.at("pre_tokenizer"), patterns, has_bytes);
    const bool falls_back = model.value("byte_fallback", false);
    if (model.value("type", "") != "BPE" || has_bytes == falls_back) fail();
    for (const auto& [text, id] : model.at("vocab").items()) {
      const bool is_byte = falls_back && text.size() == 6 && text.starts_with("<0x") && text.ends_with(">");
      set(id.get<int64_t>(), text, is_byte ? 6 : 1);
    }
    for (const Json& merge : model.at("merges"))
      merges.push_back(merge.is_array() ? merge[0].text() + " " + merge[1].text() : merge.text());
    const Json* named = model.find("unk_token");  // null in what transformers 5 writes of Llama's
    const auto unknown =
        falls_back ? model.at("vocab").find(named && named->is_string() ? named->text() : "<unk>") : nullptr;
    const Json& added = json.at("added_tokens");
    for (const char* option : {"lstrip", "rstrip", "single_word"}) {
      const auto found =
          std::find_if(added.begin(), added.end(), [&](const Json& token) { return token.value(option, false); });
      if (found != added.end())
        log_warning("the GGUF file does not describe \"" + std::string(option) + "\" of added tokens, as " +
                    quoted_name(found->at("content").text()) + " has it: text beside them may become other tokens");
    }
    for (const Json& token : added)
      if (const auto id = token.at("id").get<int64_t>(); id >= size_ || id < 0 || types_[id] != 6)
        set(id, token.at("content").text(), token.value("special", false) ? 3 : 4);
    if (unknown) types_[unknown->get<size_t>()] = 2;
    if (falls_back) return add_scores(merges, has_prefix(json));
    add("model", "gpt2");
    add("pre", pre_name(patterns, model.value("ignore_merges", false),
                   json.at("normalizer").dump().find("\"NFC\"") != std::string::npos));
    add("merges", merges);
  }

  static bool has_prefix(const Json& json) {
    const std::string steps = json.at("normalizer").dump() + json.at("pre_tokenizer").dump();
    return steps.find("\"Prepend\"") != steps.npos || steps.find("\"prepend_scheme\":\"first\"") != steps.npos ||
           steps.find("\"prepend_scheme\":\"always\"") != steps.npos;
  }

  // The options, too, are the tokenizer's if any entry has these patterns and options; `nfc` counts less.
  static std::string pre_name(const std::vector<std::string>& patterns, bool ignore_merges, bool nfc) {
    for (const int same : {2, 1, 0})
      for (const GgufPreTokenizer& pre : gguf_pre_tokenizers())
        if (std::ranges::equal(patterns, pre.patterns, [](const auto& a, const char* b) { return a == b; }) &&
            (same < 1 || pre.options.ignore_merges == ignore_merges) && (same < 2 || pre.options.nfc == nfc))
          return pre.names[0];
    fail_user("the tokenizer cuts words by a rule that has no name in GGUF files which Linnet knows");
  }

  // Pieces with higher scores merge first, so scores descend with the order of merges.
  void add_scores(const std::vector<std::string>& merges, bool prefix) {
    std::map<std::string, size_t> ranks;
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      std::string piece = merges[rank];
      piece.erase(piece.find(' '), 1);
      ranks.emplace(piece, rank);
    }
    for (size_t id = 0; id < tokens_.size(); ++id)
      if (const auto found = ranks.find(tokens_[id].text()); types_[id] == 1 && found != ranks.end())
        scores_[id] = -static_cast<double>(found->second);
      else scores_[id] = types_[id] == 1 ? -1e9 : 0.0;
    finish_scores(prefix, false);
  }

  void take_sentencepiece(const SentencePieceModelFile& file) {
    if (file.model_type != 2) fail();
    for (size_t id = 0; id < file.pieces.size(); ++id) {
      set(static_cast<int64_t>(id), file.pieces[id].text, file.pieces[id].type);
      scores_[id] = file.pieces[id].score;
    }
    if (!file.normalization.charsmap.empty())
      fail_user(
          "the tokenizer replaces characters before it cuts texts, which llama.cpp does not do with such a model");
    finish_scores(file.normalization.dummy_prefix, file.normalization.remove_extra_spaces);
  }

  void finish_scores(bool prefix, bool remove_extra) {
    add("model", "llama");
    add("pre", "default");
    add("scores", scores_);
    add("add_space_prefix", prefix);
    add("remove_extra_whitespaces", remove_extra);
  }

  void add_roles() {
    const TokenRoles& roles = tokenizer_.roles();
    const Encoding encoding = tokenizer_.encode("a", EncodeOptions{});
    for (const auto& [name, id] :
        {std::pair("bos", roles.begin), {"eos", roles.end}, {"unknown", roles.unknown}, {"padding", roles.pad}})
      if (id >= 0) add(std::string(name) + "_token_id", id);
    add("add_bos_token", roles.begin >= 0 && !encoding.ids.empty() && encoding.ids.front() == roles.begin);
    add("add_eos_token", roles.end >= 0 && !encoding.ids.empty() && encoding.ids.back() == roles.end);
    if (!tokenizer_.chat_template().empty()) all.emplace_back("tokenizer.chat_template", tokenizer_.chat_template());
  }

  const PretrainedTokenizer& tokenizer_;
  const int64_t size_;
  std::vector<Json> tokens_;
  std::vector<int64_t> types_;
  std::vector<double> scores_;
};
}  // namespace

void save_gguf_model(const PretrainedModel& model, const ParameterLayout& layout, const float* parameters,
    const std::string& path, const GgufBlocks& type) {
  Writer(model, layout, parameters, type).save(path);
}

std::vector<std::pair<std::string, Json>> gguf_tokenizer_keys(
    const PretrainedTokenizer& tokenizer, int64_t vocab_size) {
  return TokenizerKeys(tokenizer, vocab_size).all;
}
}  // namespace linnet
