#include "data/text/wordpiece/wordpiece_model.h"
#include "base/error.h"
#include "data/text/unicode/utf8.h"

namespace linnet {

WordPieceModel::WordPieceModel(Vocabulary vocabulary, std::string unknown_piece, std::string prefix,
                               int64_t longest_word, const std::string& where)
    : unknown_piece_(std::move(unknown_piece)), prefix_(std::move(prefix)), longest_word_(longest_word) {
  vocabulary_ = std::move(vocabulary);
  unknown_ = vocabulary_.find(unknown_piece_);
  if (unknown_ < 0) fail_user(where + " has no unknown token '" + unknown_piece_ + "' in its vocabulary");
}

void WordPieceModel::tokenize(std::string_view word, ModelScratch& scratch, std::vector<ModelToken>& tokens) const {
  const size_t first = tokens.size();
  const auto give_up = [&] {
    tokens.resize(first);
    tokens.push_back({unknown_, static_cast<uint32_t>(word.size())});
  };
  // Bytes are at least characters.
  if (static_cast<int64_t>(word.size()) > longest_word_ &&
      static_cast<int64_t>(count_code_points(word)) > longest_word_)
    return give_up();
  std::string& text = scratch.text;
  for (size_t begin = 0; begin < word.size();) {
    text.assign(begin > 0 ? prefix_ : "");
    const size_t prefix = text.size(), room = vocabulary_.longest() > prefix ? vocabulary_.longest() - prefix : 0;
    text.append(word.substr(begin, room));
    TokenId id = -1;
    size_t end = begin + text.size() - prefix;
    while (end > begin) {
      id = vocabulary_.find(text);
      if (id >= 0) break;
      do {  // one character less
        --end;
        text.pop_back();
      } while (end > begin && (static_cast<unsigned char>(word[end]) & 0xC0) == 0x80);
    }
    if (id < 0) return give_up();
    tokens.push_back({id, static_cast<uint32_t>(end)});
    begin = end;
  }
}

}  // namespace linnet
