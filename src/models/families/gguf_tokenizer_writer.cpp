#include <algorithm>
#include <map>
#include "base/error.h"
#include "data/text/pretrained_tokenizer.h"
#include "data/text/sentencepiece/sentencepiece_proto.h"
#include "models/families/gguf.h"

namespace linnet {
namespace {

// The regular expressions by which a pre_tokenizer of tokenizer.json cuts, and whether it makes bytes of what is left.
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
    if (id < 0 || id >= size_)
      fail_user("the tokenizer has the token " + std::to_string(id) + " outside of its vocabulary");
    tokens_[static_cast<size_t>(id)] = text, types_[static_cast<size_t>(id)] = type;
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
    for (const Json& token : json.at("added_tokens"))
      if (const auto id = token.at("id").get<int64_t>(); id >= size_ || id < 0 || types_[static_cast<size_t>(id)] != 6)
        set(id, token.at("content").text(), token.value("special", false) ? 3 : 4);
    if (unknown) types_[unknown->get<size_t>()] = 2;
    if (falls_back) return add_scores(merges, has_prefix(json));
    add("model", "gpt2");
    add("pre", pre_name(patterns, model.value("ignore_merges", false)));
    add("merges", merges);
  }

  static bool has_prefix(const Json& json) {
    const std::string steps = json.at("normalizer").dump() + json.at("pre_tokenizer").dump();
    return steps.find("\"Prepend\"") != steps.npos || steps.find("\"prepend_scheme\":\"first\"") != steps.npos ||
           steps.find("\"prepend_scheme\":\"always\"") != steps.npos;
  }

  static std::string pre_name(const std::vector<std::string>& patterns, bool ignore_merges) {
    for (const bool exact : {true, false})
      for (const GgufPreTokenizer& pre : gguf_pre_tokenizers())
        if (std::ranges::equal(patterns, pre.patterns, [](const auto& a, const char* b) { return a == b; }) &&
            (!exact || pre.options.ignore_merges == ignore_merges))
          return pre.names[0];
    fail_user("the tokenizer cuts words by a rule that has no name in GGUF files which Linnet knows");
  }

  // A piece is merged before those of lower scores: the earlier its merge, the higher.
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

std::vector<std::pair<std::string, Json>> gguf_tokenizer_keys(const PretrainedTokenizer& tokenizer,
                                                              int64_t vocab_size) {
  return TokenizerKeys(tokenizer, vocab_size).all;
}

}  // namespace linnet
