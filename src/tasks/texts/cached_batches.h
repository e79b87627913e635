// Contrastive batches too large for memory (GradCache, Gao et al. 2021): all parts are embedded first; then each part
// is embedded again and trained with the gradient of the whole loss.
#pragma once
#include <memory>
#include <vector>
#include "base/function_ref.h"
#include "data/examples/batch.h"
#include "models/modules/text_encoder.h"
#include "models/nn/forward.h"
#include "tasks/texts/text_session.h"

namespace linnet {
class CachedBatches : public BatchSource {
 public:
  // `together`: batches of `parts` that make one. Both outlive this.
  CachedBatches(BatchSource& parts, TextSession& session, const EmbeddingLoss& loss, int64_t together);

  const Batch& next() override;
  void seek(int64_t epoch, int64_t index) override;
  void take_share(BatchShare share) override { parts_.take_share(share); }
  int64_t shape_count() const override { return parts_.shape_count(); }
  int64_t batches_per_epoch() const override { return parts_.batches_per_epoch(); }

 private:
  // A batch of parts_ with its own memory; after its arrays "gradients" and "share" (embedding_loss).
  struct Part {
    Batch batch;
    std::vector<std::vector<std::byte>> arrays;
    void keep(const char* name, const void* data, size_t bytes);
  };
  void embed_all();
  // Runs of a part's embeddings, from example `first` on: their offset among all and within the part.
  void for_each_run(size_t first, FunctionRef<void(size_t whole, size_t own, size_t count)> use) const;

  BatchSource& parts_;
  TextSession& session_;
  const EmbeddingLoss loss_;
  const int64_t together_;
  std::vector<Part> group_;
  size_t next_ = 0;                                   // of the group
  std::vector<float> embeddings_, weights_, labels_;  // of all parts
  std::unique_ptr<Forward> forward_;                  // the loss of all and its gradients
};
}  // namespace linnet
