#include "data/text/base64.h"
#include "data/text/pipeline/normalizers.h"
#include "data/text/pipeline/pipeline_reader-inl.h"

namespace linnet {
namespace {

std::unique_ptr<Normalizer> read_sequence(const JsonObject& json) {
  std::vector<std::unique_ptr<Normalizer>> steps;
  for (const JsonObject& step : json.objects("normalizers")) steps.push_back(read_normalizer(step));
  return std::make_unique<SequenceNormalizer>(std::move(steps));
}

std::unique_ptr<Normalizer> read_charsmap(const JsonObject& json) {
  if (!json.has("precompiled_charsmap"))
    return std::make_unique<SequenceNormalizer>(std::vector<std::unique_ptr<Normalizer>>());
  std::string table;
  if (!decode_base64(json.text("precompiled_charsmap"), table)) json.fail("has a table that is not base64");
  if (table.empty()) return std::make_unique<SequenceNormalizer>(std::vector<std::unique_ptr<Normalizer>>());
  return std::make_unique<CharsmapNormalizer>(CharsmapTable(table, json.where()));
}

}  // namespace

std::unique_ptr<Normalizer> read_normalizer(const JsonObject& json) {
  using Form = UnicodeNormalizer::Form;
  const std::string type = json.text("type");
  if (type == "Sequence") return read_sequence(json);
  if (type == "BertNormalizer") {
    const bool lowercase = json.flag("lowercase", true);
    return std::make_unique<BertNormalizer>(json.flag("clean_text", true), json.flag("handle_chinese_chars", true),
                                            json.flag("strip_accents", lowercase), lowercase);
  }
  if (type == "NFC") return std::make_unique<UnicodeNormalizer>(Form::kNfc);
  if (type == "NFD") return std::make_unique<UnicodeNormalizer>(Form::kNfd);
  if (type == "NFKC") return std::make_unique<UnicodeNormalizer>(Form::kNfkc);
  if (type == "NFKD") return std::make_unique<UnicodeNormalizer>(Form::kNfkd);
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "StripAccents") return std::make_unique<StripAccentsNormalizer>();
  if (type == "Strip")
    return std::make_unique<StripNormalizer>(json.flag("strip_left", true), json.flag("strip_right", true));
  if (type == "Replace") return std::make_unique<ReplaceNormalizer>(read_pattern(json), json.text("content"));
  if (type == "Prepend") return std::make_unique<PrependNormalizer>(json.text("prepend"));
  if (type == "Precompiled") return read_charsmap(json);
  json.fail("has the type '" + type + "', which Linnet does not know");
}

}  // namespace linnet
