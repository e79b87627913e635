#include "tasks/check_subject.h"
#include "tasks/task_table.h"

namespace linnet {
namespace {
constexpr int64_t kCheckedRows = 4, kImages = 32, kLength = 64, kExamples = 2000;

Config small(Config config) {
  config.model.dropout = 0;
  TrainConfig& train = config.train;
  train.label_smoothing = 0, train.ema_decay = 0, train.accumulate_steps = 1, train.data_shards = 1;
  train.precision = "fp32", train.attention_precision = "same";
  train.metric = "loss", train.sample_length = 0, train.tensorboard = false;
  DataConfig& data = config.data;
  const TaskKind kind = task_kind(config);
  const int64_t rows = kind == TaskKind::kImages ? kImages : kCheckedRows;
  data.batch_size = data.batch_size > 0 ? std::min(data.batch_size, rows) : rows;
  data.augment_mixup = data.augment_cutmix = 0;  // one label for each image, to be memorized
  if (kind != TaskKind::kImages) data.batch_tokens = 0;
  if (kind == TaskKind::kTranslation) {
    data.num_buckets = std::min<int64_t>(data.num_buckets, 2);
    data.train_samples = std::min(data.train_samples, kExamples);
  } else if (kind != TaskKind::kImages) {
    const int64_t own = data.context > 0 ? data.context : config.model.max_seq_len;
    data.context = std::min(own, kLength);
  }
  return config;
}

void describe_sequences(CheckSubject& subject) {
  const CheckBatch& batch = subject.batch;
  if (batch.contains("reference")) return;  // a row's loss depends on another: answers are compared
  if (batch.contains("target_in")) {
    subject.sequences = {{.tokens = "source", .lengths = "source_lengths", .targets = ""},
        {.tokens = "target_in", .lengths = "target_lengths", .targets = "target_out"}};
    subject.labels = {"target_out"};
  } else if (batch.contains("tokens") && batch.contains("lengths")) {
    subject.sequences = {{.tokens = "tokens", .lengths = "lengths", .targets = ""}};
    subject.labels = {batch.contains("labels") ? "labels" : "targets"};
    if (batch.contains("positions")) subject.flat_positions = "positions";
    subject.labels_are_positions = batch.contains("labels") && !batch.contains("weights") &&  // first and last token
                                   batch.at("labels").size() == 2 * batch.at("lengths").size();
    // An example of embeddings is several texts.
    subject.rows_are_apart = !batch.contains("weights") || batch.at("weights").size() == batch.at("lengths").size();
  } else if (batch.contains("tokens")) {
    subject.sequences = {{.tokens = "tokens", .lengths = "", .targets = "targets"}};
    subject.labels = {"targets"};
  }
}
}  // namespace

TaskCheck::TaskCheck(const Config& config) : config_(small(config)), task_(start_training_task(config_, "")) {
  subject_.emplace(CheckSubject{.trainer = task_->trainer(), .batch = {}});
  CheckSubject& subject = *subject_;
  const Batch& batch = task_->batches().next();
  subject.shape = batch.shape_index;
  for (const BatchArray& array : batch.arrays) subject.batch[array.name] = {array.bytes.begin(), array.bytes.end()};
  subject.reset = [this] { task_->initialize(); };
  subject.learning_rate = peak_learning_rate(config);
  subject.planned_bytes = task_->forecast().peak();
  subject.is_fresh = config.model.from.empty();
  describe_sequences(subject);
  if (config.train.device != "cpu" || cpu_precision(Precision::kBf16) == Precision::kBf16)
    subject.bf16_loss = [this] { return bf16_loss(); };
}

double TaskCheck::bf16_loss() {
  Config config = config_;
  config.train.precision = "bf16";
  const std::unique_ptr<TrainingTask> other = start_training_task(config, "");
  load({.trainer = other->trainer(), .batch = {}, .shape = subject_->shape}, subject_->batch);
  return other->trainer().evaluate(subject_->shape).mean();
}
}  // namespace linnet
