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
#include "data/examples/images/image_dataset.h"

namespace linnet {
// Random changes of training images: crops, shifts, mirroring, rotations, RandAugment, holes and mixtures of two. A
// change is a function of (seed, epoch, image), so it does not depend on threads, ranks, batches or a resume.
struct Augmentation {
  int64_t shift = 0;    // at most so many pixels up or down and to either side
  bool mirror = false;  // left and right are exchanged, for every second image
  int64_t cutout = 0;   // side of a square that is covered (DeVries & Taylor 2017); its center is anywhere
  double rotate = 0;    // at most so many degrees about the center, either way
  double crop = 0;      // least share of the area that is cut out and scaled to the whole (random resized crop)
  int64_t random = 0;   // so many changes of RandAugment...
  int strength = 9;     // ...of this strength
  double cutmix = 0;  // a of the Beta(a, a) that says how much of another image is pasted in (Yun et al. 2019); 0: none
  double mixup = 0;   // a of the Beta(a, a) that blends two images (Zhang et al. 2018); 0: none
  std::vector<uint8_t> fill = {};  // a pixel: what stands beyond the image and in the square; empty: zeros

  bool changes_pixels() const { return shift > 0 || mirror || cutout > 0 || rotate > 0 || crop > 0 || random > 0; }
  bool mixes() const { return mixup > 0 || cutmix > 0; }
  bool any() const { return changes_pixels() || mixes(); }
};

// The pixels are rotated about the center, then shifted, then mirrored.
struct Motion {
  double degrees = 0;  // counterclockwise
  int64_t down = 0, right = 0;
  bool mirror = false;
};
// The size of an image and the pixel beyond its edge; empty: zeros.
struct ImageFrame : ImageInfo {
  std::span<const uint8_t> fill;
  uint8_t beyond(int64_t channel) const { return fill.empty() ? uint8_t{0} : fill[channel]; }
};
// Writes the moved image to `out`, which must not overlap. Interpolates linearly between the four nearest pixels; a
// multiple of 90 degrees moves whole pixels of square images.
void move_image(const Motion& motion, std::span<const uint8_t> image, const ImageFrame& frame, std::span<uint8_t> out);

// Writes the changed image number `image` of the dataset to `out`, without mixing. `pixels`: of ImageDataset::read().
void augment_image(const Augmentation& how, uint64_t seed, int64_t epoch, int64_t image, const ImageDataset& of,
    std::span<const uint8_t> pixels, std::span<uint8_t> out);

// Blends an image with another one (mixup), or pastes a rectangle of it (CutMix); chance decides between the two.
struct Mix {
  int64_t other = 0;  // another image, or by chance the same
  int share = 256;    // of the image itself in a blend, in 1/256
  bool pastes = false;
  int64_t top = 0, left = 0, rows = 0, columns = 0;  // the rectangle
  double label_share(int64_t height, int64_t width) const {
    return pastes ? 1 - static_cast<double>(rows * columns) / static_cast<double>(height * width) : share / 256.0;
  }
};
Mix draw_mix(const Augmentation& how, uint64_t seed, int64_t epoch, int64_t image, const ImageDataset& of);
// Of images [., width, channels]. A blend is (share * image + (256 - share) * other) / 256, to the nearest.
void mix_images(
    const Mix& mix, int64_t width, int64_t channels, std::span<const uint8_t> other, std::span<uint8_t> image);

// RandAugment (Cubuk et al. 2020): some of fourteen changes at random, all of one strength. Ranges are torchvision's.
constexpr int kMostStrength = 30;

// In torchvision's order.
enum class ImageChange {
  kNone,
  kShearAcross,
  kShearDown,
  kShiftAcross,
  kShiftDown,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
};
constexpr int kImageChanges = 14;

// Changes an image of 1 or 3 channels in place. `strength` from 0 to kMostStrength; `negative`: in the other direction,
// if the change has two.
void change_image(ImageChange change, int strength, bool negative, const ImageFrame& frame, std::span<uint8_t> pixels);

// The arrays of a batch: images [rows, height, width, channels], labels [rows]. Rows past the last image repeat
// images, with label -1. `mixed`: also other_labels [rows], and shares f32 [rows] of the first label. With `numbers`
// per image: labels f32 [rows, numbers], which mixing blends, and weights f32 [rows], 0 past the last image.
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
    std::vector<int32_t> images;  // of its rows, of which the first `count` have labels
    int64_t epoch = 0, count = 0;
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
// Writes evaluation batch `index` and returns its number of rows. The pool's threads copy images or decode files.
int64_t fill_evaluation_batch(
    const ImageDataset& dataset, int64_t batch_size, int64_t index, OwnedBatch& batch, ThreadPool& pool);
}  // namespace linnet
