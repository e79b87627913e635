// Trains translation models on sentence pairs.
#pragma once
#include "data/examples/batch_stream.h"
#include "tasks/session_task.h"
#include "tasks/translation/translation_session.h"

namespace linnet {
class TranslationTask : public SessionTask {
 public:
  explicit TranslationTask(const Config& config) : SessionTask(config) {}

  void open(const std::string& from) override;
  std::string assume(const DataAtHand& data) override;
  DataAtHand data_at_hand(bool exact) const override;
  std::unique_ptr<Session> make_session(const Config& config, bool verify) override;
  BatchSource& batches() override { return *stream_; }
  Evaluation evaluate(const SharedWork& ranks) override;
  void save_assets(const std::string& folder) const override { model_.save_assets(folder); }

  int64_t most() const override { return int64_t{1} << 40; }  // tokens: every pair is in one batch
  int64_t least() const override { return config_.data.batch_tokens > 0 ? config_.model.max_seq_len : 1; }
  int64_t DataConfig::*batch_key() const override {
    return config_.data.batch_tokens > 0 ? &DataConfig::batch_tokens : &DataConfig::batch_size;
  }
  uint64_t assumed_bytes() const override { return assumed_bytes_; }
  std::string batches_text(const Session& session) const override;
  const char* shorter_key() const override { return "max_seq_len"; }

  TranslationSession& session() { return static_cast<TranslationSession&>(*session_); }
  const TokenizerPair& tokenizers() const { return model_.tokenizers; }

 protected:
  void begin() override;
  const char* advice() const override {
    return "; a smaller batch_tokens or batch_size needs less (see `linnet plan`)";
  }
  const PretrainedModel* pretrained() const override { return model_.pretrained ? &*model_.pretrained : nullptr; }

 private:
  TranslationModel model_;
  std::unique_ptr<PairDataset> train_;
  std::unique_ptr<EvaluationSet> valid_;
  std::vector<std::pair<int, int>> lengths_;  // of all pairs that must fit a batch
  uint64_t assumed_bytes_ = 0;
  std::unique_ptr<Buckets> buckets_;
  std::unique_ptr<BatchStream> stream_;
  int64_t evaluations_ = 0;
};
}  // namespace linnet
