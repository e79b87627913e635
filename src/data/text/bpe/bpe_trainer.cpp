#include "data/text/bpe/bpe_trainer.h"

#include <algorithm>
#include <queue>

#include "base/error.h"
#include "data/text/bpe/byte_alphabet.h"
#include "data/text/pipeline/pipeline_tokenizer.h"
#include "data/text/pipeline/pre_tokenizers.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/pretrained_files.h"

namespace linnet {
namespace {

uint64_t key_of(TokenId left, TokenId right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

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

// The 256 bytes in the order of their spellings, which is the order of their ids.
std::vector<unsigned char> bytes_by_spelling() {
  std::vector<std::pair<std::string, unsigned char>> order;
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    std::string spelling;
    spell_bytes({&c, 1}, spelling);
    order.emplace_back(spelling, static_cast<unsigned char>(byte));
  }
  std::sort(order.begin(), order.end());
  std::vector<unsigned char> bytes;
  for (const auto& entry : order) bytes.push_back(entry.second);
  return bytes;
}

class MergeLearner {
 public:
  MergeLearner(const std::unordered_map<std::string, int64_t>& words, int64_t min_count) : min_count_(min_count) {
    TokenId ids[256];
    for (const unsigned char byte : bytes_by_spelling()) {
      ids[byte] = static_cast<TokenId>(pieces_.size());
      pieces_.push_back(std::string(1, static_cast<char>(byte)));
    }
    for (size_t id = 0; id < pieces_.size(); ++id) piece_ids_.emplace(pieces_[id], static_cast<TokenId>(id));
    std::vector<const std::pair<const std::string, int64_t>*> order;
    for (const auto& entry : words) order.push_back(&entry);
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->first < b->first; });
    for (const auto* entry : order) {
      Word word{{}, entry->second};
      for (const char c : entry->first) word.symbols.push_back(ids[static_cast<unsigned char>(c)]);
      words_.push_back(std::move(word));
    }
    for (size_t w = 0; w < words_.size(); ++w)
      for (size_t i = 0; i + 1 < words_[w].symbols.size(); ++i)
        change(key_of(words_[w].symbols[i], words_[w].symbols[i + 1]), words_[w].count, w);
    for (const auto& [pair, count] : counts_) queue_.push({count, pair});
  }

  // Merges until there are `most` pieces.
  void run(int64_t most) {
    while (static_cast<int64_t>(pieces_.size()) < most && !queue_.empty()) {
      const Candidate top = queue_.top();
      queue_.pop();
      const int64_t count = counts_[top.pair];
      if (count != top.count) {  // words have changed since
        if (count > 0) queue_.push({count, top.pair});
        continue;
      }
      if (count < std::max<int64_t>(min_count_, 1)) break;
      merge(top.pair);
    }
  }
  const std::vector<std::string>& pieces() const { return pieces_; }
  const std::vector<std::pair<TokenId, TokenId>>& merges() const { return merges_; }

 private:
  void change(uint64_t pair, int64_t by, size_t word) {
    counts_[pair] += by;
    if (by <= 0) return;
    std::vector<uint32_t>& where = where_[pair];
    if (where.empty() || where.back() != word) where.push_back(static_cast<uint32_t>(word));
  }

  void merge(uint64_t pair) {
    const auto left = static_cast<TokenId>(pair >> 32), right = static_cast<TokenId>(pair & 0xFFFFFFFFu);
    const std::string joined = pieces_[static_cast<size_t>(left)] + pieces_[static_cast<size_t>(right)];
    const auto [found, fresh] = piece_ids_.emplace(joined, static_cast<TokenId>(pieces_.size()));
    if (fresh) pieces_.push_back(joined);
    merges_.emplace_back(left, right);
    std::vector<uint32_t> where = std::move(where_[pair]);
    where_.erase(pair);
    std::sort(where.begin(), where.end());
    where.erase(std::unique(where.begin(), where.end()), where.end());
    touched_.clear();
    for (const uint32_t w : where) merge_in(w, left, right, found->second);
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
        change(key_of(s[to - 1], left), -word.count, w);
        change(key_of(s[to - 1], merged), word.count, w);
        touched_.push_back(key_of(s[to - 1], merged));
      }
      if (from + 2 < s.size()) {
        change(key_of(right, s[from + 2]), -word.count, w);
        change(key_of(merged, s[from + 2]), word.count, w);
        touched_.push_back(key_of(merged, s[from + 2]));
      }
      s[to++] = merged;
      ++from;
    }
    s.resize(to);
  }

  int64_t min_count_;
  std::vector<std::string> pieces_;
  std::unordered_map<std::string, TokenId> piece_ids_;
  std::vector<std::pair<TokenId, TokenId>> merges_;
  std::vector<Word> words_;
  std::unordered_map<uint64_t, int64_t> counts_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> where_;  // words that have, or had, the pair
  std::priority_queue<Candidate> queue_;
  std::vector<uint64_t> touched_;
};

}  // namespace

BpeTrainer::BpeTrainer(BpeTrainingOptions options) : options_(std::move(options)), pattern_(kGpt2Expression) {
  const auto least = static_cast<int64_t>(256 + options_.special.size());
  if (options_.vocab_size < least || options_.vocab_size > Vocabulary::kMaxId)
    fail_user("vocab_size = " + std::to_string(options_.vocab_size) + " tokens: it must be " + std::to_string(least) +
              " (the bytes and the special tokens) to " + std::to_string(Vocabulary::kMaxId));
}

void BpeTrainer::add(std::string_view text) {
  matches_.clear();
  pattern_.find_all(text, scratch_, matches_);
  size_t done = 0;
  const auto count = [&](size_t begin, size_t end) {
    if (begin < end) ++words_[std::string(text.substr(begin, end - begin))];
  };
  for (const TextRange& match : matches_) {
    count(done, match.begin);  // bytes that are no text
    count(match.begin, match.end);
    done = match.end;
  }
  count(done, text.size());
}

std::unique_ptr<PretrainedTokenizer> BpeTrainer::train() const {
  if (words_.empty()) fail_user("the training text is empty");
  MergeLearner learner(words_, options_.min_count);
  learner.run(options_.vocab_size - static_cast<int64_t>(options_.special.size()));
  const auto spelt = [](const std::string& bytes) {
    std::string spelling;
    spell_bytes(bytes, spelling);
    return spelling;
  };
  std::string vocabulary = "{", merges = "#version: 0.2\n";
  const auto& pieces = learner.pieces();
  for (size_t id = 0; id < pieces.size(); ++id)
    vocabulary += (id > 0 ? "," : "") + quote_json(spelt(pieces[id])) + ":" + std::to_string(id);
  for (const auto& [left, right] : learner.merges())
    merges += spelt(pieces[static_cast<size_t>(left)]) + " " + spelt(pieces[static_cast<size_t>(right)]) + "\n";
  Pipeline pipeline = read_gpt2_files(vocabulary + "}", "(just trained)", merges, "(just trained)");
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

}  // namespace linnet
