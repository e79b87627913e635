// Who sees what: padding, other rows, later tokens, and the length that a row is padded to.
#include <algorithm>
#include <cstring>
#include "training/check/check.h"

namespace linnet {
namespace {

constexpr double kRounding = 2e-5;  // relative, between sums in another order

int64_t row_bytes(const CheckSubject& subject, const std::string& name) {
  const TensorType type = input_type(subject, name);
  return static_cast<int64_t>(type.bytes()) / type.shape[0];
}

// Other tokens of the batch in the places of [from, to) of a row, so that all stay in the vocabulary.
void replace(std::span<int32_t> row, int64_t from, int64_t to, std::span<const int32_t> all) {
  for (int64_t i = from; i < to; ++i)
    for (size_t next = static_cast<size_t>(7 * i + 3), tries = 0; tries < all.size(); ++next, ++tries)
      if (const int32_t token = all[next % all.size()]; token != row[i]) {
        row[i] = token;
        break;
      }
}

struct Rows {
  int64_t count, length;
};
Rows sizes(const CheckSubject& subject, const CheckSequence& sequence) {
  const Shape shape = input_type(subject, sequence.tokens).shape;
  return {shape[0], shape[1]};
}

// Other tokens from from(row) up to `to` in each row.
template <class From>
void replace_tokens(CheckBatch& batch, const CheckSequence& sequence, const Rows& rows, const From& from, int64_t to) {
  const auto tokens = ids(batch, sequence.tokens);
  const std::vector<int32_t> all(tokens.begin(), tokens.end());
  for (int64_t row = 0; row < rows.count; ++row)
    replace(tokens.subspan(static_cast<size_t>(row * rows.length), static_cast<size_t>(rows.length)), from(row), to,
            all);
}

struct Positions {
  int64_t from, to;
};

// How much the loss of the targets at some positions of each row changes with the tokens at others.
double change_of_loss(CheckSubject& subject, const CheckSequence& sequence, Positions kept, Positions replaced) {
  restart(subject);
  const Rows rows = sizes(subject, sequence);
  CheckBatch batch = subject.batch;
  const auto targets = ids(batch, sequence.targets);
  for (int64_t row = 0; row < rows.count; ++row)
    for (int64_t t = 0; t < rows.length; ++t)
      if (t < kept.from || t >= kept.to) targets[row * rows.length + t] = -1;
  const double before = loss_of(subject, batch).sum;
  replace_tokens(
      batch, sequence, rows, [&](int64_t) { return replaced.from; }, replaced.to);
  return difference(before, loss_of(subject, batch).sum);
}

const CheckSequence* causal_sequence(const CheckSubject& subject) {
  const auto found = std::ranges::find_if(subject.sequences, [](const auto& s) { return !s.targets.empty(); });
  return found == subject.sequences.end() ? nullptr : &*found;
}

// A position that rows reach with tokens on both sides of it.
int64_t middle(const CheckSubject& subject, const CheckSequence& sequence) {
  const Rows rows = sizes(subject, sequence);
  int64_t longest = rows.length;
  if (!sequence.lengths.empty()) {
    CheckBatch batch = subject.batch;
    longest = std::ranges::max(ids(batch, sequence.lengths));
  }
  return longest / 2;
}

// Row `row` of the batch in every row.
CheckBatch repeated(const CheckSubject& subject, int64_t row, int64_t rows) {
  CheckBatch batch = subject.batch;
  for (auto& [name, bytes] : batch) {
    const int64_t size = row_bytes(subject, name);
    const std::vector<std::byte> kept(bytes.begin() + row * size, bytes.begin() + (row + 1) * size);
    for (int64_t other = 0; other < rows; ++other) std::ranges::copy(kept, bytes.begin() + other * size);
  }
  return batch;
}

// Every row one place further down.
CheckBatch rotated(const CheckSubject& subject, int64_t rows) {
  CheckBatch batch = subject.batch;
  for (auto& [name, bytes] : batch)
    if (name != subject.flat_positions && input_type(subject, name).shape[0] == rows)
      std::rotate(bytes.begin(), bytes.end() - static_cast<std::ptrdiff_t>(row_bytes(subject, name)), bytes.end());
  if (subject.flat_positions.empty()) return batch;
  const int64_t length = sizes(subject, subject.sequences.front()).length;
  for (int32_t& position : ids(batch, subject.flat_positions))
    if (position >= 0) position = static_cast<int32_t>((position + length) % (rows * length));
  return batch;
}

}  // namespace

Finding check_causality(CheckSubject& subject) {
  const CheckSequence* sequence = causal_sequence(subject);
  if (!sequence) return skipped("the model does not predict token by token");
  const int64_t at = middle(subject, *sequence);
  const double change = change_of_loss(subject, *sequence, {0, at}, {at, sizes(subject, *sequence).length});
  return verdict(change < kRounding,
                 text_of("other tokens from position %lld on change the loss before it by %.2g relative",
                         static_cast<long long>(at), change));
}

Finding check_context(CheckSubject& subject) {
  const CheckSequence* sequence = causal_sequence(subject);
  if (!sequence) return skipped("the model does not predict token by token");
  const int64_t at = middle(subject, *sequence);
  if (at < 2) return skipped("the rows are too short");
  const double change = change_of_loss(subject, *sequence, {at, at + 1}, {0, at});
  return verdict(change > 1e-7, text_of("other tokens before position %lld change its loss by %.2g relative",
                                        static_cast<long long>(at), change));
}

Finding check_padding(CheckSubject& subject) {
  double worst = -1;
  restart(subject);
  for (const CheckSequence& sequence : subject.sequences) {
    if (sequence.lengths.empty() || !subject.flat_positions.empty()) continue;
    const Rows rows = sizes(subject, sequence);
    CheckBatch batch = subject.batch;
    for (int32_t& length : ids(batch, sequence.lengths)) length = std::min(length, std::max(1, length / 2));
    const double before = loss_of(subject, batch).sum;
    const auto lengths = ids(batch, sequence.lengths);
    replace_tokens(
        batch, sequence, rows, [&](int64_t row) { return lengths[row]; }, rows.length);
    worst = std::max(worst, difference(before, loss_of(subject, batch).sum));
  }
  if (worst < 0) return skipped("the rows have no padding");
  return verdict(worst < kRounding, text_of("other tokens beyond the lengths change the loss by %.2g relative", worst));
}

Finding check_rows(CheckSubject& subject) {
  const int64_t rows = rows_of(subject);
  if (rows < 2) return skipped("the batch has one row");
  if (!subject.rows_are_apart) return skipped("texts of a batch learn from each other");
  for (const auto& [name, bytes] : subject.batch)
    if (subject.flat_positions.empty() && input_type(subject, name).shape[0] != rows)
      return skipped("rows belong together");
  restart(subject);
  const double whole = loss_of(subject, subject.batch).sum;
  double worst = difference(whole, loss_of(subject, rotated(subject, rows)).sum);
  if (subject.flat_positions.empty() && rows <= 64) {
    double alone = 0;
    for (int64_t row = 0; row < rows; ++row)
      alone += loss_of(subject, repeated(subject, row, rows)).sum / static_cast<double>(rows);
    worst = std::max(worst, difference(whole, alone));
  }
  return verdict(worst < kRounding, text_of("%lld rows in another order, or each among copies of itself: %.2g relative",
                                            static_cast<long long>(rows), worst));
}

// Row 0 alone, in its own shape and padded to that of another plan.
Finding check_lengths(CheckSubject& subject) {
  const auto plans = subject.trainer.plans().by_name();
  if (subject.sequences.empty() || !subject.flat_positions.empty() || subject.sequences[0].lengths.empty() ||
      !plans.contains("evaluate.1"))
    return skipped("there is one length");
  if (!subject.rows_are_apart) return skipped("texts of a batch learn from each other");
  restart(subject);
  const int other_shape = subject.shape == 0 ? 1 : subject.shape - 1;
  const auto type_in = [&](int shape, const std::string& name) {
    const Graph& graph = plans.at("evaluate." + std::to_string(shape))->graph;
    return graph.value(*graph.find_input(name)).type;
  };
  const auto row_alone = [&](int shape) {
    CheckBatch batch;
    for (const auto& [name, bytes] : subject.batch) {
      const TensorType type = type_in(shape, name);
      std::vector<std::byte>& to = batch[name];
      to.resize(type.bytes());
      if (std::ranges::find(subject.labels, name) != subject.labels.end()) std::ranges::fill(to, std::byte{0xff});
      const auto row = static_cast<int64_t>(type.bytes()) / type.shape[0];
      std::memcpy(to.data(), bytes.data(), static_cast<size_t>(std::min(row, row_bytes(subject, name))));
    }
    // What does not fit the shorter of the two is cut off in both.
    for (const CheckSequence& sequence : subject.sequences) {
      if (sequence.lengths.empty()) continue;
      int32_t& length = ids(batch, sequence.lengths)[0];
      for (const int each : {other_shape, subject.shape})
        length = std::min(length, static_cast<int32_t>(type_in(each, sequence.tokens).shape[1]));
      if (subject.labels_are_positions)
        for (int32_t& position : ids(batch, subject.labels[0])) position = std::min(position, length - 1);
    }
    CheckSubject of_shape = subject;
    of_shape.shape = shape;
    return loss_of(of_shape, batch).sum;
  };
  const double there = row_alone(other_shape), here = row_alone(subject.shape);
  return verdict(difference(here, there) < kRounding,
                 text_of("a row alone, padded to another length: %.2g relative", difference(here, there)));
}

}  // namespace linnet
