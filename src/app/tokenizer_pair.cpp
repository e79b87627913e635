#include "app/tokenizer_pair.h"

#include "base/files.h"
#include "text/pretrained_tokenizer.h"
#include "text/sentencepiece_pretrained.h"
#include "text/sentencepiece_tokenizer.h"

namespace linnet {
namespace {

constexpr const char *kJoint = "tokenizer", *kSource = "source", *kTarget = "target", *kMarianTarget = "/target.spm";

std::shared_ptr<const Tokenizer> train_one(const Config& config, const std::vector<std::string>& lines) {
  TokenizerOptions options;
  options.kind = config.data.tokenizer;
  options.vocab_size = config.data.vocab_size;
  options.model_type = config.data.tokenizer_model;
  options.character_coverage = config.data.character_coverage;
  options.seed = static_cast<uint64_t>(config.train.seed);
  if (config.model.architecture != "t5" || options.kind != "sentencepiece") return train_tokenizer(options, lines);
  // In the form that T5's folders have it, so that an exported run has a tokenizer that others load.
  return std::make_shared<SentencePiecePretrained>(
      train_sentencepiece(options, lines), "the trained model",
      SentencePieceOptions{.file_name = "spiece.model",
                           .add_end = true,
                           .config_json = R"({"tokenizer_class": "T5Tokenizer", "extra_ids": 0})"});
}

// T5's and Marian's decoders begin with the padding token.
SpecialTokens begin_of(const Config& config, SpecialTokens special) {
  if (config.model.architecture == "t5" || config.model.architecture == "marian") special.begin = special.pad;
  return special;
}

std::shared_ptr<const Tokenizer> load_one(const std::string& folder, const std::string& stem) {
  const std::string pretrained = folder + "/" + stem;
  if (!file_exists(pretrained)) return load_tokenizer(folder, stem);
  const std::string target = pretrained + kMarianTarget;
  return load_pretrained_tokenizer(file_exists(target) ? target : pretrained);
}

}  // namespace

void TokenizerPair::save(const std::string& folder) const {
  if (source == target) return source->save(folder, kJoint);
  source->save(folder, kSource);
  target->save(folder, kTarget);
}

TokenizerPair train_tokenizers(const Config& config, const ParallelText& train) {
  if (!config.data.joint_vocab) {
    const auto source = train_one(config, train.source), target = train_one(config, train.target);
    return {source, target, begin_of(config, source->special())};
  }
  std::vector<std::string> both = train.source;
  both.insert(both.end(), train.target.begin(), train.target.end());
  const auto tokenizer = train_one(config, both);
  return {tokenizer, tokenizer, begin_of(config, tokenizer->special())};
}

TokenizerPair load_tokenizers(const Config& config, const std::string& folder) {
  TokenizerPair pair;
  if (file_exists(folder + "/" + kSource) || (config.model.from.empty() && !config.data.joint_vocab))
    pair.source = load_one(folder, kSource), pair.target = load_one(folder, kTarget);
  else
    pair.source = pair.target = load_one(folder, kJoint);
  pair.special = begin_of(config, pair.source->special());
  return pair;
}

TokenizerPair open_tokenizers(const std::string& folder) {
  TokenizerPair pair;
  pair.source = pair.target = load_pretrained_tokenizer(folder);
  if (file_exists(folder + kMarianTarget)) pair.target = load_pretrained_tokenizer(folder + kMarianTarget);
  pair.special = pair.source->special();
  return pair;
}

}  // namespace linnet
