#include "data/examples/text/labelled_batches.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "data/examples/held_out.h"
#include "data/examples/text/line_reader.h"
#include "data/examples/text/parallel_text.h"
#include "data/examples/text/token_chunks.h"

namespace linnet {
namespace {

constexpr int64_t kSortedTogether = 32;  // batches among which sequences are sorted by length

}  // namespace

LabelledText read_labelled_text(const std::string& path) {
  LineReader reader(path);
  LabelledText lines;
  for (std::string line; reader.next(line);) {
    auto [text, label] = split_pair(line, reader.where(), 2, "text<TAB>label");
    const size_t begin = label.find_first_not_of(" \r"), end = label.find_last_not_of(" \r");
    if (begin == label.npos) fail_user(reader.where() + ": the label after the tab is empty");
    label = label.substr(begin, end - begin + 1);
    if (reader.line_number() == 1 && label == "label") continue;
    lines.texts.push_back(std::move(text));
    lines.labels.push_back(std::move(label));
  }
  if (lines.texts.empty()) fail_user("'" + path + "' has no labelled lines");
  return lines;
}

LabelledText split_off(LabelledText& text, double share, uint64_t seed) {
  const std::vector<std::string> names = label_names(text.labels);
  std::vector<int32_t> labels;
  for (const std::string& label : text.labels)
    labels.push_back(static_cast<int32_t>(std::ranges::find(names, label) - names.begin()));
  const std::vector<bool> chosen = choose_held_out(labels, share, seed);
  LabelledText part, rest;
  for (size_t i = 0; i < text.texts.size(); ++i) {
    LabelledText& to = chosen[i] ? part : rest;
    to.texts.push_back(std::move(text.texts[i]));
    to.labels.push_back(std::move(text.labels[i]));
  }
  text = std::move(rest);
  return part;
}

std::vector<std::string> label_names(const std::vector<std::string>& labels) {
  const std::set<std::string> names(labels.begin(), labels.end());
  std::vector<std::string> numbers;
  for (size_t i = 0; i < names.size(); ++i) numbers.push_back(std::to_string(i));
  const bool counted = std::all_of(numbers.begin(), numbers.end(), [&](const auto& n) { return names.contains(n); });
  return counted ? numbers : std::vector<std::string>(names.begin(), names.end());
}

namespace {

// Empty: not a number.
std::optional<double> number_of(const std::string& label) {
  double value = 0;
  const auto [end, error] = std::from_chars(label.data(), label.data() + label.size(), value);
  if (error != std::errc() || end != label.data() + label.size() || !std::isfinite(value)) return {};
  return value;
}

// Whether the parts between separators are two or more, and all of them labels by themselves.
bool is_several(const std::string& label, char separator, const std::set<std::string>& names) {
  if (label.find(separator) == label.npos) return false;
  for (size_t start = 0; start <= label.size();) {
    const size_t end = std::min(label.find(separator, start), label.size());
    std::string part = label.substr(start, end - start);
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    if (!names.contains(part)) return false;
    start = end + 1;
  }
  return true;
}

}  // namespace

void check_are_classes(const std::vector<std::string>& labels, const std::string& path) {
  const std::set<std::string> names(labels.begin(), labels.end());
  bool are_numbers = true;
  std::string fraction;
  for (const std::string& name : names) {
    const std::optional<double> value = number_of(name);
    are_numbers = are_numbers && value;
    if (value && *value != std::floor(*value)) fraction = name;
  }
  if (are_numbers && !fraction.empty())
    fail_user("'" + path + "' has numbers such as " + fraction +
              " as labels: Linnet learns classes, it does not predict numbers (regression); round them to whole numbers, "
              "or give the classes names");
  for (const std::string& name : names)
    for (const char separator : {',', ';', '|'})
      if (is_several(name, separator, names))
        fail_user("'" + path + "' has several labels in one, such as '" + name +
                  "': Linnet learns one class for each text; keep one of them, or join them by + to make each "
                  "combination a class");
}

std::vector<BatchInput> labelled_inputs(int64_t rows, int64_t longest) {
  const size_t bytes = static_cast<size_t>(rows) * sizeof(int32_t);
  return {{"tokens", bytes * static_cast<size_t>(longest)}, {"lengths", bytes}, {"labels", bytes}};
}

LabelledBatches::LabelledBatches(const LabelledSequences& data, int64_t rows, std::vector<int64_t> lengths,
                                 uint64_t seed)
    : data_(data),
      rows_(rows),
      lengths_(std::move(lengths)),
      seed_(seed),
      sorted_(data.tokens.size()),
      owned_(labelled_inputs(rows, lengths_.back())) {
  if (data.size() == 0) fail_user("there are no examples");
  std::iota(sorted_.begin(), sorted_.end(), int64_t{0});
  std::stable_sort(sorted_.begin(), sorted_.end(), [&](int64_t a, int64_t b) {
    return data.tokens[static_cast<size_t>(a)].size() < data.tokens[static_cast<size_t>(b)].size();
  });
}

// Shuffled, sorted by length within pools of batches, and the batches shuffled again.
void LabelledBatches::shuffle(int64_t epoch) {
  const uint64_t key = mix64(mix64(seed_ + 0x9e3779b97f4a7c15u) + static_cast<uint64_t>(epoch));
  const ShuffledIndex sequences(data_.size(), key), batches(batches_per_epoch(), mix64(key + 1));
  order_.resize(static_cast<size_t>(data_.size()));
  for (int64_t i = 0; i < data_.size(); ++i) order_[static_cast<size_t>(i)] = sequences(i);
  for (int64_t begin = 0; begin < data_.size(); begin += kSortedTogether * rows_)
    std::stable_sort(order_.begin() + begin, order_.begin() + std::min(data_.size(), begin + kSortedTogether * rows_),
                     [&](int64_t a, int64_t b) {
                       return data_.tokens[static_cast<size_t>(a)].size() < data_.tokens[static_cast<size_t>(b)].size();
                     });
  starts_.resize(static_cast<size_t>(batches_per_epoch()));
  for (int64_t i = 0; i < batches_per_epoch(); ++i) starts_[static_cast<size_t>(i)] = batches(i) * rows_;
  ordered_epoch_ = epoch;
}

void LabelledBatches::fill(const int64_t* order, int64_t count) {
  size_t longest = 0;
  for (int64_t i = 0; i < count; ++i) longest = std::max(longest, data_.tokens[static_cast<size_t>(order[i])].size());
  const auto found = std::lower_bound(lengths_.begin(), lengths_.end(), static_cast<int64_t>(longest));
  if (found == lengths_.end()) fail_internal("a sequence is longer than any batch");
  const int64_t length = *found;
  int32_t *tokens = owned_.data(0), *lengths = owned_.data(1), *labels = owned_.data(2);
  std::fill_n(tokens, rows_ * length, 0);
  for (int64_t row = 0; row < rows_; ++row) {
    lengths[row] = 1, labels[row] = -1;
    if (row >= count) continue;
    const auto i = static_cast<size_t>(order[row]);
    std::copy(data_.tokens[i].begin(), data_.tokens[i].end(), tokens + row * length);
    lengths[row] = static_cast<int32_t>(data_.tokens[i].size());
    labels[row] = data_.labels[i];
  }
  owned_.resize(0, static_cast<size_t>(rows_ * length) * sizeof(int32_t));
  owned_.batch.shape_index = static_cast<int>(found - lengths_.begin());
}

const Batch& LabelledBatches::next() {
  const auto taken = cursor_.take([this](int64_t) { return batches_per_epoch(); });
  if (ordered_epoch_ != taken.epoch) shuffle(taken.epoch);
  const int64_t start = starts_[static_cast<size_t>(taken.index)];
  static_cast<BatchPosition&>(owned_.batch) = taken.position;
  fill(order_.data() + start, std::min(rows_, data_.size() - start));
  return owned_.batch;
}

const Batch& LabelledBatches::sorted_batch(int64_t index, std::vector<int64_t>& order) {
  const int64_t start = index * rows_, count = std::min(rows_, data_.size() - start);
  order.assign(sorted_.begin() + start, sorted_.begin() + start + count);
  fill(order.data(), count);
  return owned_.batch;
}

}  // namespace linnet
