#include "data/text/pipeline/decoders.h"
#include "data/text/pipeline/pipeline_reader-inl.h"
#include "data/text/pipeline/pre_tokenizers.h"
#include "data/text/unicode/unicode_classes.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

[[noreturn]] void fail_unknown(const JsonObject& step, const std::string& type) {
  step.fail("has the type '" + type + "', which Linnet does not know");
}

// The steps that cut by a class of characters alone; null for others.
ClassSplit::ClassOf class_split(const std::string& type) {
  using Kind = ClassSplit::Kind;
  if (type == "BertPreTokenizer")
    return [](char32_t c) {
      return is_white_space(c) ? Kind::kRemoved : is_bert_punctuation(c) ? Kind::kAlone : Kind::kText;
    };
  if (type == "WhitespaceSplit") return [](char32_t c) { return is_white_space(c) ? Kind::kRemoved : Kind::kText; };
  return nullptr;
}

SplitBehavior read_behavior(const JsonObject& step) {
  const std::string name = step.text("behavior");
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  step.fail("has the behavior '" + name + "', which Linnet does not know");
}

// Old files have add_prefix_space where new ones have prepend_scheme.
Metaspace::Prepend read_prepend(const JsonObject& step) {
  const std::string scheme = step.text("prepend_scheme", step.flag("add_prefix_space", true) ? "always" : "never");
  if (scheme == "always") return Metaspace::Prepend::kAlways;
  if (scheme == "first") return Metaspace::Prepend::kFirst;
  if (scheme == "never") return Metaspace::Prepend::kNever;
  step.fail("has the prepend_scheme '" + scheme + "', which Linnet does not know");
}

std::string read_replacement(const JsonObject& step) {
  std::string replacement = step.text("replacement");
  if (replacement.empty()) step.fail("has an empty replacement");
  return replacement;
}

}  // namespace

SplitPattern read_pattern(const JsonObject& step) {
  const JsonObject pattern = step.object("pattern");
  if (pattern.has("Regex")) return SplitPattern(pattern.text("Regex"), pattern.where());
  return SplitPattern::literal(pattern.text("String"));
}

bool read_pre_tokenizer(const JsonObject& json, std::vector<std::unique_ptr<PreTokenizer>>& steps) {
  const std::string type = json.text("type");
  if (type == "Sequence") {
    bool byte_level = false;
    for (const JsonObject& step : json.objects("pretokenizers")) {
      if (byte_level) step.fail("follows ByteLevel, which Linnet expects last");
      byte_level = read_pre_tokenizer(step, steps);
    }
    return byte_level;
  }
  if (type == "ByteLevel") {
    if (json.flag("add_prefix_space", true)) steps.push_back(std::make_unique<PrefixSpace>());
    if (json.flag("use_regex", true))
      steps.push_back(std::make_unique<PatternSplit>(SplitPattern(kGpt2Expression), SplitBehavior::kIsolated, false));
    return true;
  }
  if (type == "Split") {
    steps.push_back(
        std::make_unique<PatternSplit>(read_pattern(json), read_behavior(json), json.flag("invert", false)));
    return false;
  }
  if (type == "Metaspace") {
    steps.push_back(std::make_unique<Metaspace>(read_replacement(json), read_prepend(json), json.flag("split", true)));
    return false;
  }
  if (type == "Whitespace") {  // \w+|[^\w\s]+, with \w as tokenizers has it
    const std::string word = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D})";
    steps.push_back(std::make_unique<PatternSplit>(SplitPattern("[" + word + "]+|[^" + word + "\\s]+"),
                                                   SplitBehavior::kRemoved, true));
    return false;
  }
  if (type == "CharDelimiterSplit") {
    steps.push_back(
        std::make_unique<PatternSplit>(SplitPattern::literal(json.text("delimiter")), SplitBehavior::kRemoved, false));
    return false;
  }
  if (const ClassSplit::ClassOf class_of = class_split(type)) {
    steps.push_back(std::make_unique<ClassSplit>(class_of));
    return false;
  }
  if (type == "Punctuation") {
    const SplitBehavior behavior = json.has("behavior") ? read_behavior(json) : SplitBehavior::kIsolated;
    steps.push_back(std::make_unique<CharacterSplit>(is_bert_punctuation, behavior));
    return false;
  }
  if (type == "Digits") {
    const bool alone = json.flag("individual_digits", false);
    steps.push_back(std::make_unique<PatternSplit>(
        SplitPattern(R"(\p{N})"), alone ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, false));
    return false;
  }
  fail_unknown(json, type);
}

namespace {

bool is_id(const Json& value) { return value.is_integer(0, Vocabulary::kMaxId); }

// [piece, id]
TokenId read_token_pair(const JsonObject& json, const char* key) {
  const Json& value = json.at(key);
  if (!value.is_array() || value.size() != 2 || !is_id(value[1])) json.fail(key, "is not a piece and its id");
  return value[1].get<TokenId>();
}

std::vector<TemplateItem> read_template(const JsonObject& json, const char* key) {
  std::vector<TemplateItem> items;
  for (const JsonObject& item : json.objects(key)) {
    const bool special = item.has("SpecialToken");
    const JsonObject part = item.object(special ? "SpecialToken" : "Sequence");
    const int64_t segment = part.integer("type_id", 0);
    if (segment < 0 || segment > 255) part.fail("has the type_id " + std::to_string(segment));
    const std::string id = part.text("id");
    if (!special) {
      if (id != "A" && id != "B") part.fail("names the text '" + id + "', not A or B");
      if (id == "B" && std::string_view(key) == "single") part.fail("names B in the template of one text");
      items.push_back({id == "A" ? 0 : 1, kNoToken, static_cast<uint8_t>(segment)});
      continue;
    }
    const JsonObject tokens = json.object("special_tokens").object(id.c_str());
    for (const Json& value : tokens.list("ids")) {
      if (!is_id(value)) tokens.fail("has an id that is out of range");
      items.push_back({-1, value.get<TokenId>(), static_cast<uint8_t>(segment)});
    }
  }
  return items;
}

}  // namespace

void read_post_processor(const JsonObject& json, PostProcessing& post) {
  const std::string type = json.text("type");
  if (type == "Sequence") {
    for (const JsonObject& step : json.objects("processors")) read_post_processor(step, post);
  } else if (type == "ByteLevel") {
    post.trim_offsets = json.flag("trim_offsets", true);
    post.prefix_space = json.flag("add_prefix_space", true);
  } else if (type == "TemplateProcessing") {
    post.single = read_template(json, "single");
    post.pair = read_template(json, "pair");
  } else if (type == "BertProcessing") {
    const TokenId cls = read_token_pair(json, "cls"), sep = read_token_pair(json, "sep");
    post.single = {{-1, cls, 0}, {0, kNoToken, 0}, {-1, sep, 0}};
    post.pair = {{-1, cls, 0}, {0, kNoToken, 0}, {-1, sep, 0}, {1, kNoToken, 1}, {-1, sep, 1}};
  } else if (type == "RobertaProcessing") {
    const TokenId cls = read_token_pair(json, "cls"), sep = read_token_pair(json, "sep");
    post.single = {{-1, cls, 0}, {0, kNoToken, 0}, {-1, sep, 0}};
    post.pair = {{-1, cls, 0}, {0, kNoToken, 0}, {-1, sep, 0}, {-1, sep, 0}, {1, kNoToken, 0}, {-1, sep, 0}};
    post.trim_offsets = json.flag("trim_offsets", true);
    post.prefix_space = json.flag("add_prefix_space", true);
  } else {
    fail_unknown(json, type);
  }
}

void read_decoder(const JsonObject& json, std::vector<std::unique_ptr<TokenDecoder>>& steps) {
  const std::string type = json.text("type");
  if (type == "Sequence") {
    for (const JsonObject& step : json.objects("decoders")) read_decoder(step, steps);
  } else if (type == "ByteLevel") {
    steps.push_back(std::make_unique<ByteLevelDecoder>());
  } else if (type == "WordPiece") {
    steps.push_back(std::make_unique<WordPieceDecoder>(json.text("prefix", "##"), json.flag("cleanup", true)));
  } else if (type == "Metaspace") {
    steps.push_back(
        std::make_unique<MetaspaceDecoder>(read_replacement(json), read_prepend(json) != Metaspace::Prepend::kNever));
  } else if (type == "Replace") {
    const JsonObject pattern = json.object("pattern");
    if (!pattern.has("String")) pattern.fail("is not a String, which is all that Linnet replaces in decoding");
    steps.push_back(std::make_unique<ReplaceDecoder>(pattern.text("String"), json.text("content")));
  } else if (type == "ByteFallback") {
    steps.push_back(std::make_unique<ByteFallbackDecoder>());
  } else if (type == "Fuse") {
    steps.push_back(std::make_unique<FuseDecoder>());
  } else if (type == "Strip") {
    const int64_t start = json.integer("start", 0), stop = json.integer("stop", 0);
    if (start < 0 || stop < 0) json.fail("strips less than nothing");
    steps.push_back(
        std::make_unique<StripDecoder>(json.text("content"), static_cast<size_t>(start), static_cast<size_t>(stop)));
  } else if (type == "BPEDecoder") {
    steps.push_back(std::make_unique<BpeDecoder>(json.text("suffix", "</w>")));
  } else {
    fail_unknown(json, type);
  }
}

}  // namespace linnet
