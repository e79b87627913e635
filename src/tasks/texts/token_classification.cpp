// Classes of words, such as named entities ("B-PER", "I-PER", "O").
#include <set>
#include "base/fail.h"
#include "base/log.h"
#include "data/examples/text/record_reader.h"
#include "data/metrics/class_report.h"
#include "data/text/unicode/utf8.h"
#include "tasks/texts/marked_texts.h"
#include "tasks/texts/text_classifier.h"
#include "tasks/texts/text_task.h"

namespace linnet {
namespace {
// Each word's first token, which predicts its class; -1 if the text was cut before it.
std::vector<int64_t> first_tokens(const std::vector<TextRange>& words, std::span<const TextRange> offsets) {
  std::vector<int64_t> first(words.size(), -1);
  size_t word = 0;
  for (size_t token = 0; token < offsets.size(); ++token) {
    const TextRange& covered = offsets[token];
    if (covered.begin == covered.end) continue;  // a template token
    // Byte-level tokens include the space before a word: their last byte decides.
    while (word < words.size() && words[word].end < covered.end) ++word;
    if (word < words.size() && first[word] < 0) first[word] = static_cast<int64_t>(token);
  }
  return first;
}

class TokenClassification : public TextTask {
 public:
  TokenClassification()
      : TextTask(
            "token_classification", TextProblem::kTokenClasses, LabelForm::Kind::kTokenClasses, classification_loss) {}

  TextRecords read(const std::string& path, const DataConfig& data) const override {
    return read_tagged_texts(path, data);
  }

  void for_each_text(const std::string& path, const DataConfig& data, bool, const UseText& use) const override {
    for_each_text_of_words(path, data, use);
  }

  Names outputs(const TextRecords& train, const std::string& path) const override {
    std::set<std::string> tags;
    for (const TextRecord& record : train.records)
      for (const Json& tag : record.label["tags"]) tags.insert(tag.text());
    if (tags.size() < 2) fail_user("'", path, "' tags all words alike: there is nothing to learn");
    Names names;
    if (tags.erase("O") > 0) names.emplace_back("O");
    names.insert(names.end(), tags.begin(), tags.end());
    log_info(names.size(), " tags");
    return names;
  }

  std::vector<float> label(const TextRecord& record, const Encoding& encoding, const Names& outputs) const override {
    std::vector<float> classes(encoding.ids.size(), -1);
    const std::vector<int64_t> first = first_tokens(text_ranges(record.label["words"]), encoding.offsets);
    for (size_t word = 0; word < first.size(); ++word) {
      const size_t output = output_of(record.label["tags"][word].text(), outputs, record.where, "tag");
      if (first[word] >= 0) classes[first[word]] = static_cast<float>(output);
    }
    return classes;
  }

  // Metrics of whole entities; "accuracy" is of words.
  Measures measure(const TextRecords&, const TextExamples& examples, std::span<const std::vector<float>> predicted,
      const Names& outputs, const Config&) const override {
    EntityCounts entities;
    int64_t right = 0, words = 0;
    for (size_t i = 0; i < predicted.size(); ++i) {
      Names found, wanted;
      const std::span<const float> labels = examples.labels(i);
      for (size_t token = 0; token < labels.size(); ++token) {
        if (labels[token] < 0) continue;
        found.push_back(outputs[predicted[i][token]]);
        wanted.push_back(outputs[labels[token]]);
        right += found.back() == wanted.back(), ++words;
      }
      count_entities(found, wanted, entities);
    }
    ClassReport report({}, false);
    for (const auto& [label, counts] : entities) report.names.push_back(label), report.counts.push_back(counts);
    const DecisionCounts total = report.total();
    return {{{"f1", total.f1()}, {"precision", total.precision()}, {"recall", total.recall()},
                {"accuracy", words > 0 ? static_cast<double>(right) / static_cast<double>(words) : 0}},
        std::move(report)};
  }

  // Entities with offsets in code points, like Python's, and their words' mean probability.
  Answer answer(const std::string& text, Offsets offsets, Logits logits, const Names& outputs, int64_t) const override {
    const std::vector<TextRange> words = split_words(text);
    const std::vector<int64_t> first = first_tokens(words, offsets);
    const std::vector<double> all = softmax_rows({logits.begin(), logits.end()}, outputs.size());
    Names tags;
    std::vector<double> chances;
    for (const int64_t token : first) {
      const auto row = all.begin() + std::max<int64_t>(token, 0) * std::ssize(outputs);
      const auto best = std::max_element(row, row + std::ssize(outputs));
      tags.push_back(token < 0 ? "O" : outputs[best - row]);
      chances.push_back(*best);
    }
    Answer answer;
    std::string& line = answer.cells.emplace_back();
    answer.json["entities"] = Json::array();
    for (const Entity& entity : find_entities(tags)) {
      const auto begin = static_cast<size_t>(entity.begin), end = static_cast<size_t>(entity.end);
      const TextRange bytes{words[begin].begin, words[end - 1].end};
      const std::string covered = text.substr(bytes.begin, bytes.end - bytes.begin);
      const TextRange range = code_point_offsets(text, {&bytes, 1})[0];
      double chance = 0;
      for (size_t word = begin; word < end; ++word) chance += chances[word] / static_cast<double>(end - begin);
      answer.json["entities"].push_back({{"label", entity.label}, {"start", range.begin}, {"end", range.end},
          {"text", covered}, {"probability", chance}});
      line += (line.empty() ? "" : ", ") + entity.label + ": " + covered;
    }
    return answer;
  }
  Names heading(const Names&, int64_t) const override { return {"entities"}; }
};
}  // namespace

const TextTask& token_classification_task() { return only<TokenClassification>(); }
}  // namespace linnet
