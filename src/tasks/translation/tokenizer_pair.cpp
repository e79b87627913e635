#include "tasks/translation/tokenizer_pair.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/json.h"
#include "data/text/pretrained_files.h"
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

TokenId language_token(const PretrainedTokenizer& tokenizer, const std::string& language) {
  for (const std::string& piece : {language, "__" + language + "__"})
    if (const TokenId id = tokenizer.id_of(piece); id != kNoToken && tokenizer.is_special(id)) return id;
  fail_user("the model's tokenizer has no language \"", language, "\"; it spells them as \"eng_Latn\", \"en_XX\" or ",
      "\"en\"");
}

TokenId first_token(const ConfigFile& config, const char* key) {
  const std::vector<int64_t> ids = config.integers(key);
  return ids.empty() || ids[0] < 0 ? kNoToken : static_cast<TokenId>(ids[0]);
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

Languages languages_of(const Config& config) { return {config.data.source_language, config.data.target_language}; }

void frame_sentences(TokenizerPair& pair, const ConfigFile& config, const Languages& languages) {
  pair.before_source = pair.after_source = pair.before_target = {};
  pair.missing_language = {};
  const std::string type = config.text("model_type", "");
  const auto* tokenizer = dynamic_cast<const PretrainedTokenizer*>(pair.source.get());
  TokenId forced = first_token(config, "forced_bos_token_id");
  if ((type != "mbart" && type != "m2m_100") || !tokenizer) {
    if (!languages.empty() && !languages.may_ignore)
      fail_user("the model has no tokens of languages; mBART, M2M100 and NLLB have them");
    const TokenId begin = type == "bart" ? first_token(config, "bos_token_id") : kNoToken;
    if (begin != kNoToken) pair.before_source = {begin};
    if (forced == kNoToken) forced = begin;
    if (forced != kNoToken) pair.before_target = {forced};
    return;
  }
  const std::string name = "tokenizer_config.json";
  const Json json = parse_tokenizer_config(find_or(tokenizer->files(), name, ""), name);
  const JsonObject settings(json, name + ":");
  const auto token = [&](const std::string& asked, const char* key, TokenId other) {
    const std::string language = !asked.empty() ? asked : settings.has(key) ? settings.text(key) : "";
    return language.empty() ? other : language_token(*tokenizer, language);
  };
  const TokenId source = token(languages.source, "src_lang", kNoToken);
  const TokenId target =
      languages.target.empty() && forced != kNoToken ? forced : token(languages.target, "tgt_lang", kNoToken);
  if (source == kNoToken || target == kNoToken) {
    const std::string side = source == kNoToken ? "source" : "target";
    pair.missing_language = "the model translates between many languages: give --" + side + "-language, \"" + side +
                            "_language\" of a request, or data." + side + "_language of a run";
    return;
  }
  // mBART of 25 languages puts them after a source, and decoding begins with them.
  const std::string kind = settings.text("tokenizer_class", "");
  const bool first = type == "mbart" && !kind.starts_with("MBart50") &&
                     (kind.starts_with("MBart") || pair.special.begin != pair.special.end);
  (first || settings.flag("legacy_behaviour", false) ? pair.after_source : pair.before_source) = {source};
  if (first) pair.special.begin = target;
  else pair.before_target = {target};
}
}  // namespace linnet
