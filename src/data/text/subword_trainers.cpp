#include <algorithm>
#include <array>
#include <queue>
#include <utility>
#include "base/fail.h"
#include "data/text/pretrained_files.h"
#include "data/text/trained_tokenizers.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
constexpr const char *kPrefix = "##", *kWhere = "(just trained)";
constexpr int64_t kSpecials = 5;
constexpr size_t kLongestWord = 100;  // of characters; longer ones are the unknown token

using Counts = std::unordered_map<std::string, int64_t>;

// Updates pair counts as words change, so a merge costs only what it touches. The order of words does not matter.
class MergeLearner {
 public:
  // `alphabet`: the initial symbols; ids are indices. `prefix`: begins a piece that does not begin a word ("##");
  // joining removes it from the right piece. Pairs rarer than `min_count` are not joined.
  MergeLearner(std::vector<std::string> alphabet, std::string prefix, int64_t min_count)
      : prefix_(std::move(prefix)), min_count_(std::max<int64_t>(min_count, 1)), pieces_(std::move(alphabet)) {
    for (size_t id = 0; id < pieces_.size(); ++id) piece_ids_.emplace(pieces_[id], static_cast<TokenId>(id));
  }

  void add(std::vector<TokenId> word, int64_t count) {
    for (size_t i = 0; i + 1 < word.size(); ++i) change(pair_key(word[i], word[i + 1]), count, words_.size());
    words_.push_back({std::move(word), count});
  }

  // Merges until there are `most` pieces or nothing to merge.
  void run(int64_t most) {
    for (const auto& [pair, count] : counts_) queue_.push({count, pair});
    while (std::ssize(pieces_) < most && !queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const int64_t count = counts_[top.pair];
      if (count != top.count) {  // words have changed since
        if (count > 0) queue_.push({count, top.pair});
        continue;
      }
      if (count < min_count_) break;
      merge(top.pair);
    }
  }

  const std::vector<std::string>& pieces() const { return pieces_; }
  const std::vector<std::pair<TokenId, TokenId>>& merges() const { return merges_; }

 private:
  struct Candidate {
    int64_t count;
    uint64_t pair;
    bool operator<(const Candidate& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };
  struct Word {
    std::vector<TokenId> symbols;
    int64_t count;
  };

  void change(uint64_t pair, int64_t by, size_t word) {
    counts_[pair] += by;
    if (by <= 0) return;
    std::vector<uint32_t>& where = where_[pair];
    if (where.empty() || where.back() != word) where.push_back(static_cast<uint32_t>(word));
  }

  void merge(uint64_t pair) {
    const auto left = static_cast<TokenId>(pair >> 32), right = static_cast<TokenId>(pair & 0xFFFFFFFFu);
    const std::string joined = pieces_[left] + pieces_[right].substr(prefix_.size());
    const auto [found, fresh] = piece_ids_.emplace(joined, static_cast<TokenId>(pieces_.size()));
    if (fresh) pieces_.push_back(joined);
    merges_.emplace_back(left, right);
    std::vector<uint32_t> where = std::move(where_[pair]);
    where_.erase(pair);
    std::sort(where.begin(), where.end());
    where.erase(std::unique(where.begin(), where.end()), where.end());
    touched_.clear();
    for (const uint32_t word : where) merge_in(word, left, right, found->second);
    counts_[pair] = 0;
    std::sort(touched_.begin(), touched_.end());
    touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
    for (const uint64_t other : touched_)
      if (const int64_t count = counts_[other]; count > 0) queue_.push({count, other});
  }

  void merge_in(uint32_t w, TokenId left, TokenId right, TokenId merged) {
    Word& word = words_[w];
    std::vector<TokenId>& s = word.symbols;
    size_t to = 0;
    for (size_t from = 0; from < s.size(); ++from) {
      if (from + 1 >= s.size() || s[from] != left || s[from + 1] != right) {
        s[to++] = s[from];
        continue;
      }
      if (to > 0) {
        change(pair_key(s[to - 1], left), -word.count, w);
        change(pair_key(s[to - 1], merged), word.count, w);
        touched_.push_back(pair_key(s[to - 1], merged));
      }
      if (from + 2 < s.size()) {
        change(pair_key(right, s[from + 2]), -word.count, w);
        change(pair_key(merged, s[from + 2]), word.count, w);
        touched_.push_back(pair_key(merged, s[from + 2]));
      }
      s[to++] = merged;
      ++from;
    }
    s.resize(to);
  }

  const std::string prefix_;
  const int64_t min_count_;
  std::vector<std::string> pieces_;
  std::unordered_map<std::string, TokenId> piece_ids_;
  std::vector<std::pair<TokenId, TokenId>> merges_;
  std::vector<Word> words_;
  std::unordered_map<uint64_t, int64_t> counts_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> where_;  // words that have, or had, the pair
  std::priority_queue<Candidate> queue_;
  std::vector<uint64_t> touched_;
};

// The 256 bytes in the order of their spellings, that of their ids.
std::vector<unsigned char> bytes_by_spelling() {
  std::vector<unsigned char> bytes = numbers_below<unsigned char>(256);
  std::ranges::sort(bytes, {}, [](unsigned char byte) { return spelt(std::string(1, static_cast<char>(byte))); });
  return bytes;
}

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
    for (const TextStep& step : pipeline.normalizers) step(scratch);
    scratch.words.assign(1, {0, scratch.text.view().size()});
    for (const TextStep& step : pipeline.pre_tokenizers) step(scratch);
    for (const TextSegment& word : scratch.words)
      if (word.begin < word.end) ++words[std::string(scratch.text.view().substr(word.begin, word.end - word.begin))];
  }
  return words;
}

std::vector<std::string> characters_of(const std::string& word) {  // "t", "##h", "##e"
  return mapped(utf8_characters(word), [](const Utf8Character& character) {
    return (character.begin > 0 ? kPrefix : "") + std::string(character.bytes());
  });
}
}  // namespace

BpeTrainer::BpeTrainer(BpeTrainingOptions options) : options_(std::move(options)), pattern_(kGpt2Expression) {
  const auto least = static_cast<int64_t>(256 + options_.special.size());
  if (options_.vocab_size < least || options_.vocab_size > Vocabulary::kMaxId)
    fail_user("vocab_size = ", options_.vocab_size, " tokens: it must be ", least,
        " (the bytes and the special tokens) to ", Vocabulary::kMaxId);
}

void BpeTrainer::add(std::string_view text) {
  size_t done = 0;
  const auto count = [&](size_t begin, size_t end) {
    if (begin < end) ++words_[std::string(text.substr(begin, end - begin))];
  };
  pattern_.find_all(text, scratch_, [&](const TextRange& match) {
    count(done, match.begin);  // bytes that are no text
    count(match.begin, match.end);
    done = match.end;
  });
  count(done, text.size());
}

std::unique_ptr<PretrainedTokenizer> BpeTrainer::train() const {
  if (words_.empty()) fail_user("the training text is empty");
  std::vector<std::string> alphabet;
  std::array<TokenId, 256> ids{};
  for (const unsigned char byte : bytes_by_spelling()) {
    ids[byte] = static_cast<TokenId>(alphabet.size());
    alphabet.emplace_back(1, static_cast<char>(byte));
  }
  MergeLearner learner(std::move(alphabet), "", options_.min_count);
  for (const auto& [word, count] : words_) {
    std::vector<TokenId> symbols = mapped(word, [&](char c) { return ids[static_cast<unsigned char>(c)]; });
    learner.add(std::move(symbols), count);
  }
  learner.run(options_.vocab_size - std::ssize(options_.special));
  std::string vocabulary = "{", merges = "#version: 0.2\n";
  const auto& pieces = learner.pieces();
  for (size_t id = 0; id < pieces.size(); ++id)
    vocabulary += (id > 0 ? "," : "") + quote_json(spelt(pieces[id])) + ":" + std::to_string(id);
  for (const auto& [left, right] : learner.merges()) merges += spelt(pieces[left]) + " " + spelt(pieces[right]) + "\n";
  const Json config = Json::object();
  Pipeline pipeline = read_gpt2_files(vocabulary + "}", kWhere, merges, kWhere, "", JsonObject(config, kWhere));
  TokenRoles roles;
  for (size_t i = 0; i < options_.special.size(); ++i) {
    const auto id = static_cast<TokenId>(pieces.size() + i);
    pipeline.added.push_back({.id = id, .text = options_.special[i], .special = true});
    if (i == 0) roles.begin = roles.end = roles.unknown = id;
  }
  auto tokenizer = std::make_unique<PipelineTokenizer>(std::move(pipeline));
  tokenizer->set_roles(roles);
  return tokenizer;
}

std::unique_ptr<PretrainedTokenizer> train_wordpiece(
    const std::vector<std::string>& texts, const WordPieceTrainingOptions& options) {
  const Counts words = count_words(texts, options.lowercase);
  Counts found;
  for (const auto& [word, count] : words)
    for (const std::string& character : characters_of(word)) found[character] += count;
  if (found.empty()) fail_user("the training texts have no words");
  const int64_t most = options.vocab_size - kSpecials, room = most - most / 4;
  if (room < 1) fail_user("vocab_size = ", options.vocab_size, ": the special tokens alone are ", kSpecials);
  auto order = mapped(found, [](const auto& entry) { return std::pair(-entry.second, entry.first); });
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
  const Json none = Json::object();
  set_roles_from_files(*tokenizer, JsonObject(none, kWhere), JsonObject(none, kWhere));
  return tokenizer;
}
}  // namespace linnet
