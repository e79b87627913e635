#include "data/examples/text/text_examples.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/hash.h"
#include "data/examples/text/token_chunks.h"

namespace linnet {
namespace {

constexpr int64_t kSortedTogether = 32;                     // batches among which texts are sorted by length
enum Array : size_t { kTokens, kLengths, kLabels, kMore };  // kMore: weights or types

bool has_types(const TextExamples& data) { return !data.types.empty(); }

size_t label_numbers(const LabelForm& form, size_t rows, size_t length) {
  return rows * (form.kind == LabelForm::Kind::kTokenClasses ? length : static_cast<size_t>(form.numbers));
}

}  // namespace

void TextExamples::add(std::vector<int32_t> ids, std::span<const float> labels) {
  tokens.push_back(std::move(ids));
  labels_.insert(labels_.end(), labels.begin(), labels.end());
  label_ends_.push_back(labels_.size());
}

size_t TextExamples::length(int64_t example) const {
  size_t longest = 0;
  for (int64_t part = 0; part < form.parts; ++part)
    longest = std::max(longest, tokens[static_cast<size_t>(example * form.parts + part)].size());
  return longest;
}

std::span<const float> TextExamples::labels(size_t example) const {
  const size_t begin = example == 0 ? 0 : label_ends_[example - 1];
  return std::span(labels_).subspan(begin, label_ends_[example] - begin);
}

std::vector<BatchInput> text_inputs(int64_t rows, int64_t longest, const LabelForm& form, bool types) {
  const auto count = static_cast<size_t>(rows), length = static_cast<size_t>(longest);
  const size_t texts = count * static_cast<size_t>(form.parts);
  std::vector<BatchInput> inputs{{"tokens", texts * length * sizeof(int32_t)},
                                 {"lengths", texts * sizeof(int32_t)},
                                 {"labels", label_numbers(form, count, length) * sizeof(int32_t)}};
  if (form.kind == LabelForm::Kind::kNumbers) inputs.push_back({"weights", count * sizeof(float)});
  if (types) inputs.push_back({"types", texts * length * sizeof(int32_t)});
  return inputs;
}

TextBatches::TextBatches(const TextExamples& data, int64_t rows, std::vector<int64_t> lengths, uint64_t seed)
    : data_(data),
      rows_(rows),
      lengths_(std::move(lengths)),
      seed_(seed),
      sorted_(static_cast<size_t>(data.size())),
      owned_(text_inputs(rows, lengths_.back(), data.form, has_types(data))) {
  if (data.size() == 0) fail_user("there are no examples");
  std::iota(sorted_.begin(), sorted_.end(), int64_t{0});
  std::ranges::stable_sort(sorted_, {}, [&](int64_t i) { return data.length(i); });
}

// Shuffled, sorted by length within pools of batches, and the batches shuffled again.
void TextBatches::shuffle(int64_t epoch) {
  const uint64_t key = mix64(mix64(seed_ + 0x9e3779b97f4a7c15u) + static_cast<uint64_t>(epoch));
  const ShuffledIndex texts(data_.size(), key), batches(batches_per_epoch(), mix64(key + 1));
  order_.resize(static_cast<size_t>(data_.size()));
  for (int64_t i = 0; i < data_.size(); ++i) order_[static_cast<size_t>(i)] = texts(i);
  for (int64_t begin = 0; begin < data_.size(); begin += kSortedTogether * rows_) {
    const auto pool = order_.begin() + begin;
    std::stable_sort(pool, order_.begin() + std::min(data_.size(), begin + kSortedTogether * rows_),
                     [&](int64_t a, int64_t b) { return data_.length(a) < data_.length(b); });
  }
  starts_.resize(static_cast<size_t>(batches_per_epoch()));
  for (int64_t i = 0; i < batches_per_epoch(); ++i) starts_[static_cast<size_t>(i)] = batches(i) * rows_;
  ordered_epoch_ = epoch;
}

void TextBatches::fill(std::span<const int64_t> examples) {
  size_t longest = 0;
  for (const int64_t i : examples) longest = std::max(longest, data_.length(i));
  const auto found = std::ranges::lower_bound(lengths_, static_cast<int64_t>(longest));
  if (found == lengths_.end()) fail_internal("a text is longer than any batch");
  const auto length = static_cast<size_t>(*found), rows = static_cast<size_t>(rows_);
  const auto parts = static_cast<size_t>(data_.form.parts), texts = rows * parts;
  const bool numbers = data_.form.kind == LabelForm::Kind::kNumbers, types = has_types(data_);
  int32_t* type = types ? owned_.data(numbers ? kMore + 1 : kMore) : nullptr;
  std::fill_n(owned_.data(kTokens), texts * length, 0);
  std::fill_n(owned_.data(kLengths), texts, 1);  // a row without an example has one token
  if (types) std::fill_n(type, texts * length, 0);
  const size_t count = label_numbers(data_.form, rows, length);
  if (numbers) {
    std::fill_n(owned_.data<float>(kLabels), count, 0.0f);
    std::fill_n(owned_.data<float>(kMore), rows, 0.0f);
  } else {
    std::fill_n(owned_.data(kLabels), count, -1);
  }
  for (size_t row = 0; row < examples.size(); ++row) {
    const auto i = static_cast<size_t>(examples[row]);
    for (size_t part = 0; part < parts; ++part) {
      const size_t text = i * parts + part, to = part * rows + row;
      std::ranges::copy(data_.tokens[text], owned_.data(kTokens) + to * length);
      owned_.data(kLengths)[to] = static_cast<int32_t>(data_.tokens[text].size());
      if (types) std::ranges::copy(data_.types[text], type + to * length);
    }
    fill_labels(row, i, length);
  }
  owned_.resize(kTokens, texts * length * sizeof(int32_t));
  owned_.resize(kLabels, count * sizeof(int32_t));
  if (types) owned_.resize(numbers ? kMore + 1 : kMore, texts * length * sizeof(int32_t));
  owned_.batch.shape_index = static_cast<int>(found - lengths_.begin());
}

void TextBatches::fill_labels(size_t row, size_t example, size_t length) {
  const std::span<const float> labels = data_.labels(example);
  if (data_.form.kind == LabelForm::Kind::kNumbers) {
    std::ranges::copy(labels, owned_.data<float>(kLabels) + row * labels.size());
    owned_.data<float>(kMore)[row] = 1;
    return;
  }
  int32_t* out = owned_.data(kLabels) + row * label_numbers(data_.form, 1, length);
  std::ranges::transform(labels, out, [](float label) { return static_cast<int32_t>(label); });
}

const Batch& TextBatches::next() {
  const auto taken = cursor_.take([this](int64_t) { return batches_per_epoch(); });
  if (ordered_epoch_ != taken.epoch) shuffle(taken.epoch);
  const int64_t start = starts_[static_cast<size_t>(taken.index)];
  static_cast<BatchPosition&>(owned_.batch) = taken.position;
  fill(std::span(order_).subspan(static_cast<size_t>(start),
                                 static_cast<size_t>(std::min(rows_, data_.size() - start))));
  return owned_.batch;
}

const Batch& TextBatches::sorted_batch(int64_t index) {
  fill(sorted_rows(index));
  return owned_.batch;
}

std::span<const int64_t> TextBatches::sorted_rows(int64_t index) const {
  const int64_t start = index * rows_;
  return std::span(sorted_).subspan(static_cast<size_t>(start),
                                    static_cast<size_t>(std::min(rows_, data_.size() - start)));
}

}  // namespace linnet
