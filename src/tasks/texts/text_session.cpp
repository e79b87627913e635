#include "tasks/texts/text_session.h"
#include "base/error.h"
#include "models/modules/text_encoder.h"

namespace linnet {
namespace {
int64_t rows_to_evaluate(const Config& config, const TextClassifier& model, bool training) {
  const auto* sentences = dynamic_cast<const SentenceEncoder*>(&model);
  const bool is_shard = training && sentences && sentences->evaluation_loss.is_of_batch();
  return config.data.batch_size * (is_shard ? std::max<int64_t>(config.train.data_shards, 1) : 1);
}
}  // namespace

TextSession::TextSession(const Config& config, const TextTask& text_task, TextClassifier& model, Names output_names,
    bool pairs, bool training, bool verify_plans, const std::shared_ptr<const Teacher>& teacher)
    : Session(config, model, training, verify_plans,
          [&](Trace& trace) { return text_task.loss(model, trace, 1, text_lengths(config, model).front(), pairs); }),
      rows(config.data.batch_size), evaluated_rows(rows_to_evaluate(config, model, training)),
      lengths(text_lengths(config, model)), task(text_task), outputs(std::move(output_names)), model_(model),
      config_(config) {
  if (teacher) teacher->declare(store);
  const auto loss = [this, pairs, teacher](Trace& trace, int64_t length) {
    if (teacher && trace.options().training) return teacher->classification_loss(model_, trace, rows, length, pairs);
    return task.loss(model_, trace, trace.options().training ? rows : evaluated_rows, length, pairs);
  };
  LabelForm form = task.form(outputs, model, TextUse::kTrain);
  form.parts = std::max(form.parts, task.form(outputs, model, TextUse::kEvaluate).parts);
  std::vector<BatchInput> inputs = text_inputs(evaluated_rows, lengths.back(), form, pairs);
  const auto* sentences = dynamic_cast<const SentenceEncoder*>(&model);
  const bool cached = training && sentences && sentences->training_loss.cached;
  const int64_t texts = cached ? rows * sentences->training_loss.parts : 0;
  if (cached) {
    inputs.push_back({"gradients", static_cast<size_t>(texts) * outputs.size() * sizeof(float)});
    inputs.push_back({"share", 2 * sizeof(float)});
  }
  plan(inputs, losses_of(lengths, loss));
  if (!cached) return;
  for (const int64_t length : lengths) {
    const int shape = trainer->plans().add_evaluation_shape(
        [this, texts, length](Trace& trace) { return embedding_alone(model_, trace, texts, length); });
    if (first_alone_ < 0) first_alone_ = shape;
  }
}

std::vector<std::vector<float>> TextSession::logits(const TextExamples& examples) {
  TextBatches batches(examples, evaluated_rows, lengths, 0);
  std::vector<std::vector<float>> all(examples.size());
  for (int64_t index = 0; index < batches.batches_per_epoch(); ++index) {
    const Batch& batch = batches.sorted_batch(index);
    trainer->evaluate(batch);
    int64_t row = 0;
    for (const int64_t i : batches.sorted_rows(index)) all[i] = logits_of(examples, batch, row++, i);
  }
  return all;
}

std::span<const float> TextSession::embed_training(const Batch& batch) {
  const int shape = first_alone_ + batch.shape_index;
  trainer->load(batch);
  trainer->evaluate(shape);
  const TensorView& embeddings = trainer->plans().evaluate_executor(shape).output("logits");
  return {embeddings.as<const float>(), static_cast<size_t>(embeddings.type.shape.elements())};
}

std::vector<float> TextSession::logits_of(
    const TextExamples& examples, const Batch& batch, int64_t row, int64_t example) {
  const auto width = std::ssize(outputs), length = lengths[batch.shape_index];
  const int64_t stride = task.is_of_tokens() ? length * width : width;
  const int64_t count = task.is_of_tokens() ? static_cast<int64_t>(examples.length(example)) * width : width;
  std::vector<float> found;
  for (int64_t part = 0; part < examples.form.parts; ++part) {
    const float* at = logits_of(batch) + (part * evaluated_rows + row) * stride;
    found.insert(found.end(), at, at + count);
  }
  return found;
}

TaskEvaluation TextSession::evaluate(
    const TextRecords& records, const TextExamples& examples, const SharedWork& ranks) {
  TextBatches batches(examples, evaluated_rows, lengths, 0);
  // A batch's outputs: the sum of losses, the number of labels, and each example's logits, class or token classes.
  const bool is_class = task.problem == TextProblem::kOneClass;
  const bool picks = is_class || task.problem == TextProblem::kTokenClasses;
  const int64_t numbers =
      (task.is_of_tokens() ? lengths.back() : examples.form.parts) * (picks ? 1 : std::ssize(outputs));
  const int64_t width = 2 + evaluated_rows * numbers;
  const std::vector<double> found =
      ranks.numbers(batches.batches_per_epoch(), width, [&](int64_t index, std::span<double> result) {
        const Batch& batch = batches.sorted_batch(index);
        const LossTotal total = trainer->evaluate(batch);
        result[0] = total.sum, result[1] = static_cast<double>(total.tokens);
        auto to = result.begin() + 2;
        const int64_t length = lengths[batch.shape_index];
        const Executor& executor = trainer->plans().evaluate_executor(batch.shape_index);
        for (int64_t row = 0; const int64_t i : batches.sorted_rows(index)) {
          if (picks && !is_class)
            std::copy_n(executor.output("predictions").as<const int32_t>() + row * length, length, to);
          else if (const auto logits = logits_of(examples, batch, row, i); !is_class) std::ranges::copy(logits, to);
          else *to = static_cast<double>(std::ranges::max_element(logits) - logits.begin());
          ++row, to += numbers;
        }
      });
  std::vector<std::vector<float>> predicted(examples.size());
  double sum = 0, count = 0;
  for (int64_t index = 0; index < batches.batches_per_epoch(); ++index) {
    const double* batch = found.data() + index * width;
    sum += batch[0], count += batch[1];
    batch += 2;
    for (const int64_t i : batches.sorted_rows(index)) {
      const auto tokens = static_cast<int64_t>(examples.length(i));
      predicted[i].assign(batch, batch + (task.is_of_tokens() ? tokens * (picks ? 1 : std::ssize(outputs)) : numbers));
      batch += numbers;
    }
  }
  if (count == 0) fail_user("the texts to evaluate have no label that counts");
  Measures measures = task.measure(records, examples, predicted, outputs, config_);
  return {sum / count, std::ssize(records.records), std::move(measures.metrics), {}, std::move(measures.classes)};
}
}  // namespace linnet
