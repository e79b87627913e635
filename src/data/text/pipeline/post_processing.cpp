// Truncates encoded texts and adds the special tokens of a template.
#include <algorithm>
#include "base/fail.h"
#include "data/text/pipeline/tokenizer_json.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
bool is_id(const Json& value) { return value.is_integer(0, Vocabulary::kMaxId); }

TokenId read_token_pair(const JsonObject& json, const char* key) {  // [piece, id]
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

void cut_encoding(Encoding& part, size_t length) {
  if (part.ids.size() > length) part.ids.resize(length);
  if (part.offsets.size() > length) part.offsets.resize(length);
}

// The shorter text stays whole if it fits in half of the room; else both get half, the second an odd token more.
void cut_longest(Encoding& first, Encoding& second, size_t room) {
  const bool swapped = first.ids.size() > second.ids.size();
  Encoding& shorter = swapped ? second : first;
  Encoding& longer = swapped ? first : second;
  size_t shorter_length = shorter.ids.size();
  size_t longer_length = shorter_length > room ? shorter_length : std::max(shorter_length, room - shorter_length);
  if (shorter_length + longer_length > room) {
    shorter_length = room / 2;
    longer_length = shorter_length + room % 2;
  }
  cut_encoding(shorter, shorter_length);
  cut_encoding(longer, longer_length);
}

// Truncates one part or two to options.max_length, including `added` tokens, as tokenizers does. Else a user error.
void cut_to_length(std::vector<Encoding>& parts, const EncodeOptions& options, int64_t added) {
  if (options.max_length <= 0) return;
  if (options.max_length < added)
    fail_user("a length of ", options.max_length, " tokens has no room for the ", added, " special ones");
  const auto room = static_cast<size_t>(options.max_length - added);
  const size_t total = sum_of<size_t>(parts, [&](const Encoding& part) { return part.ids.size(); });
  if (total <= room) return;
  if (parts.size() == 1) return cut_encoding(parts[0], room);
  if (options.truncation == Truncation::kLongestFirst) return cut_longest(parts[0], parts[1], room);
  Encoding& target = parts[options.truncation == Truncation::kOnlyFirst ? 0 : 1];
  const size_t excess = total - room;
  if (target.ids.size() <= excess)
    fail_user("the text to be cut has ", target.ids.size(), " tokens, ", excess, " have to go");
  cut_encoding(target, target.ids.size() - excess);
}
}  // namespace

void read_post_processor(const JsonObject& json, PostProcessing& post) {
  const std::string type = json.text("type");
  if (type == "Sequence") {
    for (const JsonObject& step : json.objects("processors")) read_post_processor(step, post);
  } else if (type == "TemplateProcessing") {
    post.single = read_template(json, "single");
    post.pair = read_template(json, "pair");
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    const TokenId cls = read_token_pair(json, "cls"), sep = read_token_pair(json, "sep");
    post.single = {{-1, cls, 0}, {0, kNoToken, 0}, {-1, sep, 0}};
    const uint8_t second = type == "BertProcessing" ? 1 : 0;
    post.pair = post.single;
    if (second == 0) post.pair.push_back({-1, sep, 0});
    post.pair.insert(post.pair.end(), {{1, kNoToken, second}, {-1, sep, second}});
  } else if (type != "ByteLevel") {
    fail_unknown(json, "type", type);
  }
  if (type != "ByteLevel" && type != "RobertaProcessing") return;
  post.trim_offsets = json.flag("trim_offsets", true);
  post.prefix_space = json.flag("add_prefix_space", true);
}

int64_t TemplateTokenizer::added_by_template(bool pair) const {
  return std::ranges::count_if(
      pair ? post_.pair : post_.single, [](const TemplateItem& item) { return item.text < 0; });
}

Encoding TemplateTokenizer::join(std::initializer_list<std::string_view> texts, const EncodeOptions& options) const {
  std::vector<Encoding> parts;
  for (const std::string_view text : texts) {
    Encoding& part = parts.emplace_back();
    const auto offsets = options.offsets ? &part.offsets : nullptr;
    options.all_special ? tokenize_with_special(text, part.ids, offsets) : tokenize(text, part.ids, offsets);
    if (!options.with_spaces) trim_offsets(text, part);
  }
  const bool pair = parts.size() == 2;
  cut_to_length(parts, options, options.add_special ? added_by_template(pair) : 0);
  Encoding whole;
  const auto append = [&](const Encoding& part, uint8_t segment) {
    whole.ids.insert(whole.ids.end(), part.ids.begin(), part.ids.end());
    whole.offsets.insert(whole.offsets.end(), part.offsets.begin(), part.offsets.end());
    whole.segments.insert(whole.segments.end(), part.ids.size(), segment);
    whole.special.insert(whole.special.end(), part.ids.size(), 0);
  };
  if (!options.add_special) {
    for (size_t i = 0; i < parts.size(); ++i) append(parts[i], static_cast<uint8_t>(i));
    return whole;
  }
  for (const TemplateItem& item : pair ? post_.pair : post_.single) {
    if (item.text >= 0) {
      append(parts[item.text], item.segment);
      continue;
    }
    whole.ids.push_back(item.id);
    if (options.offsets) whole.offsets.push_back({});
    whole.segments.push_back(item.segment);
    whole.special.push_back(1);
  }
  return whole;
}

// As in tokenizers: by the spaces in a token's spelling, the first of which may have been put before the text.
void TemplateTokenizer::trim_offsets(std::string_view text, Encoding& encoding) const {
  if (!post_.trim_offsets) return;
  const auto is_blank = [](std::string_view text, size_t at) {
    const char32_t c = utf8_code_point_at(text, at);
    return c == 0x120 || is_white_space(c);  // Ġ
  };
  for (size_t i = 0; i < encoding.offsets.size(); ++i) {
    TextRange& range = encoding.offsets[i];
    const std::string token = piece(encoding.ids[i]);
    size_t leading = 0, trailing = 0;
    for (size_t at = 0; at < token.size() && is_blank(token, at); at += utf8_length_at(token, at)) ++leading;
    for (size_t end = token.size(); end > 0 && is_blank(token, utf8_start_before(token, end));
         end = utf8_start_before(token, end))
      ++trailing;
    if (leading > 0 && post_.prefix_space && (i == 0 || range.begin == 0)) --leading;
    range.begin = std::min(range.begin + leading, range.end);
    if (trailing == 0 || range.end < trailing) continue;
    range.end = std::max(range.end - trailing, range.begin);
    while (range.end > range.begin && range.end < text.size() &&
           (static_cast<unsigned char>(text[range.end]) & 0xC0) == 0x80)
      --range.end;  // whole characters
  }
}
}  // namespace linnet
