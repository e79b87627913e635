// Makes tokenizer files of a model folder from a file of llama.cpp.
#include <set>
#include "base/json.h"
#include "base/protobuf.h"
#include "data/text/sentencepiece/sentencepiece_pretrained.h"
#include "models/families/gguf.h"

namespace linnet {
#define LINNET_CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LINNET_WORD "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define LINNET_REST " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LINNET_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LINNET_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LINNET_CASED(ending)                                                                               \
  "[^\\r\\n\\p{L}\\p{N}]?" LINNET_UPPER "*" LINNET_LOWER "+" ending "|[^\\r\\n\\p{L}\\p{N}]?" LINNET_UPPER \
  "+" LINNET_LOWER "*" ending
#define LINNET_CASED_REST " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const std::vector<GgufPreTokenizer>& gguf_pre_tokenizers() {
  constexpr const char* kDigit = R"(\p{N})";
  constexpr const char* kThreeDigits = LINNET_CONTRACTIONS "|" LINNET_WORD "|\\p{N}{1,3}|" LINNET_REST;
  constexpr const char* kOneDigit = LINNET_CONTRACTIONS "|" LINNET_WORD "|\\p{N}|" LINNET_REST;
  constexpr const char* kTekken = LINNET_CASED("") "|\\p{N}|" LINNET_CASED_REST;
  constexpr const char* kGpt4o = LINNET_CASED(LINNET_CONTRACTIONS "?") "|\\p{N}{1,3}|" LINNET_CASED_REST;
  static const std::vector<GgufPreTokenizer> all = {
      {{"gpt-2", "phi-2", "olmo", "mpt", "roberta-bpe", "exaone4", "jina-es", "jina-de", "jina-en", "jina-v2-es",
           "jina-v2-de", "jina-v2-en"},
          {kGpt2Expression}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2"}, {kThreeDigits},
          {.ignore_merges = true, .add_begin = true}},
      {{"dbrx", "smaug-bpe", "chatglm-bpe", "glm4"}, {kThreeDigits}},
      {{"qwen2", "deepseek-r1-qwen", "megrez"}, {kOneDigit}, {.nfc = true}},
      {{"stablelm2", "hunyuan"}, {kOneDigit}},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "minerva-7b"}, {kDigit, kGpt2Expression}},
      {{"tekken"}, {kTekken}, {.ignore_merges = true, .add_begin = true}},
      {{"gpt-4o", "llama4"}, {kGpt4o}},
  };
  return all;
}

namespace {
using enum SentencePieceModelFile::Type;

class TokenizerReader {
 public:
  TokenizerReader(const GgufFile& file, const GgufArchitecture& architecture)
      : file_(file), architecture_(architecture) {}

  std::map<std::string, std::string> files() {
    const std::string model = text("model", "none");
    if (model == "none") return {};
    read_tokens();
    std::map<std::string, std::string> files;
    Json config = Json::object();
    bool add_begin = true;
    if (model == "gpt2") {
      const GgufPreTokenizer& pre = pre_tokenizer();
      files["tokenizer.json"] = bpe(pre).dump();
      add_begin = pre.options.add_begin;
    } else if (model == "llama") {
      files["tokenizer.model"] = sentencepiece();
      for (size_t i = 0; i < tokens_.size(); ++i)  // those that a text may spell
        if (types_[i] == kControl) config["additional_special_tokens"].push_back(tokens_[i]);
    } else {
      file_.fail("its tokenizer is of the kind " + quoted_name(model) + ", Linnet reads gpt2 and llama");
    }
    config["tokenizer_class"] = "PreTrainedTokenizerFast";  // no class adds steps of its own
    for (const auto& [theirs, role] :
        {std::pair("bos", "bos_token"), {"eos", "eos_token"}, {"unknown", "unk_token"}, {"padding", "pad_token"}})
      if (const auto token = id(std::string(theirs) + "_token_id")) config[role] = tokens_[*token];
    config["add_bos_token"] = flag("add_bos_token", add_begin && config.contains("bos_token"));
    config["add_eos_token"] = flag("add_eos_token", false);
    if (const Json* chat = file_.key("tokenizer.chat_template"); chat && chat->is_string())
      config["chat_template"] = *chat;
    files["tokenizer_config.json"] = config.dump(2) + "\n";
    files["generation_config.json"] = generation().dump(2) + "\n";
    return files;
  }

 private:
  const Json* key(const std::string& name) const { return file_.key("tokenizer.ggml." + name); }
  [[noreturn]] void fail(const std::string& name, const std::string& problem) const {
    file_.fail("\"tokenizer.ggml." + name + "\" " + problem);
  }
  std::string text(const char* name, const char* otherwise) const {
    const Json* value = key(name);
    if (value && !value->is_string()) fail(name, "is no text");
    return value ? value->text() : otherwise;
  }
  bool flag(const char* name, bool otherwise) const {
    const Json* value = key(name);
    if (value && !value->is_boolean()) fail(name, "is neither true nor false");
    return value ? value->get<bool>() : otherwise;
  }
  // Some files give an id outside of the vocabulary for none.
  std::optional<size_t> id(const std::string& name) const {
    const Json* value = key(name);
    if (!value || !value->is_integer(0, std::ssize(tokens_) - 1)) return {};
    return value->get<size_t>();
  }
  // A list with an element per token; null: none.
  const Json* column(const char* name) const {
    const Json* values = key(name);
    if (values && (!values->is_array() || values->size() != tokens_.size()))
      fail(name, "has not one element for each of " + std::to_string(tokens_.size()) + " tokens");
    return values;
  }

  void read_tokens() {
    const Json* tokens = key("tokens");
    if (!tokens || !tokens->is_array() || tokens->empty()) fail("tokens", "is no list of tokens");
    for (const Json& token : *tokens) {
      if (!token.is_string()) fail("tokens", "holds a token that is no text");
      tokens_.push_back(token.text());
    }
    types_.assign(tokens_.size(), kNormal);
    if (const Json* types = column("token_type")) {
      for (size_t i = 0; i < types_.size(); ++i) {
        if (!(*types)[i].is_integer(kNormal, kByte)) fail("token_type", "holds " + shown((*types)[i]));
        types_[i] = (*types)[i].get<int64_t>();
      }
    } else if (const auto unknown = id("unknown_token_id")) {
      types_[*unknown] = kUnknown;
    }
  }

  const GgufPreTokenizer& pre_tokenizer() const {
    const std::string given = text("pre", "default"), name = given == "default" ? architecture_.pre : given;
    std::string known;
    for (const GgufPreTokenizer& pre : gguf_pre_tokenizers())
      for (const char* own : pre.names) {
        if (name == own) return pre;
        known += (known.empty() ? "" : ", ") + std::string(own);
      }
    fail("pre", "is " + quoted_name(name) + ", Linnet knows " + known);
  }

  Json bpe(const GgufPreTokenizer& pre) const {
    Json model = Json::object(), added = Json::array(), steps = Json::array();
    model["type"] = "BPE";
    model["ignore_merges"] = pre.options.ignore_merges;
    model["fuse_unk"] = false, model["byte_fallback"] = false;
    Json& vocabulary = model["vocab"] = Json::object();
    std::set<std::string> normal;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const bool is_added = types_[i] == kControl || types_[i] == kUserDefined;
      if (!is_added && !normal.insert(tokens_[i]).second) fail("tokens", "has " + quoted_name(tokens_[i]) + " twice");
      // A merge may give an added token, too.
      if (!is_added || !vocabulary.contains(tokens_[i])) vocabulary[tokens_[i]] = i;
      if (!is_added) continue;
      Json token = Json::object();
      token["id"] = i, token["content"] = tokens_[i];
      for (const char* option : {"single_word", "lstrip", "rstrip", "normalized"}) token[option] = false;
      token["special"] = types_[i] == kControl;
      added.push_back(std::move(token));
    }
    const Json* merges = key("merges");
    if (!merges || !merges->is_array()) fail("merges", "is no list of merges");
    model["merges"] = *merges;
    for (const char* pattern : pre.patterns)
      steps.push_back(
          Json{{"type", "Split"}, {"pattern", Json{{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
    const Json bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
    steps.push_back(bytes);
    Json json = Json::object();
    json["version"] = "1.0";
    json["truncation"] = nullptr, json["padding"] = nullptr;
    json["added_tokens"] = std::move(added);
    json["normalizer"] = pre.options.nfc ? Json{{"type", "NFC"}} : Json();
    json["pre_tokenizer"] = Json{{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
    json["post_processor"] = nullptr;
    json["decoder"] = bytes;
    json["model"] = std::move(model);
    return json;
  }

  // A ModelProto of SentencePiece.
  std::string sentencepiece() const {
    const Json* scores = column("scores");
    if (!scores) fail("scores", "is not there");
    ProtoWriter model;
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (!(*scores)[i].is_number()) fail("scores", "holds " + shown((*scores)[i]));
      ProtoWriter piece;
      piece.text(1, tokens_[i]);
      piece.real(2, (*scores)[i].get<float>());
      piece.integer(3, types_[i]);
      model.message(1, piece);
    }
    ProtoWriter trainer, normalizer;
    trainer.integer(3, 2);  // BPE
    trainer.integer(35, contains(types_, kByte));
    const auto role = [&](int number, const char* name) {
      if (const auto token = id(name)) trainer.text(number, tokens_[*token]);
    };
    role(45, "unknown_token_id"), role(46, "bos_token_id"), role(47, "eos_token_id"), role(48, "padding_token_id");
    normalizer.text(1, "identity");
    normalizer.integer(3, flag("add_space_prefix", true));
    normalizer.integer(4, flag("remove_extra_whitespaces", false));
    normalizer.integer(5, 1);
    model.message(2, trainer), model.message(3, normalizer);
    return model.bytes();
  }

  // With all tokens that end an answer, which chat models have beside the end of a text.
  Json generation() const {
    Json json = Json::object(), ends = Json::array();
    const auto add = [&](size_t id) {
      if (!contains(ends, Json(id))) ends.push_back(id);
    };
    if (const auto begin = id("bos_token_id")) json["bos_token_id"] = *begin;
    if (const auto pad = id("padding_token_id")) json["pad_token_id"] = *pad;
    for (const char* name : {"eos_token_id", "eot_token_id", "eom_token_id"})
      if (const auto end = id(name)) add(*end);
    for (size_t i = 0; i < tokens_.size(); ++i)
      if (types_[i] == kControl || types_[i] == kUserDefined)
        for (const char* end : {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|end_of_text|>"})
          if (tokens_[i] == end) add(i);
    if (!ends.empty()) json["eos_token_id"] = std::move(ends);
    return json;
  }

  const GgufFile& file_;
  const GgufArchitecture& architecture_;
  std::vector<std::string> tokens_;
  std::vector<int64_t> types_;
};
}  // namespace

std::map<std::string, std::string> gguf_tokenizer_files(const GgufFile& file, const GgufArchitecture& architecture) {
  return TokenizerReader(file, architecture).files();
}
}  // namespace linnet
