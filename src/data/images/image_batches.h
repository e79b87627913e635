// Batches of images: for training without end, in an order that is a pure function of (seed, epoch) and the same on
// every machine; for evaluation each image once and in order.
//
// There is no worker thread. Gathering 128 images of 784 bytes takes a few microseconds; a thread that did it would
// take a core from kernels that use all of them.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/batch_source.h"
#include "data/images/augmentation.h"
#include "data/images/image_dataset.h"

namespace linnet {

// The arrays of a batch: images [rows, height, width, channels], labels [rows]. Rows past the last image are zeros with
// label -1.
std::vector<BatchInput> image_inputs(int64_t rows, int64_t image_bytes);

class ImageBatches : public BatchSource {
 public:
  // The dataset must outlive this. Starts at epoch 0, batch 0. User error when there are no images or no rows.
  // With augmentation, batches come from next() alone: next_rows() and device_data() name the images as they are.
  ImageBatches(const ImageDataset& dataset, int64_t batch_size, uint64_t seed, Augmentation augmentation = {});

  const Batch& next() override;  // the last batch of an epoch may have fewer images
  void seek(int64_t epoch, int64_t index) override { cursor_.seek(epoch, index, batches_per_epoch()); }
  void take_share(BatchShare share) override { cursor_.take_share(share); }
  int64_t batches_per_epoch() const override;
  std::vector<BatchArray> device_data() const override;
  BatchPosition next_rows(std::span<int32_t> rows) override;

  int64_t batch_size() const { return batch_size_; }
  size_t order_bytes() const { return order_.size() * sizeof(int32_t); }

 private:
  void shuffle(int64_t epoch);
  std::span<const int32_t> take(BatchPosition& position);  // the images of the next batch

  const ImageDataset& dataset_;
  const int64_t batch_size_;
  const uint64_t seed_;
  const Augmentation augmentation_;
  std::vector<int32_t> order_;  // of the images in ordered_epoch_
  int64_t ordered_epoch_ = -1;
  BatchCursor cursor_;
  OwnedBatch owned_;
};

// How many batches of `batch_size` rows hold all images.
int64_t evaluation_batches(const ImageDataset& dataset, int64_t batch_size);
// Writes batch `index` of those; returns its number of rows.
int64_t fill_evaluation_batch(const ImageDataset& dataset, int64_t batch_size, int64_t index, uint8_t* images,
                              int32_t* labels);

}  // namespace linnet
