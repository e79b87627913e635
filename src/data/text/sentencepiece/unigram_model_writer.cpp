#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/pipeline/tokenizer_tables.h"
#include "data/text/sentencepiece/unigram_model.h"

namespace linnet {

std::string UnigramModel::to_json() const {
  std::string json = "{" + settings_json() + ",\"vocab\":[";
  for (TokenId id = 0; id < vocabulary_.size(); ++id)
    json += (id > 0 ? ",\n[" : "\n[") + quote_json(vocabulary_.piece(id)) + "," +
            number_json(written_scores_[static_cast<size_t>(id)]) + "]";
  return json + "]}";
}

std::string UnigramModel::settings_json() const {
  return "\"type\":\"Unigram\",\"unk_id\":" + (unknown_ < 0 ? "null" : std::to_string(unknown_)) +
         ",\"byte_fallback\":" + (byte_fallback_ ? "true" : "false");
}

void UnigramModel::add_tables(TokenizerTableWriter& tables) const {
  tables.set(TokenizerTable::kWrittenScores, written_scores_);
  tables.set(TokenizerTable::kScores, scores_);
  tables.set(TokenizerTable::kTrie, trie_.units());
}

}  // namespace linnet
