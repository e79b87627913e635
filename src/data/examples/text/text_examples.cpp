#include "data/examples/text/text_examples.h"
#include "base/error.h"
#include "base/numbers.h"

namespace linnet {
namespace {
enum Array : size_t { kTokens, kLengths, kLabels, kMore };  // kMore: weights or types

bool has_types(const TextExamples& data) { return !data.types.empty(); }

int64_t label_numbers(const LabelForm& form, int64_t rows, int64_t length) {
  return rows * (form.kind == LabelForm::Kind::kTokenClasses ? length : form.numbers);
}
}  // namespace

void TextExamples::add(std::vector<int32_t> ids, std::span<const float> labels) {
  ids.shrink_to_fit();
  tokens.push_back(std::move(ids));
  labels_.insert(labels_.end(), labels.begin(), labels.end());
  label_ends_.push_back(labels_.size());
}

size_t TextExamples::length(int64_t example) const {
  return max_of<size_t>(form.parts, [&](int64_t part) { return tokens[example * form.parts + part].size(); });
}

std::span<const float> TextExamples::labels(size_t example) const {
  const size_t begin = example == 0 ? 0 : label_ends_[example - 1];
  return std::span(labels_).subspan(begin, label_ends_[example] - begin);
}

std::vector<BatchInput> text_inputs(int64_t rows, int64_t longest, const LabelForm& form, bool types) {
  const int64_t texts = rows * form.parts;
  std::vector<BatchInput> inputs{number_input("tokens", texts * longest), number_input("lengths", texts),
      number_input("labels", label_numbers(form, rows, longest))};
  if (form.kind == LabelForm::Kind::kNumbers) inputs.push_back(number_input("weights", rows));
  if (types) inputs.push_back(number_input("types", texts * longest));
  return inputs;
}

LengthBatches::LengthBatches(int64_t count, FunctionRef<int64_t(int64_t)> size_of, int64_t rows,
    std::vector<int64_t> lengths, uint64_t seed, const std::vector<BatchInput>& inputs)
    : SingleBatchSource(inputs, seed), rows_(rows), lengths_(std::move(lengths)), sizes_(mapped(count, size_of)),
      sorted_(numbers_below<int64_t>(count)) {
  if (count == 0) fail_user("there are no examples");
  std::ranges::stable_sort(sorted_, {}, [&](int64_t i) { return sizes_[i]; });
}

void LengthBatches::fill_padded(std::span<const int64_t> examples) {
  const int64_t longest = max_of<int64_t>(examples, [&](int64_t i) { return sizes_[i]; });
  const auto found = std::ranges::lower_bound(lengths_, longest);
  if (found == lengths_.end()) fail_internal("a text is longer than any batch");
  fill(examples, *found);
  owned_.batch.shape_index = static_cast<int>(found - lengths_.begin());
}

void LengthBatches::make(int64_t epoch, int64_t index) {
  if (ordered_epoch_ != epoch) {
    order_.clear();
    starts_ = order_by_length(std::ssize(sizes_), rows_, order_key(seed_, epoch), order_, std::identity(),
        [&](int64_t i) { return sizes_[i]; });
    ordered_epoch_ = epoch;
  }
  fill_padded(std::span(order_).subspan(starts_[index], std::min(rows_, std::ssize(sizes_) - starts_[index])));
}

const Batch& LengthBatches::sorted_batch(int64_t index) {
  fill_padded(sorted_rows(index));
  return owned_.batch;
}

std::span<const int64_t> LengthBatches::sorted_rows(int64_t index) const {
  const int64_t start = index * rows_;
  return std::span(sorted_).subspan(start, std::min(rows_, std::ssize(sizes_) - start));
}

TextBatches::TextBatches(const TextExamples& data, int64_t rows, const std::vector<int64_t>& lengths, uint64_t seed)
    : LengthBatches(
          data.size(), [&](int64_t i) { return data.length(i); }, rows, lengths, seed,
          text_inputs(rows, lengths.back(), data.form, has_types(data))),
      data_(data) {}

void TextBatches::fill(std::span<const int64_t> examples, int64_t length) {
  const int64_t parts = data_.form.parts, texts = rows_ * parts, count = label_numbers(data_.form, rows_, length);
  const bool numbers = data_.form.kind == LabelForm::Kind::kNumbers, types = has_types(data_);
  const size_t type_array = numbers ? kMore + 1 : kMore;
  std::fill_n(owned_.data(kTokens), texts * length, 0);
  std::fill_n(owned_.data(kLengths), texts, 1);  // a row without an example has one token
  if (types) std::fill_n(owned_.data(type_array), texts * length, 0);
  if (numbers) {
    std::fill_n(owned_.data<float>(kLabels), count, 0.0f);
    std::fill_n(owned_.data<float>(kMore), rows_, 0.0f);
  } else {
    std::fill_n(owned_.data(kLabels), count, -1);
  }
  for (int64_t row = 0; row < std::ssize(examples); ++row) {
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t text = examples[row] * parts + part, to = part * rows_ + row;
      std::ranges::copy(data_.tokens[text], owned_.data(kTokens) + to * length);
      owned_.data(kLengths)[to] = static_cast<int32_t>(data_.tokens[text].size());
      if (types) std::ranges::copy(data_.types[text], owned_.data(type_array) + to * length);
    }
    const std::span<const float> labels = data_.labels(examples[row]);
    const int64_t at = label_numbers(data_.form, row, length);
    if (numbers) std::ranges::copy(labels, owned_.data<float>(kLabels) + at), owned_.data<float>(kMore)[row] = 1;
    else std::ranges::copy(labels, owned_.data(kLabels) + at);
  }
  owned_.resize(kTokens, texts * length);
  owned_.resize(kLabels, count);
  if (types) owned_.resize(type_array, texts * length);
}

std::vector<BatchInput> preference_inputs(int64_t pairs, int64_t longest) {
  const int64_t rows = 2 * pairs;
  return {number_input("tokens", rows * longest), number_input("targets", rows * longest),
      number_input("reference", rows), number_input("weights", pairs)};
}

PreferenceBatches::PreferenceBatches(
    const std::vector<PreferencePair>& data, int64_t pairs, const std::vector<int64_t>& lengths, uint64_t seed)
    : LengthBatches(
          std::ssize(data), [&](int64_t i) { return data[i].size(); }, pairs, lengths, seed,
          preference_inputs(pairs, lengths.back())),
      data_(data) {}

void PreferenceBatches::fill(std::span<const int64_t> examples, int64_t length) {
  enum : size_t { kIds, kTargets, kReference, kWeights };
  const int64_t tokens = 2 * rows_ * length;
  std::fill_n(owned_.data(kIds), tokens, 0);
  std::fill_n(owned_.data(kTargets), tokens, -1);
  std::fill_n(owned_.data<float>(kReference), 2 * rows_, 0.0f);
  for (int64_t pair = 0; pair < rows_; ++pair) {
    const bool exists = pair < std::ssize(examples);
    owned_.data<float>(kWeights)[pair] = exists ? 1.0f : 0.0f;
    for (const int64_t side : {0, 1}) {
      const int64_t row = side * rows_ + pair;
      int32_t* targets = owned_.data(kTargets) + row * length;
      if (!exists) {
        *targets = 0;  // an answer has a token, by whose number the loss may divide
        continue;
      }
      const PreferencePair& example = data_[examples[pair]];
      std::ranges::copy(example.answers[side].tokens, owned_.data(kIds) + row * length);
      std::ranges::copy(example.answers[side].targets, targets);
      owned_.data<float>(kReference)[row] = example.reference[side];
    }
  }
  for (const size_t array : {kIds, kTargets}) owned_.resize(array, tokens);
}
}  // namespace linnet
