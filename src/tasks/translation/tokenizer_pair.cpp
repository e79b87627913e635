#include "tasks/translation/tokenizer_pair.h"
#include "base/fail.h"
#include "base/files.h"
#include "data/text/pretrained_tokenizer.h"

namespace linnet {
namespace {
constexpr const char *kJoint = "tokenizer", *kSource = "source", *kTarget = "target", *kMarianTarget = "/target.spm";

std::shared_ptr<const Tokenizer> load_one(const std::string& folder, const std::string& stem) {
  const std::string pretrained = folder + "/" + stem;
  if (!file_exists(pretrained)) return load_tokenizer(folder, stem);
  const std::string target = pretrained + kMarianTarget;
  return load_pretrained_tokenizer(file_exists(target) ? target : pretrained);
}

// Without its vocabulary a Marian folder's SentencePiece models give ids of their own, and a joint model also the other
// language's words: text that looks right comes out wrong.
void check_marian_files(const std::string& folder) {
  if (file_exists(folder + "/tokenizer.json")) return;
  if (!file_exists(folder + "/source.spm") && !file_exists(folder + kMarianTarget)) return;
  for (const char* name : {"source.spm", "target.spm", "vocab.json"})
    if (!file_exists(folder + "/" + name))
      fail_user("'", folder, "' has no ", name, "; a Marian's tokenizer is source.spm, target.spm and vocab.json");
}
}  // namespace

SpecialTokens begin_of(const Config& config, SpecialTokens special) {
  if (config.model.architecture == "t5" || config.model.architecture == "marian") special.begin = special.pad;
  return special;
}

SentenceFrame TokenizerPair::frame() const {
  if (!missing_language.empty()) fail_user(missing_language);
  SentenceFrame frame = SentenceFrame::of(special);
  frame.source_begin = before_source;
  frame.source_end.insert(frame.source_end.end(), after_source.begin(), after_source.end());
  frame.target_begin.insert(frame.target_begin.end(), before_target.begin(), before_target.end());
  return frame;
}

std::vector<TokenId> TokenizerPair::never_written() const {
  std::vector<TokenId> never;
  for (const TokenId token : {special.pad, special.begin})
    if (token >= 0 && token != special.end) never.push_back(token);
  return never;
}

void TokenizerPair::save(const std::string& folder) const {
  if (source == target) return source->save(folder, kJoint);
  source->save(folder, kSource);
  target->save(folder, kTarget);
}

TokenizerPair load_tokenizers(const Config& config, const std::string& folder) {
  TokenizerPair pair;
  if (file_exists(folder + "/" + kSource) || (config.model.from.empty() && !config.data.joint_vocab))
    pair.source = load_one(folder, kSource), pair.target = load_one(folder, kTarget);
  else pair.source = pair.target = load_one(folder, kJoint);
  pair.special = begin_of(config, pair.source->special());
  return pair;
}

TokenizerPair open_tokenizers(const std::string& folder) {
  check_marian_files(folder);
  TokenizerPair pair;
  pair.source = pair.target = load_pretrained_tokenizer(folder);
  if (file_exists(folder + kMarianTarget)) pair.target = load_pretrained_tokenizer(folder + kMarianTarget);
  pair.special = pair.source->special();
  return pair;
}
}  // namespace linnet
