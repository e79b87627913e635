#include <algorithm>
#include "base/functions.h"
#include "base/text.h"
#include "data/text/pretrained_files.h"
#include "data/text/sentencepiece/sentencepiece_pretrained.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
// How a class cuts texts, and how it changes them before.
enum Cut { kAtSpaces, kWords, kLlama, kGemma };
enum Change { kPlain, kMap, kMapAndSpaces, kAlbert, kDeberta };

// The steps that a class of transformers 5 puts around a SentencePiece model, which may differ from the model's own.
struct Rules {
  std::string_view kind;
  Cut cut;
  Change change;
  // The default special tokens of the class, in the order of kRoles, "-" for none.
  std::string_view tokens;
  // $A and $B are the texts, $L is the source language; "": add_bos_token (true) and add_eos_token (false) decide.
  std::string_view single = {}, pair = {};
  // The vocabulary: tokens before the pieces from `first` on, and behind them.
  std::string_view before = {};
  size_t first = 0;
  std::string_view after = {};
  bool mask_takes_space = false;  // the one before it
};

constexpr const char* kRoles[] = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

constexpr std::string_view kFairseq = "<s> <pad> </s> <unk>";
constexpr std::string_view kMBart50Languages =
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV my_MM ne_NP "
    "nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN "
    "mn_MN mr_IN pl_PL ps_AF pt_XX sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI";
constexpr std::string_view kMBartLanguages = kMBart50Languages.substr(0, kMBart50Languages.find(" af_ZA"));

constexpr std::string_view kT5Tokens = "- </s> <unk> - <pad> - -", kBartTokens = "<s> </s> <unk> </s> <pad> <s> <mask>";

// The first entry applies whose `kind` is a prefix of the class's name.
constexpr Rules kRules[] = {
    {"T5", kWords, kMap, kT5Tokens, "$A </s>", "$A </s> $B </s>"},
    {"MT5", kWords, kMap, kT5Tokens, "$A </s>", "$A </s> $B </s>"},
    {"Albert", kWords, kAlbert, "[CLS] [SEP] <unk> [SEP] <pad> [CLS] [MASK]", "[CLS] $A [SEP]",
        "[CLS] $A [SEP] $B:1 [SEP]:1"},
    {"XLMRoberta", kWords, kMap, kBartTokens, "<s> $A </s>", "<s> $A </s> </s> $B </s>", kFairseq, 3, "<mask>"},
    {"Camembert", kWords, kMap, kBartTokens, "<s> $A </s>", "<s> $A </s> </s> $B </s>",
        "<s>NOTUSED <pad> </s>NOTUSED <unk> <unk>NOTUSED", 1, "", true},
    {"MBart50", kAtSpaces, kMapAndSpaces, "- </s> <unk> </s> <pad> <s> <mask>", "$L $A </s>", "$L $A $B </s>", kFairseq,
        3, kMBart50Languages, true},
    {"MBart", kWords, kPlain, kBartTokens, "$A </s> $L", "$A $B </s> $L", kFairseq, 3, kMBartLanguages, true},
    {"Nllb", kAtSpaces, kMapAndSpaces, kBartTokens, "$L $A </s>", "$L $A $B </s>", kFairseq, 3, "", true},
    {"Pegasus", kAtSpaces, kMapAndSpaces, "- </s> <unk> - <pad> - <mask_2>", "$A </s>", "$A $B </s>",
        "<pad> </s> <mask_1> <mask_2>", 2},
    {"DebertaV2", kAtSpaces, kDeberta, "[CLS] [SEP] [UNK] [SEP] [PAD] [CLS] [MASK]", "[CLS] $A [SEP]",
        "[CLS] $A [SEP] $B:1 [SEP]:1"},
    {"Llama", kLlama, kPlain, "<s> </s> <unk> - - - -"},
    {"Gemma", kGemma, kPlain, "<bos> <eos> <unk> - <pad> - <mask>"},
};

const Rules* rules_of(std::string_view kind) {
  for (const Rules& rules : kRules)
    if (kind.starts_with(rules.kind)) return &rules;
  return nullptr;
}

std::vector<std::string> words_of(std::string_view text) {
  if (text.empty()) return {};
  const std::vector<std::string_view> words = split(text, ' ');
  return {words.begin(), words.end()};
}

Json step(const char* type, Json::Item more = Json::object()) {
  Json step{{"type", type}};
  step.update(std::move(more.value));
  return step;
}
Json replace(const char* kind, const char* pattern, const char* content) {
  return step("Replace", {{"pattern", {{kind, pattern}}}, {"content", content}});
}
Json metaspace(const char* scheme, bool split) {
  return step("Metaspace", {{"replacement", "\u2581"}, {"prepend_scheme", scheme}, {"split", split}});
}

// One model file as one class reads it.
class Converter {
 public:
  Converter(const Rules& rules, const SentencePieceModelFile& file, const JsonObject& config, const JsonObject& map)
      : rules_(rules), file_(file), config_(config), map_(map) {
    arrange_pieces();
    add_special_tokens();
  }

  Pipeline pipeline(const std::string& path) const {
    Pipeline pipeline =
        read_pipeline({{"normalizer", normalizer()}, {"pre_tokenizer", pre_tokenizer()},
                          {"post_processor", post_processor()}, {"decoder", decoder()}, {"model", model()}},
            "'" + path + "':");
    pipeline.added = added_;
    return pipeline;
  }

  // `settings` with the class's own special tokens.
  Json with_roles(Json settings) const {
    const std::vector<std::string> tokens = words_of(rules_.tokens);
    for (size_t i = 0; i < tokens.size(); ++i)
      if (tokens[i] != "-" && !config_.has(kRoles[i]) && !map_.has(kRoles[i])) settings[kRoles[i]] = tokens[i];
    return settings;
  }

 private:
  bool is_bpe() const { return file_.model_type == 2; }
  TokenId find(const std::string& piece) const { return find_or(ids_, piece, kNoToken); }

  void add_piece(const std::string& text, float score = 0) {
    if (ids_.emplace(text, static_cast<TokenId>(pieces_.size())).second) pieces_.push_back({text, score});
  }

  void arrange_pieces() {
    for (const std::string& piece : words_of(rules_.before)) add_piece(piece, piece == "<unk>NOTUSED" ? -100.f : 0.f);
    if (rules_.kind == "Pegasus")
      for (int i = 2; i < 103; ++i) add_piece("<unk_" + std::to_string(i) + ">", -100);
    for (size_t id = rules_.first; id < file_.pieces.size(); ++id)
      add_piece(file_.pieces[id].text, file_.pieces[id].score);
    if (rules_.kind.ends_with("T5"))
      for (int64_t extra = extra_ids() - 1; extra >= 0; --extra) add_piece("<extra_id_" + std::to_string(extra) + ">");
    for (const std::string& piece : words_of(rules_.after)) add_piece(piece);
    if (rules_.kind == "Nllb")
      for (const std::string& language : named_tokens()) add_piece(language);
    if (rules_.mask_takes_space) add_piece("<mask>");
  }

  int64_t extra_ids() const {
    const int64_t count = config_.integer("extra_ids", 100);
    if (count < 0 || count > 10000) config_.fail("extra_ids", "is out of range");
    return count;
  }

  // Further special tokens of the folder: languages, and added ones.
  std::vector<std::string> named_tokens() const {
    for (const JsonObject* object : {&map_, &config_})
      for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
        if (!object->has(key) || !object->at(key).is_array()) continue;
        std::vector<std::string> tokens;
        for (const Json& token : object->at(key))
          if (token.is_string() || (token.is_object() && token.contains("content")))
            tokens.push_back(token.is_string() ? token.text() : token.at("content").text());
        return tokens;
      }
    return {};
  }

  // In the folder's spelling, else in the class's. Those that are no pieces come behind them.
  void add_special_tokens() {
    const std::vector<std::string> tokens = words_of(rules_.tokens);
    for (size_t i = 0; i < tokens.size(); ++i) {
      AddedToken token{.text = tokens[i] == "-" ? "" : tokens[i], .special = true};
      token.left_strip = rules_.mask_takes_space && i + 1 == tokens.size();
      token.normalized = token.left_strip && rules_.kind == "Nllb";
      for (const JsonObject* object : {&config_, &map_}) {
        if (!object->has(kRoles[i])) continue;
        if (object->at(kRoles[i]).is_object()) token = read_added_token(object->object(kRoles[i]), 0);
        else token.text = object->text(kRoles[i]);
        token.special = true;
        break;
      }
      names_.push_back(token.text);
      add(std::move(token));
    }
    for (const auto& piece : file_.pieces)
      if (piece.type == SentencePieceModelFile::kControl || piece.type == SentencePieceModelFile::kUserDefined)
        add({.text = piece.text, .special = piece.type == SentencePieceModelFile::kControl});
    for (const auto& piece : pieces_)
      if (piece.text.starts_with("<extra_id_") || (rules_.kind == "Pegasus" && piece.text.starts_with("<unk_")))
        add({.text = piece.text, .special = true});
    if (rules_.kind == "Pegasus") add({.text = "<mask_1>", .special = true});
    for (const std::string& language : words_of(rules_.after)) add({.text = language, .special = true});
    for (const std::string& token : named_tokens()) add({.text = token, .special = true});
  }

  void add(AddedToken token) {
    if (token.text.empty() || contains(added_, token.text, &AddedToken::text)) return;
    token.id = find(token.text);
    if (token.id == kNoToken) token.id = static_cast<TokenId>(pieces_.size() + behind_++);
    added_.push_back(std::move(token));
  }

  TokenId id_of(const std::string& text) const {
    const AddedToken* token = find_item(added_, text, &AddedToken::text);
    return token ? token->id : find(text);
  }

  Json normalizer() const {
    const std::string& charsmap = file_.normalization.charsmap;
    const bool has_map = !charsmap.empty();
    const Json map = has_map ? step("Precompiled", {{"precompiled_charsmap", encode_base64(charsmap)}}) : Json();
    if (rules_.change == kPlain) return rules_.cut == kGemma ? replace("String", " ", "\u2581") : Json();
    if (rules_.change == kMap) return map;
    Json steps = Json::array();
    if (rules_.change == kMapAndSpaces) {
      if (!has_map && rules_.kind == "Nllb") return map;
      if (has_map) steps.push_back(map);
      if (!has_map && rules_.kind == "Pegasus") steps.push_back(replace("Regex", "\\n", " "));
      steps.push_back(replace("Regex", " {2,}", " "));
    } else if (rules_.change == kAlbert) {
      steps.push_back(replace("String", "``", "\"")), steps.push_back(replace("String", "''", "\""));
      if (!config_.flag("keep_accents", false)) steps.push_back(step("NFKD")), steps.push_back(step("StripAccents"));
      if (config_.flag("do_lower_case", true)) steps.push_back(step("Lowercase"));
      if (has_map) steps.push_back(map);
    } else {
      if (config_.flag("do_lower_case", false)) steps.push_back(step("Lowercase"));
      steps.push_back(replace("Regex", R"(\s{2,}|[\n\r\t])", " "));
      steps.push_back(step("NFC"));
      steps.push_back(step("Strip", {{"strip_left", false}, {"strip_right", true}}));
    }
    return step("Sequence", {{"normalizers", steps}});
  }

  Json pre_tokenizer() const {
    const bool prefix = config_.flag("add_prefix_space", true);
    if (rules_.cut == kLlama)
      return metaspace(!prefix ? "never" : config_.flag("legacy", false) ? "always" : "first", false);
    if (rules_.cut == kGemma)
      return step("Split", {{"pattern", {{"String", " "}}}, {"behavior", "MergedWithPrevious"}});
    if (rules_.cut == kAtSpaces && rules_.change != kDeberta) return metaspace("always", true);
    Json steps = Json::array();
    if (rules_.cut == kWords) steps.push_back(step("WhitespaceSplit"));
    else if (config_.flag("split_by_punct", false)) steps.push_back(step("Punctuation", {{"behavior", "Isolated"}}));
    steps.push_back(metaspace(prefix ? "always" : rules_.cut == kWords ? "never" : "first", true));
    return step("Sequence", {{"pretokenizers", steps}});
  }

  Json decoder() const {
    if (rules_.cut != kLlama && rules_.cut != kGemma) return metaspace("always", true);
    Json steps = Json::array({replace("String", "\u2581", " "), step("ByteFallback"), step("Fuse")});
    if (rules_.cut == kLlama && config_.flag("add_prefix_space", true))
      steps.push_back(step("Strip", {{"content", " "}, {"start", 1}, {"stop", 0}}));
    return step("Sequence", {{"decoders", steps}});
  }

  Json post_processor() const {
    const bool legacy = rules_.kind == "Nllb" && config_.flag("legacy_behaviour", false);
    Json tokens = Json::object();
    const auto items = [&](std::string_view text) {
      Json list = Json::array();
      for (std::string word : words_of(text)) {
        const bool second = word.ends_with(":1");
        if (second) word.resize(word.size() - 2);
        if (word == "$L") word = config_.text("src_lang", rules_.kind == "Nllb" ? "eng_Latn" : "en_XX");
        const bool is_text = word == "$A" || word == "$B";
        if (is_text) word.erase(0, 1);
        list.push_back({{is_text ? "Sequence" : "SpecialToken", {{"id", word}, {"type_id", second ? 1 : 0}}}});
        if (is_text) continue;
        TokenId token = id_of(word);
        if (token == kNoToken) token = std::max(find("<unk>"), 0);  // an unknown language, as there
        tokens[word] = {{"id", word}, {"ids", Json::array({token})}, {"tokens", Json::array({word})}};
      }
      return list;
    };
    std::string single(legacy ? "$A </s> $L" : rules_.single), pair(legacy ? "$A $B </s> $L" : rules_.pair);
    if (single.empty()) {
      const std::string begin = config_.flag("add_bos_token", true) ? names_[0] : "";
      const std::string end = config_.flag("add_eos_token", false) ? names_[1] : "";
      const auto around = [&](const std::string& text, const std::string& segment) {
        return (begin.empty() ? "" : begin + segment + " ") + text + segment + (end.empty() ? "" : " " + end + segment);
      };
      single = around("$A", ""), pair = single + " " + around("$B", ":1");
    }
    const Json one = items(single), two = items(pair);
    return step("TemplateProcessing", {{"single", one}, {"pair", two}, {"special_tokens", tokens}});
  }

  Json model() const {
    const bool falls_back = rules_.cut == kLlama || rules_.cut == kGemma;
    const std::string unknown = unknown_piece();
    Json pieces = is_bpe() ? Json::object() : Json::array();
    for (size_t id = 0; id < pieces_.size(); ++id)
      if (is_bpe()) pieces[pieces_[id].text] = id;
      else pieces.push_back(Json::array({pieces_[id].text, pieces_[id].score}));
    Json model = is_bpe() ? step("BPE", {{"fuse_unk", true}, {"unk_token", unknown}, {"merges", merges()}})
                          : step("Unigram", {{"unk_id", find(unknown)}});
    model["byte_fallback"] = falls_back, model["vocab"] = std::move(pieces);
    return model;
  }

  std::string unknown_piece() const {
    for (const auto& piece : file_.pieces)
      if (piece.type == SentencePieceModelFile::kUnknown && find(piece.text) != kNoToken) return piece.text;
    return "<unk>";
  }

  // Pairs of pieces that make a piece: by descending score, or without scores by id.
  Json merges() const {
    struct Merge {
      float score;
      std::string_view left, right;
    };
    std::vector<Merge> all;
    for (const auto& piece : pieces_)
      for (const Utf8Character& character : utf8_characters(piece.text)) {
        const std::string_view left = character.text.substr(0, character.begin),
                               right = character.text.substr(character.begin);
        if (find(std::string(left)) != kNoToken && find(std::string(right)) != kNoToken)
          all.push_back({piece.score, left, right});
      }
    std::ranges::stable_sort(all, std::ranges::greater{}, &Merge::score);
    Json merges = Json::array();
    for (const Merge& merge : all) merges.push_back(Json::array({merge.left, merge.right}));
    return merges;
  }

  const Rules& rules_;
  const SentencePieceModelFile& file_;
  const JsonObject& config_;
  const JsonObject& map_;
  std::vector<SentencePieceModelFile::Piece> pieces_;
  std::unordered_map<std::string, TokenId> ids_;
  std::vector<AddedToken> added_;
  std::vector<std::string> names_;  // of the special tokens, in the order of kRoles
  size_t behind_ = 0;               // added tokens that are no pieces
};
}  // namespace

bool has_sentencepiece_pipeline(const std::string& kind) { return rules_of(kind) != nullptr; }

Pipeline read_sentencepiece_pipeline(const std::string& bytes, const std::string& path, const std::string& kind,
    const Json& settings, const JsonObject& map) {
  const JsonObject config(settings, "the settings of '" + path + "':");
  const SentencePieceModelFile file = read_sentencepiece_model(bytes, path);
  const Converter converter(*rules_of(kind), file, config, map);
  Pipeline pipeline = converter.pipeline(path);
  pipeline.config_json = converter.with_roles(settings).dump_sorted();
  const char* names[] = {"spiece.model", "sentencepiece.bpe.model", "spm.model", "tokenizer.model"};
  const auto name = std::ranges::find_if(names, [&](const char* usual) { return path.ends_with(usual); });
  pipeline.made_of[name == std::end(names) ? (kind.starts_with("T5") ? "spiece.model" : "tokenizer.model") : *name] =
      bytes;
  return pipeline;
}
}  // namespace linnet
