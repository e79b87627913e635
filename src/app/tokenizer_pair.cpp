#include "app/tokenizer_pair.h"

namespace linnet {
namespace {

std::shared_ptr<const Tokenizer> train_one(const Config& config, const std::vector<std::string>& lines) {
  TokenizerOptions options;
  options.kind = config.data.tokenizer;
  options.vocab_size = config.data.vocab_size;
  options.model_type = config.data.tokenizer_model;
  options.character_coverage = config.data.character_coverage;
  options.seed = static_cast<uint64_t>(config.train.seed);
  return train_tokenizer(options, lines);
}

}  // namespace

void TokenizerPair::save(const std::string& folder) const {
  if (source == target) return source->save(folder, "tokenizer");
  source->save(folder, "source");
  target->save(folder, "target");
}

TokenizerPair train_tokenizers(const Config& config, const ParallelText& train) {
  if (!config.data.joint_vocab) return {train_one(config, train.source), train_one(config, train.target)};
  std::vector<std::string> both = train.source;
  both.insert(both.end(), train.target.begin(), train.target.end());
  const auto tokenizer = train_one(config, both);
  return {tokenizer, tokenizer};
}

TokenizerPair load_tokenizers(const Config& config, const std::string& folder) {
  if (!config.data.joint_vocab) return {load_tokenizer(folder, "source"), load_tokenizer(folder, "target")};
  const std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(folder, "tokenizer");
  return {tokenizer, tokenizer};
}

}  // namespace linnet
