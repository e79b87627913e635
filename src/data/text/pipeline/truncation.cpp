#include "data/text/pipeline/truncation.h"
#include <algorithm>
#include "base/error.h"

namespace linnet {
namespace {

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

}  // namespace

void cut_to_length(std::vector<Encoding>& parts, const EncodeOptions& options, int64_t added) {
  if (options.max_length <= 0) return;
  if (options.max_length < added)
    fail_user("a length of " + std::to_string(options.max_length) + " tokens has no room for the " +
              std::to_string(added) + " special ones");
  const auto room = static_cast<size_t>(options.max_length - added);
  size_t total = 0;
  for (const Encoding& part : parts) total += part.ids.size();
  if (total <= room) return;
  if (parts.size() == 1) return cut_encoding(parts[0], room);
  if (options.truncation == Truncation::kLongestFirst) return cut_longest(parts[0], parts[1], room);
  Encoding& target = parts[options.truncation == Truncation::kOnlyFirst ? 0 : 1];
  const size_t excess = total - room;
  if (target.ids.size() <= excess)
    fail_user("the text to be cut has " + std::to_string(target.ids.size()) + " tokens, " + std::to_string(excess) +
              " have to go");
  cut_encoding(target, target.ids.size() - excess);
}

int64_t special_count(const std::vector<TemplateItem>& items) {
  return std::count_if(items.begin(), items.end(), [](const TemplateItem& item) { return item.text < 0; });
}

Encoding join_by_template(std::vector<Encoding> parts, const PostProcessing& post, const EncodeOptions& options) {
  const bool pair = parts.size() == 2;
  cut_to_length(parts, options, options.add_special ? special_count(pair ? post.pair : post.single) : 0);
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
  for (const TemplateItem& item : pair ? post.pair : post.single) {
    if (item.text >= 0) {
      append(parts[static_cast<size_t>(item.text)], item.segment);
      continue;
    }
    whole.ids.push_back(item.id);
    if (options.offsets) whole.offsets.push_back({});
    whole.segments.push_back(item.segment);
    whole.special.push_back(1);
  }
  return whole;
}

}  // namespace linnet
