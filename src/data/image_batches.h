// Batches of images: for training without end, in an order that is a pure function of (seed, epoch) and the same on
// every machine; for evaluation each image once and in order.
//
// Both write into memory the caller names, which is where the graph's inputs lie: a batch is copied once. There is no
// worker thread. Gathering 128 images of 784 bytes takes a few microseconds; a thread that did it would take a core
// from kernels that use all of them.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/image_dataset.h"

namespace linnet {

// Which batch was written. Rows past `rows` are zeros with label -1.
struct ImageBatch {
  int64_t epoch = 0, index = 0;
  int64_t rows = 0;
  bool last_of_epoch = false;
};

class ImageBatches {
 public:
  // The dataset must outlive this. Starts at epoch 0, batch 0. User error when there are no images or no rows.
  ImageBatches(const ImageDataset& dataset, int64_t batch_size, uint64_t seed);

  // next() will write this batch. User error when the epoch has no such index: it comes from a checkpoint made with
  // other data.
  void seek(int64_t epoch, int64_t index);
  // images [batch_size, height, width, channels], labels [batch_size]. The last batch of an epoch may have fewer rows.
  ImageBatch next(uint8_t* images, int32_t* labels);
  // The same batch as the indices of its images, -1 past its rows, for images that lie elsewhere too. [batch_size]
  ImageBatch next_rows(std::span<int32_t> rows);

  int64_t batch_size() const { return batch_size_; }
  int64_t batches_per_epoch() const;
  size_t order_bytes() const { return order_.size() * sizeof(int32_t); }

 private:
  void shuffle();
  std::span<const int32_t> coming();  // the images of the batch that comes next
  ImageBatch advance(int64_t rows);

  const ImageDataset& dataset_;
  const int64_t batch_size_;
  const uint64_t seed_;
  std::vector<int32_t> order_;  // of the images in ordered_epoch_
  int64_t ordered_epoch_ = -1;
  int64_t epoch_ = 0, index_ = 0;  // of the batch that comes next
};

// How many batches of `batch_size` rows hold all images.
int64_t evaluation_batches(const ImageDataset& dataset, int64_t batch_size);
// Writes batch `index` of those; returns its number of rows.
int64_t fill_evaluation_batch(const ImageDataset& dataset, int64_t batch_size, int64_t index, uint8_t* images,
                              int32_t* labels);

}  // namespace linnet
