#include "tasks/texts/text_session.h"

#include <algorithm>

#include "base/error.h"

namespace linnet {

TextExamples encode_texts(const TextRecords& records, const TextTask& task, const PretrainedTokenizer& tokenizer,
                          const Names& outputs, int64_t longest) {
  const EncodeOptions options{.max_length = longest, .offsets = task.labels == LabelForm::Kind::kTokenClasses};
  TextExamples examples(task.form(outputs));
  for (const TextRecord& record : records.records) {
    Encoding encoding = records.pairs ? tokenizer.encode_pair(record.text, record.pair, options)
                                      : tokenizer.encode(record.text, options);
    if (encoding.ids.empty()) fail_user(record.where + ": a text without tokens");
    const std::vector<float> labels = task.label(record, encoding, outputs);
    if (records.pairs) examples.types.push_back(std::move(encoding.segments));
    examples.add(std::move(encoding.ids), labels);
  }
  return examples;
}

TextSession::TextSession(const Config& config, const TextTask& text_task, TextClassifier& model, Names output_names,
                         bool pairs, bool training, bool verify_plans, const std::shared_ptr<const Teacher>& teacher)
    : Session(
          config, model, training, verify_plans,
          [&](Trace& trace) { return text_task.loss(model, trace, 1, text_lengths(config, model).front(), pairs); }),
      rows(config.data.batch_size),
      lengths(text_lengths(config, model)),
      task(text_task),
      outputs(std::move(output_names)),
      model_(model) {
  if (teacher) teacher->declare(store);
  std::vector<LossFunction> losses;
  for (const int64_t length : lengths)
    losses.push_back([this, length, pairs, teacher](Trace& trace) {
      if (teacher && trace.options().training) return teacher->classification_loss(model_, trace, rows, length, pairs);
      return task.loss(model_, trace, rows, length, pairs);
    });
  plan(text_inputs(rows, lengths.back(), task.form(outputs), pairs), losses);
}

std::vector<std::vector<float>> TextSession::logits(const TextExamples& examples) {
  TextBatches batches(examples, rows, lengths, 0);
  std::vector<std::vector<float>> all(examples.tokens.size());
  for (int64_t index = 0; index < batches.batches_per_epoch(); ++index) {
    const Batch& batch = batches.sorted_batch(index);
    trainer->evaluate(batch);
    const float* found = logits_of(batch);
    const auto length = static_cast<size_t>(lengths[static_cast<size_t>(batch.shape_index)]);
    for (const int64_t i : batches.sorted_rows(index)) {
      const size_t tokens = of_tokens() ? examples.tokens[static_cast<size_t>(i)].size() : 1;
      all[static_cast<size_t>(i)].assign(found, found + tokens * outputs.size());
      found += (of_tokens() ? length : 1) * outputs.size();
    }
  }
  return all;
}

Evaluation TextSession::evaluate(const TextExamples& examples, SharedWork& ranks) {
  TextBatches batches(examples, rows, lengths, 0);
  // Of a batch: the sum of losses, over how many labels, and what each row has as logits or classes of tokens.
  const auto classes = static_cast<int64_t>(outputs.size());
  const int64_t numbers = of_tokens() ? lengths.back() : classes, width = 2 + rows * numbers;
  const std::vector<double> found =
      ranks.numbers(batches.batches_per_epoch(), width, [&](int64_t index, std::span<double> result) {
        const Batch& batch = batches.sorted_batch(index);
        const LossTotal total = trainer->evaluate(batch);
        result[0] = total.sum, result[1] = static_cast<double>(total.tokens);
        if (!of_tokens()) {
          std::copy_n(logits_of(batch), rows * classes, result.begin() + 2);
          return;
        }
        const int64_t length = lengths[static_cast<size_t>(batch.shape_index)];
        const int32_t* predicted = trainer->evaluation_output(batch.shape_index, "predictions").as<const int32_t>();
        for (int64_t row = 0; row < rows; ++row)
          std::copy_n(predicted + row * length, length, result.begin() + 2 + row * numbers);
      });
  std::vector<std::vector<float>> predicted(examples.tokens.size());
  double sum = 0, count = 0;
  for (int64_t index = 0; index < batches.batches_per_epoch(); ++index) {
    const double* batch = found.data() + index * width;
    sum += batch[0], count += batch[1];
    batch += 2;
    for (const int64_t i : batches.sorted_rows(index)) {
      const auto of = static_cast<size_t>(i);
      predicted[of].assign(batch, batch + (of_tokens() ? std::ssize(examples.tokens[of]) : classes));
      batch += numbers;
    }
  }
  if (count == 0) fail_user("the texts to evaluate have no label that counts");
  Measures measures = task.measure(examples, predicted, outputs);
  return {sum / count, examples.size(), std::move(measures.metrics), {}, std::move(measures.classes)};
}

}  // namespace linnet
