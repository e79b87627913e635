#include "data/text/wordpiece/word_level_model.h"
#include "base/error.h"
#include "data/text/pipeline/tokenizer_json.h"

namespace linnet {

WordLevelModel::WordLevelModel(Vocabulary vocabulary, std::string unknown_piece, std::string where)
    : unknown_piece_(std::move(unknown_piece)), where_(std::move(where)) {
  vocabulary_ = std::move(vocabulary);
  unknown_ = vocabulary_.find(unknown_piece_);
}

void WordLevelModel::tokenize(std::string_view word, ModelScratch&, std::vector<ModelToken>& tokens) const {
  const TokenId known = vocabulary_.find(word), id = known >= 0 ? known : unknown_;
  if (id < 0) fail_user(where_ + " has neither the word " + quote_json(word) + " nor '" + unknown_piece_ + "'");
  tokens.push_back({id, static_cast<uint32_t>(word.size())});
}

std::string WordLevelModel::to_json() const {
  return "{" + settings_json() + ",\"vocab\":" + vocabulary_json(vocabulary_) + "}";
}

std::string WordLevelModel::settings_json() const {
  return "\"type\":\"WordLevel\",\"unk_token\":" + quote_json(unknown_piece_);
}

}  // namespace linnet
