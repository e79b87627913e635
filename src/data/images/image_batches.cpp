#include "data/images/image_batches.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/hash.h"

namespace linnet {
namespace {

// Uniform in [0, bound), without the bias of a remainder.
uint64_t below(uint64_t bound, uint64_t& state) {
  const uint64_t limit = std::numeric_limits<uint64_t>::max() / bound * bound;
  uint64_t value;
  do value = next_splitmix64(state);
  while (value >= limit);
  return value % bound;
}

}  // namespace

std::vector<BatchInput> image_inputs(int64_t rows, int64_t image_bytes) {
  const auto count = static_cast<size_t>(rows);
  return {{"images", count * static_cast<size_t>(image_bytes)}, {"labels", count * sizeof(int32_t)}};
}

ImageBatches::ImageBatches(const ImageDataset& dataset, int64_t batch_size, uint64_t seed, Augmentation augmentation)
    : dataset_(dataset),
      batch_size_(batch_size),
      seed_(seed),
      augmentation_(std::move(augmentation)),
      owned_(image_inputs(std::max<int64_t>(batch_size, 0), dataset.image_bytes())) {
  if (dataset.count == 0) fail_user("there are no images to train on");
  if (batch_size < 1) fail_user("a batch of " + std::to_string(batch_size) + " images");
  if (dataset.count > std::numeric_limits<int32_t>::max())
    fail_user("too many images: " + std::to_string(dataset.count));
  order_.resize(static_cast<size_t>(dataset.count));
}

int64_t ImageBatches::batches_per_epoch() const { return evaluation_batches(dataset_, batch_size_); }

// Fisher-Yates from the sorted order, with our own generator: std::shuffle differs between libraries.
void ImageBatches::shuffle(int64_t epoch) {
  std::iota(order_.begin(), order_.end(), 0);
  uint64_t state = mix64(mix64(seed_ + 0x9e3779b97f4a7c15u) + static_cast<uint64_t>(epoch));
  for (size_t left = order_.size(); left > 1; --left) std::swap(order_[left - 1], order_[below(left, state)]);
  ordered_epoch_ = epoch;
}

std::span<const int32_t> ImageBatches::take(BatchPosition& position) {
  const auto taken = cursor_.take([this](int64_t) { return batches_per_epoch(); });
  if (ordered_epoch_ != taken.epoch) shuffle(taken.epoch);
  position = taken.position;
  const int64_t first = taken.index * batch_size_, rows = std::min(batch_size_, dataset_.count - first);
  return std::span<const int32_t>(order_).subspan(static_cast<size_t>(first), static_cast<size_t>(rows));
}

const Batch& ImageBatches::next() {
  const auto indices = take(owned_.batch);
  gather_images(dataset_, indices, batch_size_, owned_.data<uint8_t>(0), owned_.data(1));
  if (!augmentation_.any()) return owned_.batch;
  const auto bytes = static_cast<size_t>(dataset_.image_bytes());
  for (size_t i = 0; i < indices.size(); ++i)
    augment_image(augmentation_, seed_, ordered_epoch_, indices[i], dataset_,
                  std::span(owned_.data<uint8_t>(0) + i * bytes, bytes));
  return owned_.batch;
}

BatchPosition ImageBatches::next_rows(std::span<int32_t> rows) {
  BatchPosition position;
  const auto indices = take(position);
  std::ranges::copy(indices, rows.begin());
  std::ranges::fill(rows.subspan(indices.size()), -1);
  return position;
}

std::vector<BatchArray> ImageBatches::device_data() const {
  return {{"images", std::as_bytes(std::span(dataset_.pixels))}, {"labels", std::as_bytes(std::span(dataset_.labels))}};
}

int64_t evaluation_batches(const ImageDataset& dataset, int64_t batch_size) {
  return (dataset.count + batch_size - 1) / batch_size;
}

int64_t fill_evaluation_batch(const ImageDataset& dataset, int64_t batch_size, int64_t index, uint8_t* images,
                              int32_t* labels) {
  const int64_t first = index * batch_size, rows = std::clamp<int64_t>(dataset.count - first, 0, batch_size);
  const int64_t bytes = dataset.image_bytes();
  std::copy_n(dataset.pixels.data() + first * bytes, rows * bytes, images);
  std::fill(images + rows * bytes, images + batch_size * bytes, uint8_t{0});
  std::copy_n(dataset.labels.data() + first, rows, labels);
  std::fill(labels + rows, labels + batch_size, -1);
  return rows;
}

}  // namespace linnet
