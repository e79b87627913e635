#include "data/examples/images/image_batches.h"
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include "base/fail.h"
#include "base/numbers.h"

namespace linnet {
namespace {
void write_label(const ImageDataset& dataset, int64_t index, int64_t row, OwnedBatch& owned) {  // -1: no image
  if (!dataset.has_numbers()) {
    owned.data(1)[row] = index < 0 ? -1 : dataset.labels[index];
    return;
  }
  float* numbers = owned.data<float>(1) + row * dataset.classes();
  std::fill_n(numbers, dataset.classes(), 0.0f);
  if (index >= 0) std::ranges::copy(dataset.numbers_of(index), numbers);
  owned.data<float>(2)[row] = index < 0 ? 0.0f : 1.0f;
}

// Gathers images `indices` into images [rows, height, width, channels]. Rows past the last repeat them, so that batch
// norms see pictures there, too.
void gather_images(const ImageDataset& dataset, std::span<const int32_t> indices, int64_t rows, uint8_t* images) {
  const int64_t bytes = dataset.image_bytes();
  const auto filled = std::ssize(indices);
  if (filled > rows) fail_internal("a batch of ", rows, " rows was given more images than that");
  constexpr int64_t kAhead = 4, kLine = 64;  // the images lie anywhere in memory: ask for the next ones in time
  for (int64_t row = 0; row < filled; ++row) {
    if (row + kAhead < filled) {
      const uint8_t* next = dataset.image(indices[row + kAhead]).data();
      for (int64_t offset = 0; offset < bytes; offset += kLine) __builtin_prefetch(next + offset);
    }
    const auto index = indices[row];
    std::memcpy(images + row * bytes, dataset.image(index).data(), static_cast<size_t>(bytes));
  }
  for (int64_t row = filled; row < rows; ++row)
    std::memcpy(images + row * bytes, images + (row - filled) * bytes, static_cast<size_t>(bytes));
}
}  // namespace

int64_t number_count(const ImageDataset& dataset) { return dataset.has_numbers() ? dataset.classes() : 0; }

std::vector<BatchInput> image_inputs(int64_t rows, int64_t image_bytes, bool mixed, int64_t numbers) {
  std::vector<BatchInput> inputs{{"images", static_cast<size_t>(rows * image_bytes)},
      number_input("labels", rows * std::max<int64_t>(numbers, 1))};
  if (numbers > 0) inputs.push_back(number_input("weights", rows));
  else if (mixed) inputs.insert(inputs.end(), {number_input("other_labels", rows), number_input("shares", rows)});
  return inputs;
}

ImageBatches::ImageBatches(const ImageDataset& dataset, int64_t batch_size, uint64_t seed, ImageBatchOptions options)
    : dataset_(dataset), batch_size_(batch_size), seed_(seed), options_(std::move(options)) {
  if (dataset.count == 0) fail_user("there are no images to train on");
  if (batch_size < 1) fail_user("a batch of ", batch_size, " images");
  if (dataset.count > std::numeric_limits<int32_t>::max()) fail_user("too many images: ", dataset.count);
  order_.resize(dataset.count);
  const bool made = options_.augmentation.any() || !dataset.in_memory();
  const int slots = made ? options_.prefetch + 1 : 1;
  for (int i = 0; i < slots; ++i)
    ring_.emplace_back(
        image_inputs(batch_size, dataset.image_bytes(), options_.augmentation.mixes(), number_count(dataset)));
  if (!made) return;
  scratch_.assign(options_.threads, std::vector<uint8_t>(2 * dataset.image_bytes()));
  const auto plan = [this](int slot) { return plan_batch(ring_[slot]); };
  const auto make = [this](int slot, int64_t task, int thread) { make_rows(ring_[slot], task, scratch_[thread]); };
  ahead_ = std::make_unique<BatchesAhead>(slots, options_.threads, BatchesAhead::Work{plan, make});
}

void ImageBatches::seek(int64_t epoch, int64_t index) {
  const auto move = [&] { cursor_.seek(epoch, index, batches_per_epoch()); };
  ahead_ ? ahead_->restart(move) : move();
}

void ImageBatches::take_share(BatchShare share) {
  const auto move = [&] { cursor_.take_share(share); };
  ahead_ ? ahead_->restart(move) : move();
}

int64_t ImageBatches::batches_per_epoch() const { return evaluation_batches(dataset_, batch_size_); }

std::span<const int32_t> ImageBatches::take(BatchPosition& position) {
  const auto taken = cursor_.take([this](int64_t) { return batches_per_epoch(); });
  if (ordered_epoch_ != taken.epoch) {
    std::iota(order_.begin(), order_.end(), 0);
    shuffle_span(std::span(order_), order_key(seed_, taken.epoch));
    ordered_epoch_ = taken.epoch;
  }
  position = taken.position;
  const int64_t first = taken.index * batch_size_, rows = std::min(batch_size_, dataset_.count - first);
  return std::span<const int32_t>(order_).subspan(first, rows);
}

const Batch& ImageBatches::next() {
  if (ahead_) return ring_[ahead_->next()].batch;
  OwnedBatch& owned = ring_[0];
  const std::span<const int32_t> images = take(owned.batch);
  gather_images(dataset_, images, batch_size_, owned.data<uint8_t>(0));
  for (int64_t row = 0; row < batch_size_; ++row)
    write_label(dataset_, row < std::ssize(images) ? images[row] : -1, row, owned);
  return owned.batch;
}

// Enough rows that a task takes longer than handing it out.
int64_t ImageBatches::rows_per_task() const {
  constexpr int64_t kBytes = 1 << 15;
  return std::clamp<int64_t>(kBytes / dataset_.image_bytes(), 1, batch_size_);
}

int64_t ImageBatches::plan_batch(Made& batch) {
  const auto images = take(batch.batch);
  batch.images.assign(images.begin(), images.end());
  batch.epoch = ordered_epoch_, batch.count = std::ssize(images);
  while (std::ssize(batch.images) < batch_size_)  // as gather_images()
    batch.images.push_back(batch.images[std::ssize(batch.images) - batch.count]);
  if (options_.augmentation.mixes() && !dataset_.has_numbers()) {
    std::fill_n(batch.data(2) + batch.count, batch_size_ - batch.count, -1);
    std::fill_n(batch.data<float>(3) + batch.count, batch_size_ - batch.count, 1.0f);
  }
  return ceil_div(batch_size_, rows_per_task());
}

// Decodes and changes the image, without blending.
void ImageBatches::make_image(int64_t epoch, int64_t image, std::span<uint8_t> out, std::span<uint8_t> scratch) const {
  const Augmentation& how = options_.augmentation;
  if (!how.changes_pixels()) return dataset_.read(image, out);
  if (dataset_.in_memory()) return augment_image(how, seed_, epoch, image, dataset_, dataset_.image(image), out);
  dataset_.read(image, scratch);
  augment_image(how, seed_, epoch, image, dataset_, scratch, out);
}

void ImageBatches::make_rows(Made& batch, int64_t task, std::vector<uint8_t>& scratch) const {
  const auto bytes = static_cast<size_t>(dataset_.image_bytes());
  const std::span<uint8_t> first(scratch.data(), bytes), second(scratch.data() + bytes, bytes);
  const int64_t begin = task * rows_per_task();
  const int64_t end = std::min(begin + rows_per_task(), std::ssize(batch.images));
  for (int64_t row = begin; row < end; ++row) {
    const int64_t image = batch.images[row];
    const std::span<uint8_t> out(batch.data<uint8_t>(0) + static_cast<size_t>(row) * bytes, bytes);
    make_image(batch.epoch, image, out, first);
    const bool counts = row < batch.count;
    write_label(dataset_, counts ? image : -1, row, batch);
    if (!options_.augmentation.mixes()) continue;
    const Mix mix = draw_mix(options_.augmentation, seed_, batch.epoch, image, dataset_);
    make_image(batch.epoch, mix.other, second, first);
    mix_images(mix, dataset_.width, dataset_.channels, second, out);
    if (!counts) continue;
    const auto share = static_cast<float>(mix.label_share(dataset_.height, dataset_.width));
    if (dataset_.has_numbers()) {
      float* own = batch.data<float>(1) + row * dataset_.classes();
      for (const float other : dataset_.numbers_of(mix.other)) *own = other + (*own - other) * share, ++own;
      continue;
    }
    batch.data(2)[row] = dataset_.labels[mix.other];
    batch.data<float>(3)[row] = share;
  }
}

BatchPosition ImageBatches::next_rows(std::span<int32_t> rows) {
  BatchPosition position;
  const auto indices = take(position);
  std::ranges::copy(indices, rows.begin());
  for (size_t row = indices.size(); row < rows.size(); ++row) {
    const int32_t before = rows[row - indices.size()];
    rows[row] = before < 0 ? before : ~before;
  }
  return position;
}

std::vector<BatchArray> ImageBatches::device_data() const {
  return {{"images", std::as_bytes(std::span(dataset_.pixels))}, {"labels", std::as_bytes(std::span(dataset_.labels))}};
}

int64_t evaluation_batches(const ImageDataset& dataset, int64_t batch_size) {
  return ceil_div(dataset.count, batch_size);
}

int64_t fill_evaluation_batch(
    const ImageDataset& dataset, int64_t batch_size, int64_t index, OwnedBatch& batch, ThreadPool& pool) {
  auto* images = batch.data<uint8_t>(0);
  const int64_t first = index * batch_size, rows = std::clamp<int64_t>(dataset.count - first, 0, batch_size);
  const int64_t bytes = dataset.image_bytes();
  pool.run(rows, [&](int64_t row, int) {
    dataset.read(first + row, std::span(images + row * bytes, static_cast<size_t>(bytes)));
  });
  std::fill(images + rows * bytes, images + batch_size * bytes, uint8_t{0});
  for (int64_t row = 0; row < batch_size; ++row) write_label(dataset, row < rows ? first + row : -1, row, batch);
  return rows;
}
}  // namespace linnet
