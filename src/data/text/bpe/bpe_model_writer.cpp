#include "data/text/bpe/bpe_model.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/pipeline/tokenizer_tables.h"

namespace linnet {

std::string BpeModel::settings_json() const {
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? std::string("null") : quote_json(text);
  };
  return "\"type\":\"BPE\",\"dropout\":null,\"unk_token\":" + text_or_null(options_.unknown_piece) +
         ",\"continuing_subword_prefix\":" + text_or_null(options_.continuing_prefix) +
         ",\"end_of_word_suffix\":" + text_or_null(options_.word_suffix) +
         ",\"fuse_unk\":" + flag(options_.fuse_unknown) + ",\"byte_fallback\":" + flag(options_.byte_fallback) +
         +",\"ignore_merges\":" + flag(options_.ignore_merges);
}

std::string BpeModel::to_json() const {
  std::string json = "{" + settings_json() + ",\"vocab\":" + vocabulary_json(vocabulary_) + ",\n\"merges\":[";
  // "a b" where no piece has a space: every version of tokenizers reads that.
  bool spaces = false;
  for (const auto& [left, right] : merges_)
    for (const TokenId id : {left, right}) spaces = spaces || vocabulary_.piece(id).find(' ') != std::string_view::npos;
  const char* separator = "\n";
  for (const auto& [left, right] : merges_) {
    const std::string l(vocabulary_.piece(left)), r(vocabulary_.piece(right));
    json += separator;
    json += spaces ? "[" + quote_json(l) + "," + quote_json(r) + "]" : quote_json(l + " " + r);
    separator = ",\n";
  }
  return json + "]}";
}

void BpeModel::add_tables(TokenizerTableWriter& tables) const {
  tables.set(TokenizerTable::kPairs, pairs_);
  tables.set(TokenizerTable::kMerges, merges_);
}

}  // namespace linnet
