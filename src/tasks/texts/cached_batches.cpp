#include "tasks/texts/cached_batches.h"
#include <algorithm>
#include <array>
#include "base/fail.h"
#include "engine/passes/gradient.h"

namespace linnet {
namespace {
struct NoParameters : Module {};

std::span<const float> floats(const Batch& batch, const char* name) {
  for (const BatchArray& array : batch.arrays)
    if (std::string_view(array.name) == name)
      return {reinterpret_cast<const float*>(array.bytes.data()), array.bytes.size() / sizeof(float)};
  fail_internal("a batch of texts has no ", name);
}
}  // namespace

void CachedBatches::Part::keep(const char* name, const void* data, size_t bytes) {
  const auto* begin = static_cast<const std::byte*>(data);
  arrays.emplace_back(begin, begin + bytes);
  batch.arrays.push_back({name, arrays.back()});
}

CachedBatches::CachedBatches(BatchSource& parts, TextSession& session, const EmbeddingLoss& loss, int64_t together)
    : parts_(parts), session_(session), loss_(loss), together_(together) {
  const int64_t all = together * session.rows, width = std::ssize(session.outputs);
  embeddings_.resize(loss.parts * all * width);
  weights_.resize(all), labels_.resize(weights_.size());
  const auto whole = [loss, all, width](Trace& trace) {
    const Tensor embeddings = trace.input("embeddings", {DType::kF32, {loss.parts * all, width}});
    const Loss traced = embedding_loss_of(loss, trace, embeddings, all);
    trace.graph().output("gradients", gradients(traced.sum, std::span(&embeddings, 1))[0]);
    trace.graph().output("sum", traced.sum), trace.graph().output("count", traced.count);
  };
  forward_ = std::make_unique<Forward>(
      NoParameters(), std::vector<Forward::Function>{whole}, session.trainer->options().threads);
}

const Batch& CachedBatches::next() {
  if (next_ == group_.size()) embed_all();
  return group_[next_++].batch;
}

void CachedBatches::seek(int64_t epoch, int64_t index) {
  parts_.seek(epoch, index);
  group_.clear(), next_ = 0;
}

void CachedBatches::embed_all() {
  group_.clear(), next_ = 0;
  std::ranges::fill(weights_, 0.0f);
  std::ranges::fill(embeddings_, 0.0f);
  do {
    const Batch& batch = parts_.next();
    Part& part = group_.emplace_back();
    static_cast<BatchPosition&>(part.batch) = batch;
    part.batch.shape_index = batch.shape_index;
    for (const BatchArray& array : batch.arrays) part.keep(array.name, array.bytes.data(), array.bytes.size());
    const size_t first = (group_.size() - 1) * static_cast<size_t>(session_.rows);
    std::ranges::copy(floats(batch, "weights"), weights_.begin() + first);
    std::ranges::copy(floats(batch, "labels"), labels_.begin() + first);
    const std::span<const float> embedded = session_.embed_training(part.batch);
    for_each_run(first, [&](size_t whole, size_t own, size_t count) {
      std::copy_n(embedded.begin() + own, count, embeddings_.begin() + whole);
    });
  } while (std::ssize(group_) < together_ && !group_.back().batch.last_of_epoch);
  forward_->set("embeddings", embeddings_), forward_->set("weights", weights_);
  if (loss_.has_labels()) forward_->set("labels", labels_);
  forward_->run();
  const std::span<const float> all = forward_->output("gradients");
  const std::array<float, 2> share{forward_->output("sum")[0], forward_->output("count")[0]};
  std::vector<float> own(loss_.parts * session_.rows * std::ssize(session_.outputs));
  for (size_t i = 0; i < group_.size(); ++i) {
    for_each_run(i * static_cast<size_t>(session_.rows),
        [&](size_t whole, size_t to, size_t count) { std::copy_n(all.begin() + whole, count, own.begin() + to); });
    group_[i].keep("gradients", own.data(), own.size() * sizeof(float));
    const std::array<float, 2> told = i == 0 ? share : std::array<float, 2>{};  // count the loss only once
    group_[i].keep("share", told.data(), sizeof told);
  }
}

void CachedBatches::for_each_run(size_t first, FunctionRef<void(size_t whole, size_t own, size_t count)> use) const {
  const size_t width = session_.outputs.size(), rows = static_cast<size_t>(session_.rows), all = weights_.size();
  for (size_t part = 0; part < static_cast<size_t>(loss_.parts); ++part)
    use((part * all + first) * width, part * rows * width, rows * width);
}
}  // namespace linnet
