#include "data/labelled_batches.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "data/held_out.h"
#include "data/line_reader.h"
#include "data/parallel_text.h"
#include "data/token_windows.h"

namespace linnet {
namespace {

constexpr int64_t kPool = 32;  // batches among which sequences are sorted by length

}  // namespace

LabelledText read_labelled_text(const std::string& path) {
  LineReader reader(path);
  LabelledText lines;
  for (std::string line; reader.next(line);) {
    auto [text, label] = split_pair(line, reader.where(), 2, "text<TAB>label");
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

LabelledBatches::LabelledBatches(const LabelledSequences& data, int64_t rows, std::vector<int64_t> lengths,
                                 uint64_t seed)
    : data_(data), rows_(rows), lengths_(std::move(lengths)), seed_(seed), sorted_(data.tokens.size()) {
  if (data.size() == 0) fail_user("there are no examples");
  std::iota(sorted_.begin(), sorted_.end(), int64_t{0});
  std::stable_sort(sorted_.begin(), sorted_.end(), [&](int64_t a, int64_t b) {
    return data.tokens[static_cast<size_t>(a)].size() < data.tokens[static_cast<size_t>(b)].size();
  });
}

void LabelledBatches::seek(int64_t epoch, int64_t index) {
  if (epoch < 0 || index < 0 || index >= batches_per_epoch())
    fail_user("batch " + std::to_string(index) + " of epoch " + std::to_string(epoch) +
              " does not exist: an epoch has " + std::to_string(batches_per_epoch()) +
              " batches; were the training data or the batch options changed?");
  epoch_ = epoch, index_ = index;
}

// Shuffled, sorted by length within pools of batches, and the batches shuffled again.
void LabelledBatches::shuffle() {
  const uint64_t key = mix64(mix64(seed_ + 0x9e3779b97f4a7c15u) + static_cast<uint64_t>(epoch_));
  const ShuffledIndex sequences(data_.size(), key), batches(batches_per_epoch(), mix64(key + 1));
  order_.resize(static_cast<size_t>(data_.size()));
  for (int64_t i = 0; i < data_.size(); ++i) order_[static_cast<size_t>(i)] = sequences(i);
  for (int64_t begin = 0; begin < data_.size(); begin += kPool * rows_)
    std::stable_sort(order_.begin() + begin, order_.begin() + std::min(data_.size(), begin + kPool * rows_),
                     [&](int64_t a, int64_t b) {
                       return data_.tokens[static_cast<size_t>(a)].size() < data_.tokens[static_cast<size_t>(b)].size();
                     });
  starts_.resize(static_cast<size_t>(batches_per_epoch()));
  for (int64_t i = 0; i < batches_per_epoch(); ++i) starts_[static_cast<size_t>(i)] = batches(i) * rows_;
  ordered_epoch_ = epoch_;
}

int LabelledBatches::fill(const int64_t* order, int64_t count, const LabelledBatch& batch) const {
  size_t longest = 0;
  for (int64_t i = 0; i < count; ++i) longest = std::max(longest, data_.tokens[static_cast<size_t>(order[i])].size());
  const auto found = std::lower_bound(lengths_.begin(), lengths_.end(), static_cast<int64_t>(longest));
  if (found == lengths_.end()) fail_internal("a sequence is longer than any batch");
  const int64_t length = *found;
  std::fill_n(batch.tokens, rows_ * length, 0);
  for (int64_t row = 0; row < rows_; ++row) {
    batch.lengths[row] = 1, batch.labels[row] = -1;
    if (row >= count) continue;
    const auto i = static_cast<size_t>(order[row]);
    std::copy(data_.tokens[i].begin(), data_.tokens[i].end(), batch.tokens + row * length);
    batch.lengths[row] = static_cast<int32_t>(data_.tokens[i].size());
    batch.labels[row] = data_.labels[i];
  }
  return static_cast<int>(found - lengths_.begin());
}

LabelledBatches::Place LabelledBatches::next(const LabelledBatch& batch) {
  if (ordered_epoch_ != epoch_) shuffle();
  const int64_t start = starts_[static_cast<size_t>(index_)];
  const int shape = fill(order_.data() + start, std::min(rows_, data_.size() - start), batch);
  const Place place{epoch_, index_, shape, index_ + 1 == batches_per_epoch()};
  epoch_ += place.last_of_epoch;
  index_ = place.last_of_epoch ? 0 : index_ + 1;
  return place;
}

int LabelledBatches::fill_sorted(int64_t index, const LabelledBatch& batch, std::vector<int64_t>& order) const {
  const int64_t start = index * rows_, count = std::min(rows_, data_.size() - start);
  order.assign(sorted_.begin() + start, sorted_.begin() + start + count);
  return fill(order.data(), count, batch);
}

}  // namespace linnet
