#include "data/text/wordpiece/wordpiece_trainer.h"
#include <algorithm>
#include <unordered_map>
#include "base/error.h"
#include "data/text/bpe/merge_learner.h"
#include "data/text/pretrained_files.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

constexpr const char *kPrefix = "##", *kWhere = "(just trained)";
constexpr int64_t kSpecials = 5;
constexpr size_t kLongestWord = 100;  // of characters; longer ones are the unknown token

using Counts = std::unordered_map<std::string, int64_t>;

Pipeline make_pipeline(const std::vector<std::string>& pieces, bool lowercase) {
  std::string lines = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n";
  for (const std::string& piece : pieces) lines += piece + "\n";
  const Json config{{"do_lower_case", lowercase}, {"strip_accents", false}};
  return read_bert_vocabulary(lines, kWhere, "", JsonObject(config, kWhere));
}

Counts count_words(const std::vector<std::string>& texts, bool lowercase) {
  const Pipeline pipeline = make_pipeline({}, lowercase);
  PipelineScratch scratch;
  Counts words;
  for (const std::string& text : texts) {
    scratch.text.reset(text, 0, false);
    pipeline.normalizer->apply(scratch.text, scratch);
    scratch.words.assign(1, {0, scratch.text.view().size()});
    for (const auto& step : pipeline.pre_tokenizers) step->split(scratch);
    for (const TextSegment& word : scratch.words)
      if (word.begin < word.end) ++words[std::string(scratch.text.view().substr(word.begin, word.end - word.begin))];
  }
  return words;
}

// "t", "##h", "##e"
std::vector<std::string> characters_of(const std::string& word) {
  std::vector<std::string> characters;
  for (size_t at = 0; at < word.size();) {
    const size_t length = utf8_length_at(word, at);
    characters.push_back((at > 0 ? kPrefix : "") + word.substr(at, length));
    at += length;
  }
  return characters;
}

}  // namespace

std::unique_ptr<PretrainedTokenizer> train_wordpiece(const std::vector<std::string>& texts,
                                                     const WordPieceTrainingOptions& options) {
  const Counts words = count_words(texts, options.lowercase);
  Counts found;
  for (const auto& [word, count] : words)
    for (const std::string& character : characters_of(word)) found[character] += count;
  if (found.empty()) fail_user("the training texts have no words");
  const int64_t most = options.vocab_size - kSpecials, room = most - most / 4;
  if (room < 1)
    fail_user("vocab_size = " + std::to_string(options.vocab_size) + ": the special tokens alone are " +
              std::to_string(kSpecials));
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [character, count] : found) order.emplace_back(-count, character);
  std::ranges::sort(order);
  std::vector<std::string> alphabet;
  std::unordered_map<std::string, TokenId> ids;
  for (size_t i = 0; i < std::min(order.size(), static_cast<size_t>(room)); ++i) {
    ids.emplace(order[i].second, static_cast<TokenId>(i));
    alphabet.push_back(order[i].second);
  }
  MergeLearner learner(std::move(alphabet), kPrefix, options.min_count);
  for (const auto& [word, count] : words) {
    std::vector<TokenId> pieces;
    const std::vector<std::string> characters = characters_of(word);
    for (const std::string& character : characters)
      if (const auto known = ids.find(character); known != ids.end()) pieces.push_back(known->second);
    if (pieces.size() == characters.size() && pieces.size() <= kLongestWord) learner.add(std::move(pieces), count);
  }
  learner.run(most);
  auto tokenizer = std::make_unique<PipelineTokenizer>(make_pipeline(learner.pieces(), options.lowercase));
  set_roles_from_files(*tokenizer, "", kWhere, "", kWhere);
  return tokenizer;
}

}  // namespace linnet
