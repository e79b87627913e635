// Batches of images: endless for training, each image once and in order for evaluation. Unchanged images in memory need
// no thread: gathering 128 images of 784 bytes takes a few microseconds. Others are decoded or changed by several
// threads while steps are computed, in a ring of batches and an image of scratch memory per thread.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>
#include "base/thread_pool.h"
#include "data/examples/batch.h"
#include "data/examples/images/augmentation.h"
#include "data/examples/images/image_dataset.h"

namespace linnet {
// The arrays of a batch: images [rows, height, width, channels], labels [rows]. Rows past the last image are zeros with
// label -1. `mixed`: also other_labels [rows], and shares f32 [rows] of the first label. With `numbers` per image:
// labels f32 [rows, numbers], which mixing blends, and weights f32 [rows], 0 past the last image.
std::vector<BatchInput> image_inputs(int64_t rows, int64_t image_bytes, bool mixed = false, int64_t numbers = 0);
int64_t number_count(const ImageDataset& dataset);  // the numbers per image; 0: the dataset has classes

struct ImageBatchOptions {
  Augmentation augmentation = {};
  int threads = 1;   // that decode and change images
  int prefetch = 2;  // batches that they keep ready besides the one in use
};

class ImageBatches : public BatchSource {
 public:
  // The dataset must outlive this. Starts at epoch 0, batch 0. User error without images or rows. With augmentation, or
  // if images are files, only next() makes batches: next_rows() and device_data() are for unchanged images in memory. A
  // file that cannot be decoded is a user error of next().
  ImageBatches(const ImageDataset& dataset, int64_t batch_size, uint64_t seed, ImageBatchOptions options = {});

  const Batch& next() override;  // the last batch of an epoch may have fewer images
  void seek(int64_t epoch, int64_t index) override;
  void take_share(BatchShare share) override;
  int64_t batches_per_epoch() const override;
  std::vector<BatchArray> device_data() const override;
  BatchPosition next_rows(std::span<int32_t> rows) override;

 private:
  struct Made : OwnedBatch {
    using OwnedBatch::OwnedBatch;
    std::vector<int32_t> images;  // of its rows
    int64_t epoch = 0;
  };

  std::span<const int32_t> take(BatchPosition& position);  // the images of the next batch
  int64_t rows_per_task() const;
  int64_t plan_batch(Made& batch);
  void make_rows(Made& batch, int64_t task, std::vector<uint8_t>& scratch) const;
  void make_image(int64_t epoch, int64_t image, std::span<uint8_t> out, std::span<uint8_t> scratch) const;

  const ImageDataset& dataset_;
  const int64_t batch_size_;
  const uint64_t seed_;
  const ImageBatchOptions options_;
  std::vector<int32_t> order_;  // of the images in ordered_epoch_
  int64_t ordered_epoch_ = -1;
  BatchCursor cursor_;
  std::vector<Made> ring_;                     // one batch, where no thread makes it
  std::vector<std::vector<uint8_t>> scratch_;  // of each thread: two images
  std::unique_ptr<BatchesAhead> ahead_;        // last: its threads use all of the above
};

// The number of batches of `batch_size` rows for all images.
int64_t evaluation_batches(const ImageDataset& dataset, int64_t batch_size);
// Writes evaluation batch `index` and returns its number of rows. The pool's threads decode files.
int64_t fill_evaluation_batch(
    const ImageDataset& dataset, int64_t batch_size, int64_t index, OwnedBatch& batch, ThreadPool& pool);
}  // namespace linnet
