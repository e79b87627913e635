#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/wordpiece/wordpiece_model.h"

namespace linnet {

std::string WordPieceModel::to_json() const {
  return "{" + settings_json() + ",\"vocab\":" + vocabulary_json(vocabulary_) + "}";
}

std::string WordPieceModel::settings_json() const {
  return "\"type\":\"WordPiece\",\"unk_token\":" + quote_json(unknown_piece_) +
         ",\"continuing_subword_prefix\":" + quote_json(prefix_) +
         ",\"max_input_chars_per_word\":" + std::to_string(longest_word_);
}

}  // namespace linnet
