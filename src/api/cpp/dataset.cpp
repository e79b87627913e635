#include "linnet/dataset.h"
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <stop_token>
#include "api/cpp/helpers.h"
#include "base/fail.h"
#include "base/numbers.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "linnet/error.h"

namespace linnet {
struct DenseField {
  std::string name;
  TensorType type;  // of one sample
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  // of the bytes
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

// Fisher-Yates shuffle. The bias of a draw among `i` items is below i / 2^64.
template <class T> void shuffle(std::vector<T>& items, uint64_t seed, uint64_t stream) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u ^ (stream + 1) * 0xbf58476d1ce4e5b9u;
  for (size_t i = items.size(); i > 1; --i)
    std::swap(items[i - 1], items[(static_cast<unsigned __int128>(next_splitmix64(state)) * i) >> 64]);
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

bool is_label(const std::string& name, DType dtype) {
  return dtype == DType::kI32 && (name == "labels" || name == "targets");
}

void Dataset::fail_width(const std::string& name) {
  fail_user("field \"", name, "\" has samples of different sizes; add_sequences() takes ids of any length");
}

Dataset& Dataset::add_bytes(const std::string& name, const TensorType& sample_type, std::span<const std::byte> bytes,
    std::shared_ptr<const void> owner) {
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
  const auto copy = owner ? nullptr : std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  state_->dense.push_back({name, sample_type, copy ? std::span(*copy) : bytes, copy ? copy : std::move(owner)});
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
      fail_user("the function of a dataset gave sample ", stored, " as ", types_text(sample.types()), "; ",
          types_text(state_->function_types), " is wanted");
    return sample;
  }
  Arrays sample;
  for (const DenseField& field : state_->dense) {
    const size_t each = field.type.bytes();
    sample.set_bytes(field.name, field.type, field.bytes.subspan(static_cast<size_t>(stored) * each, each));
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
  return static_cast<int64_t>(
      max_of<size_t>(state_->sequences, [&](const SequenceField& field) { return (*field.sequences)[stored].size(); }));
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
  std::vector<int64_t> order = numbers_below<int64_t>(size());
  shuffle(order, seed, 0);
  std::vector<int64_t> taken(order.begin(), order.begin() + first), others(order.begin() + first, order.end());
  std::ranges::sort(taken);
  std::ranges::sort(others);
  return {select(std::move(taken)), select(std::move(others))};
}

struct Loader::State {
  struct Slot {
    size_t bucket;
    std::vector<int64_t> samples;
  };
  using Order = std::vector<Slot>;  // the batches of an epoch

  State(const Dataset& data, const LoaderOptions& given);

  std::atomic<bool> busy = false;  // next() runs

  void check() const;
  void choose_buckets();
  InputTypes types_of(size_t bucket, int64_t rows) const;
  const Slot& slot_of(int64_t batch);
  Order make_order(int64_t epoch) const;
  Arrays make(const Slot& slot) const;
  void work(const std::stop_token& stop);
  void begin(int64_t number);

  const Dataset dataset;
  const LoaderOptions options;
  std::vector<int64_t> buckets;               // lengths; one of 0 without sequences
  std::vector<std::vector<int64_t>> members;  // samples by bucket
  std::vector<std::string> sequences;         // names of sequence fields
  int64_t per_epoch = 0;
  int64_t number = 0;  // of the batch that next() gives, counted through all epochs
  Arrays current;

  std::mutex mutex;
  std::condition_variable_any begun, wanted;
  std::deque<std::shared_future<Arrays>> coming;  // batches from `number` on that workers have begun
  int64_t ordered_epoch = -1;
  Order order;  // of that epoch, which workers go through one after another
  std::optional<StoppingThreads> workers;
};

Loader::State::State(const Dataset& data, const LoaderOptions& given) : dataset(data), options(given) {
  check();
  for (const auto& [name, type] : dataset.sample_types())
    if (type.shape.rank() == 1 && type.shape[0] == 0) sequences.push_back(name);
  choose_buckets();
  for (size_t i = 0; i < buckets.size(); ++i) {
    const auto count = static_cast<int64_t>(members[i].size());
    per_epoch += options.drop_last ? count / options.batch : ceil_div(count, options.batch);
  }
  if (per_epoch == 0)
    fail_user("a loader with drop_last has no whole batch: the dataset has ", dataset.size(), " samples, and a batch ",
        options.batch);
  if (options.workers > 0) workers.emplace(options.workers, [this](const std::stop_token& stop) { work(stop); });
}

void Loader::State::check() const {
  if (dataset.size() < 1) fail_user("a loader needs a dataset with samples");
  if (options.batch < 1) fail_user("a loader's batch is at least 1, not ", options.batch);
  if (options.workers < 0 || options.workers > 256) fail_user("a loader has 0 to 256 workers, not ", options.workers);
  if (options.prefetch < 1) fail_user("a loader's prefetch is at least 1, not ", options.prefetch);
}

void Loader::State::choose_buckets() {
  const std::vector<int64_t> lengths = mapped(dataset.size(), [&](int64_t i) { return dataset.length(i); });
  const int64_t longest = *std::ranges::max_element(lengths);
  buckets = sequences.empty() ? std::vector<int64_t>{0} : options.buckets;
  if (buckets.empty()) buckets = {std::max<int64_t>(longest, 1)};
  std::ranges::sort(buckets);
  if (!sequences.empty() && (buckets.front() < 1 || buckets.back() < longest))
    fail_user("a loader's buckets reach to ", buckets.back(), "; the longest sample has ", longest, " tokens");
  members.resize(buckets.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto bucket = std::ranges::lower_bound(buckets, lengths[i]) - buckets.begin();
    members[bucket].push_back(static_cast<int64_t>(i));
  }
}

InputTypes Loader::State::types_of(size_t bucket, int64_t rows) const {
  InputTypes types;
  for (const auto& [name, type] : dataset.sample_types()) {
    const Shape of_sample = contains(sequences, name) ? Shape{buckets[bucket]} : type.shape;
    types[name] = {type.dtype, with_axes({rows}, of_sample)};
  }
  return types;
}

Loader::State::Order Loader::State::make_order(int64_t epoch) const {
  Order order;
  for (size_t bucket = 0; bucket < buckets.size(); ++bucket) {
    std::vector<int64_t> samples = members[bucket];
    if (options.shuffle) shuffle(samples, options.seed + bucket, static_cast<uint64_t>(epoch));
    const auto batch = static_cast<size_t>(options.batch);
    for (size_t i = 0; i < samples.size(); i += batch) {
      const size_t end = std::min(i + batch, samples.size());
      if (options.drop_last && end - i < batch) break;
      order.push_back(
          {bucket, {samples.begin() + static_cast<int64_t>(i), samples.begin() + static_cast<int64_t>(end)}});
    }
  }
  if (options.shuffle && buckets.size() > 1) shuffle(order, ~options.seed, static_cast<uint64_t>(epoch));
  return order;
}

// With the mutex held, or without workers.
const Loader::State::Slot& Loader::State::slot_of(int64_t batch) {
  const int64_t epoch = batch / per_epoch;
  if (ordered_epoch != epoch) order = make_order(epoch), ordered_epoch = epoch;
  return order[batch % per_epoch];
}

Arrays Loader::State::make(const Slot& slot) const {
  const int64_t rows = options.pad_last ? options.batch : std::ssize(slot.samples);
  Arrays batch(types_of(slot.bucket, rows));
  batch.samples = std::ssize(slot.samples);
  const InputTypes types = batch.types();
  std::map<std::string, std::span<std::byte>> to;
  for (const auto& [name, type] : types) {
    const std::span<const std::byte> bytes = batch.bytes(name);
    to[name] = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  }
  for (size_t row = 0; row < slot.samples.size(); ++row) {
    const Arrays sample = dataset.sample(slot.samples[row]);
    for (auto& [name, bytes] : to) {
      const size_t each = bytes.size() / static_cast<size_t>(rows);
      const std::span<const std::byte> from = sample.bytes(name);
      std::memcpy(bytes.data() + row * each, from.data(), from.size());
    }
  }
  for (const auto& [name, type] : types) {
    if (!is_label(name, type.dtype)) continue;
    const auto values = batch.get<int32_t>(name);
    const size_t each = values.size() / static_cast<size_t>(rows);
    std::ranges::fill(values.subspan(slot.samples.size() * each), -1);
  }
  return batch;
}

void Loader::State::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex);
  while (true) {
    wanted.wait(
        lock, stop, [this] { return std::ssize(coming) < static_cast<int64_t>(options.workers) * options.prefetch; });
    if (stop.stop_requested()) return;
    std::packaged_task<Arrays()> task([this, slot = slot_of(number + std::ssize(coming))] { return make(slot); });
    coming.push_back(task.get_future().share());
    begun.notify_all();
    lock.unlock();
    task();
    lock.lock();
  }
}

void Loader::State::begin(int64_t first) {
  {
    const std::lock_guard lock(mutex);
    coming.clear();
    number = first;
  }
  wanted.notify_all();
}

Loader::Loader(const Dataset& dataset, const LoaderOptions& options)
    : state_(std::make_unique<State>(dataset, options)) {}
Loader::~Loader() = default;

std::vector<InputTypes> Loader::shapes() const {
  std::vector<InputTypes> shapes;
  const LoaderOptions& options = state_->options;
  for (size_t i = 0; i < state_->buckets.size(); ++i) {
    const int64_t count = std::ssize(state_->members[i]), rest = count % options.batch;
    const bool rest_alone = rest > 0 && !options.drop_last && !options.pad_last;
    if (options.pad_last ? count > 0 : count >= options.batch) shapes.push_back(state_->types_of(i, options.batch));
    if (rest_alone) shapes.push_back(state_->types_of(i, rest));
  }
  return shapes;
}

int64_t Loader::batches() const { return state_->per_epoch; }

const Arrays& Loader::next() {
  State& s = *state_;
  const Busy busy(s.busy, "a loader");
  if (!s.workers) {
    s.current = s.make(s.slot_of(s.number));
    ++s.number;
    return s.current;
  }
  std::unique_lock lock(s.mutex);
  s.begun.wait(lock, [&] { return !s.coming.empty(); });
  const std::shared_future<Arrays> batch = s.coming.front();
  lock.unlock();
  s.current = std::move(const_cast<Arrays&>(batch.get()));  // if it throws, a second call has the same answer
  lock.lock();
  s.coming.pop_front();
  ++s.number;
  lock.unlock();
  s.wanted.notify_all();
  return s.current;
}

LoaderPosition Loader::position() const {
  return {state_->number / state_->per_epoch, state_->number % state_->per_epoch};
}

void Loader::seek(const LoaderPosition& position) {
  if (position.epoch < 0 || position.batch < 0 || position.batch >= state_->per_epoch)
    fail_user("a loader of ", state_->per_epoch, " batches an epoch has no batch ", position.batch, " of epoch ",
        position.epoch);
  const Busy busy(state_->busy, "a loader");
  state_->begin(position.epoch * state_->per_epoch + position.batch);
}

Loader::Iterator::Iterator(Loader* loader) : loader_(loader) {
  if (!loader_) return;
  epoch_ = loader_->position().epoch;
  batch_ = &loader_->next();
}

Loader::Iterator& Loader::Iterator::operator++() {
  if (loader_->position().epoch != epoch_) loader_ = nullptr;
  else batch_ = &loader_->next();
  return *this;
}
}  // namespace linnet
