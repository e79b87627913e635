#include "data/text/bpe/bpe_trainer.h"
#include <algorithm>
#include <array>
#include "base/error.h"
#include "data/text/bpe/byte_alphabet.h"
#include "data/text/bpe/merge_learner.h"
#include "data/text/pipeline/pipeline_tokenizer.h"
#include "data/text/pipeline/pre_tokenizers.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/pretrained_files.h"

namespace linnet {
namespace {

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
  std::vector<std::string> alphabet;
  std::array<TokenId, 256> ids{};
  for (const unsigned char byte : bytes_by_spelling()) {
    ids[byte] = static_cast<TokenId>(alphabet.size());
    alphabet.emplace_back(1, static_cast<char>(byte));
  }
  MergeLearner learner(std::move(alphabet), "", options_.min_count);
  for (const auto& [word, count] : words_) {
    std::vector<TokenId> symbols;
    for (const char c : word) symbols.push_back(ids[static_cast<unsigned char>(c)]);
    learner.add(std::move(symbols), count);
  }
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
  const Json config = Json::object();
  const std::string where = "(just trained)";
  Pipeline pipeline = read_gpt2_files(vocabulary + "}", where, merges, where, "", JsonObject(config, where));
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
