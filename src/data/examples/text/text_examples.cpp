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

template <class SizeOf>
std::vector<int64_t> sizes_of(int64_t count, const SizeOf& size_of) {
  std::vector<int64_t> sizes(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) sizes[static_cast<size_t>(i)] = static_cast<int64_t>(size_of(i));
  return sizes;
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

LengthBatches::LengthBatches(std::vector<int64_t> sizes, int64_t rows, std::vector<int64_t> lengths, uint64_t seed,
                             std::vector<BatchInput> inputs)
    : rows_(rows),
      lengths_(std::move(lengths)),
      owned_(std::move(inputs)),
      sizes_(std::move(sizes)),
      seed_(seed),
      sorted_(sizes_.size()) {
  if (sizes_.empty()) fail_user("there are no examples");
  std::iota(sorted_.begin(), sorted_.end(), int64_t{0});
  std::ranges::stable_sort(sorted_, {}, [&](int64_t i) { return sizes_[static_cast<size_t>(i)]; });
}

// Shuffled, sorted by length within pools of batches, and the batches shuffled again.
void LengthBatches::shuffle(int64_t epoch) {
  const uint64_t key = mix64(mix64(seed_ + 0x9e3779b97f4a7c15u) + static_cast<uint64_t>(epoch));
  const int64_t size = std::ssize(sizes_);
  const ShuffledIndex examples(size, key), batches(batches_per_epoch(), mix64(key + 1));
  order_.resize(sizes_.size());
  for (int64_t i = 0; i < size; ++i) order_[static_cast<size_t>(i)] = examples(i);
  for (int64_t begin = 0; begin < size; begin += kSortedTogether * rows_)
    std::stable_sort(
        order_.begin() + begin, order_.begin() + std::min(size, begin + kSortedTogether * rows_),
        [&](int64_t a, int64_t b) { return sizes_[static_cast<size_t>(a)] < sizes_[static_cast<size_t>(b)]; });
  starts_.resize(static_cast<size_t>(batches_per_epoch()));
  for (int64_t i = 0; i < batches_per_epoch(); ++i) starts_[static_cast<size_t>(i)] = batches(i) * rows_;
  ordered_epoch_ = epoch;
}

const Batch& LengthBatches::fill_padded(std::span<const int64_t> examples) {
  int64_t longest = 0;
  for (const int64_t i : examples) longest = std::max(longest, sizes_[static_cast<size_t>(i)]);
  const auto found = std::ranges::lower_bound(lengths_, longest);
  if (found == lengths_.end()) fail_internal("a text is longer than any batch");
  fill(examples, static_cast<size_t>(*found));
  owned_.batch.shape_index = static_cast<int>(found - lengths_.begin());
  return owned_.batch;
}

const Batch& LengthBatches::next() {
  const auto taken = cursor_.take([this](int64_t) { return batches_per_epoch(); });
  if (ordered_epoch_ != taken.epoch) shuffle(taken.epoch);
  const int64_t start = starts_[static_cast<size_t>(taken.index)];
  static_cast<BatchPosition&>(owned_.batch) = taken.position;
  return fill_padded(std::span(order_).subspan(static_cast<size_t>(start),
                                               static_cast<size_t>(std::min(rows_, std::ssize(sizes_) - start))));
}

const Batch& LengthBatches::sorted_batch(int64_t index) { return fill_padded(sorted_rows(index)); }

std::span<const int64_t> LengthBatches::sorted_rows(int64_t index) const {
  const int64_t start = index * rows_;
  return std::span(sorted_).subspan(static_cast<size_t>(start),
                                    static_cast<size_t>(std::min(rows_, std::ssize(sizes_) - start)));
}

TextBatches::TextBatches(const TextExamples& data, int64_t rows, const std::vector<int64_t>& lengths, uint64_t seed)
    : LengthBatches(sizes_of(data.size(), [&](int64_t i) { return data.length(i); }), rows, lengths, seed,
                    text_inputs(rows, lengths.back(), data.form, has_types(data))),
      data_(data) {}

void TextBatches::fill(std::span<const int64_t> examples, size_t length) {
  const auto rows = static_cast<size_t>(rows_), parts = static_cast<size_t>(data_.form.parts), texts = rows * parts;
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

std::vector<BatchInput> preference_inputs(int64_t pairs, int64_t longest) {
  const auto rows = 2 * static_cast<size_t>(pairs), bytes = rows * static_cast<size_t>(longest) * sizeof(int32_t);
  return {{"tokens", bytes},
          {"targets", bytes},
          {"reference", rows * sizeof(float)},
          {"weights", rows / 2 * sizeof(float)}};
}

PreferenceBatches::PreferenceBatches(const std::vector<PreferencePair>& data, int64_t pairs,
                                     const std::vector<int64_t>& lengths, uint64_t seed)
    : LengthBatches(sizes_of(std::ssize(data), [&](int64_t i) { return data[static_cast<size_t>(i)].size(); }), pairs,
                    lengths, seed, preference_inputs(pairs, lengths.back())),
      data_(data) {}

void PreferenceBatches::fill(std::span<const int64_t> examples, size_t length) {
  enum : size_t { kIds, kTargets, kReference, kWeights };
  const auto pairs = static_cast<size_t>(rows_);
  std::fill_n(owned_.data(kIds), 2 * pairs * length, 0);
  std::fill_n(owned_.data(kTargets), 2 * pairs * length, -1);
  for (size_t pair = 0; pair < pairs; ++pair) {
    const bool exists = pair < examples.size();
    owned_.data<float>(kWeights)[pair] = exists ? 1.0f : 0.0f;
    for (size_t side = 0; side < 2; ++side) {
      const size_t row = side * pairs + pair;
      int32_t* targets = owned_.data(kTargets) + row * length;
      if (!exists) *targets = 0;  // an answer has a token, by whose number the loss may divide
      owned_.data<float>(kReference)[row] = 0;
      if (!exists) continue;
      const PreferencePair& example = data_[static_cast<size_t>(examples[pair])];
      std::ranges::copy(example.answers[side].tokens, owned_.data(kIds) + row * length);
      std::ranges::copy(example.answers[side].targets, targets);
      owned_.data<float>(kReference)[row] = example.reference[side];
    }
  }
  for (const size_t array : {kIds, kTargets}) owned_.resize(array, 2 * pairs * length * sizeof(int32_t));
}

}  // namespace linnet
