#include "linnet/dataset.h"
#include <algorithm>
#include <numeric>
#include "api/cpp/shuffle.h"
#include "base/fail.h"
#include "linnet/error.h"

namespace linnet {
struct DenseField {
  std::string name;
  TensorType type;  // of one sample
  std::shared_ptr<const std::vector<std::byte>> bytes;
};

struct SequenceField {
  std::string name;
  std::shared_ptr<const std::vector<std::vector<int32_t>>> sequences;
};

namespace {
std::string length_name(const std::string& name) { return name + "_length"; }

// User error if a field has this name.
void check_field(const Dataset& dataset, const std::string& name) {
  if (name.empty()) fail_user("a field of a dataset has no name");
  if (dataset.sample_types().contains(name)) fail_user("the dataset has a field \"", name, "\" already");
}

void check_sizes(const std::string& name, const Shape& sample) {
  for (const int64_t size : sample.sizes())
    if (size < 1) fail_user("field \"", name, "\" has samples of shape ", sample);
}

int64_t stored_index(const std::vector<int64_t>* indices, int64_t index, int64_t size) {
  if (index < 0 || index >= size) fail_user("the dataset has ", size, " samples, numbered from 0; there is no ", index);
  return indices ? (*indices)[index] : index;
}
}  // namespace

struct Dataset::State {
  std::vector<DenseField> dense;
  std::vector<SequenceField> sequences;
  Function function;  // if set, used instead of fields
  InputTypes function_types;
  int64_t count = 0;                                    // samples of the fields
  std::shared_ptr<const std::vector<int64_t>> indices;  // if set, the selected samples

  // A state with one more field; copies of the dataset keep the old one.
  std::shared_ptr<State> with(const std::string& name, int64_t samples) const {
    if (samples < 1) fail_user("field \"", name, "\" has no samples");
    if (dense.size() + sequences.size() > 0 && count != samples)
      fail_user("field \"", name, "\" has ", samples, " samples, the others ", count);
    auto next = std::make_shared<State>(*this);
    next->count = samples;
    return next;
  }
};

Dataset::Dataset() : state_(std::make_shared<State>()) {}
Dataset::Dataset(const Dataset& other) = default;
Dataset& Dataset::operator=(const Dataset& other) = default;
Dataset::~Dataset() = default;

void Dataset::fail_width(const std::string& name) {
  fail_user("field \"", name, "\" has samples of different sizes; add_sequences() takes ids of any length");
}

Dataset& Dataset::add_bytes(const std::string& name, const TensorType& sample_type, std::span<const std::byte> bytes) {
  check_field(*this, name);
  if (state_->function || state_->indices) fail_user("fields are added before a dataset is split");
  if (sample_type.shape.rank() >= kMaxRank)
    fail_user("field \"", name, "\": a sample has at most ", kMaxRank - 1, " axes");
  check_sizes(name, sample_type.shape);
  const size_t each = sample_type.bytes();
  if (bytes.size() % each != 0)
    fail_user("field \"", name, "\": ", bytes.size() / dtype_size(sample_type.dtype),
        " values are no whole number of samples of ", sample_type);
  state_ = state_->with(name, static_cast<int64_t>(bytes.size() / each));
  state_->dense.push_back(
      {name, sample_type, std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end())});
  return *this;
}

Dataset& Dataset::add_sequences(const std::string& name, std::vector<std::vector<int32_t>> sequences) {
  check_field(*this, name);
  check_field(*this, length_name(name));
  if (state_->function || state_->indices) fail_user("fields are added before a dataset is split");
  state_ = state_->with(name, std::ssize(sequences));
  state_->sequences.push_back({name, std::make_shared<const std::vector<std::vector<int32_t>>>(std::move(sequences))});
  return *this;
}

Dataset Dataset::from_function(int64_t size, const InputTypes& types, Function function) {
  if (size < 1) fail_user("a dataset has at least 1 sample, not ", size);
  if (types.empty()) fail_user("a dataset from a function needs the types of a sample's fields");
  if (!function) fail_user("a dataset from a function needs a function");
  for (const auto& [name, type] : types) check_sizes(name, type.shape);
  Dataset dataset;
  dataset.state_->count = size;
  dataset.state_->function_types = types;
  dataset.state_->function = std::move(function);
  return dataset;
}

int64_t Dataset::size() const {
  return state_->indices ? static_cast<int64_t>(state_->indices->size()) : state_->count;
}

InputTypes Dataset::sample_types() const {
  InputTypes types = state_->function_types;
  for (const DenseField& field : state_->dense) types[field.name] = field.type;
  for (const SequenceField& field : state_->sequences) {
    types[field.name] = {DType::kI32, {0}};
    types[length_name(field.name)] = {DType::kI32, {}};
  }
  return types;
}

Arrays Dataset::sample(int64_t index) const {
  const int64_t stored = stored_index(state_->indices.get(), index, size());
  if (state_->function) {
    Arrays sample(state_->function_types);
    state_->function(stored, sample);
    if (sample.types() != state_->function_types)
      fail_user("the function of a dataset gave sample ", stored, " with other fields or types");
    return sample;
  }
  Arrays sample;
  for (const DenseField& field : state_->dense) {
    const size_t each = field.type.bytes();
    sample.set_bytes(field.name, field.type, std::span(*field.bytes).subspan(static_cast<size_t>(stored) * each, each));
  }
  for (const SequenceField& field : state_->sequences) {
    const std::vector<int32_t>& ids = (*field.sequences)[stored];
    const auto length = static_cast<int32_t>(ids.size());
    sample.set(field.name, {length}, ids);
    sample.set<int32_t>(length_name(field.name), {}, {length});
  }
  return sample;
}

int64_t Dataset::length(int64_t index) const {
  const int64_t stored = stored_index(state_->indices.get(), index, size());
  size_t longest = 0;
  for (const SequenceField& field : state_->sequences) longest = std::max(longest, (*field.sequences)[stored].size());
  return static_cast<int64_t>(longest);
}

Dataset Dataset::select(std::vector<int64_t> indices) const {
  for (int64_t& index : indices) index = stored_index(state_->indices.get(), index, size());
  Dataset part(*this);
  part.state_ = std::make_shared<State>(*state_);
  part.state_->indices = std::make_shared<const std::vector<int64_t>>(std::move(indices));
  return part;
}

std::pair<Dataset, Dataset> Dataset::split(double fraction, uint64_t seed) const {
  const auto first = static_cast<int64_t>(fraction * static_cast<double>(size()));
  if (!(fraction > 0 && fraction < 1) || first < 1)
    fail_user("a dataset of ", size(), " samples cannot be split at ", fraction,
        "; the fraction is between 0 and 1, and both parts have samples");
  std::vector<int64_t> order(size());
  std::iota(order.begin(), order.end(), 0);
  shuffle(order, seed, 0);
  std::vector<int64_t> taken(order.begin(), order.begin() + first), others(order.begin() + first, order.end());
  std::ranges::sort(taken);
  std::ranges::sort(others);
  return {select(std::move(taken)), select(std::move(others))};
}
}  // namespace linnet
