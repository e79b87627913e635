#include "data/examples/batch_source.h"

#include "base/error.h"

namespace linnet {

BatchPosition BatchSource::next_rows(std::span<int32_t>) { fail_internal("these batches are no rows of device data"); }

void BatchCursor::take_share(BatchShare share) {
  if (share.count < 1 || share.first < 0 || share.index(share.count - 1) >= share.group)
    fail_internal("batches " + std::to_string(share.first) + " to " + std::to_string(share.index(share.count - 1)) +
                  " of a group of " + std::to_string(share.group));
  share_ = share;
  set(0, 0);
}

void BatchCursor::seek(int64_t epoch, int64_t index, int64_t batches) {
  BatchCursor sought = *this;
  sought.set(epoch, index);
  sought.check(batches);
  *this = sought;
}

void BatchCursor::check(int64_t batches) const {
  if (epoch_ < 0 || index_ < 0 || index_ >= batches)
    fail_user("batch " + std::to_string(index_) + " of epoch " + std::to_string(epoch_) +
              " does not exist: an epoch has " + std::to_string(batches) +
              " batches; were the training data or the batch options changed?");
}

}  // namespace linnet
