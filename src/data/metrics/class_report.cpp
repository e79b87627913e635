#include "data/metrics/class_report.h"
#include <algorithm>
#include "base/text.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
constexpr size_t kMostRows = 60, kMostColumns = 12;  // that are printed
constexpr size_t kMostSquare = 100;                  // classes whose confusion matrix is written as a square

// In NumPy's order of additions, for the same doubles.
double numpy_sum(std::span<const double> values) {
  constexpr size_t kLanes = 8, kBlock = 128;
  const size_t count = values.size();
  if (count > kBlock) {
    const size_t half = count / 2 / kLanes * kLanes;
    return numpy_sum(values.first(half)) + numpy_sum(values.subspan(half));
  }
  double sum = 0;
  size_t i = 0;
  if (count >= kLanes) {
    double lanes[kLanes];
    std::copy_n(values.begin(), kLanes, lanes);
    for (i = kLanes; i + kLanes <= count; i += kLanes)
      for (size_t k = 0; k < kLanes; ++k) lanes[k] += values[i + k];
    sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  }
  for (; i < count; ++i) sum += values[i];
  return sum;
}

std::string space_to(size_t width, const std::string& text) {
  return std::string(width - std::min(width, count_code_points(text)), ' ');
}
std::string padded(const std::string& name, size_t width) { return name + space_to(width, name); }
std::string right(const std::string& text, size_t width) { return space_to(width, text) + text; }

struct ScoredRow {
  std::string name;
  ClassReport::Scores scores;
  int64_t support;

  ScoredRow(std::string name, const ClassReport::Scores& scores, int64_t support)
      : name(std::move(name)), scores(scores), support(support) {}
  ScoredRow(std::string name, const DecisionCounts& counts)
      : ScoredRow(std::move(name), {counts.precision(), counts.recall(), counts.f1()}, counts.there) {}
  Json json() const {
    return {{"precision", scores.precision}, {"recall", scores.recall}, {"f1", scores.f1}, {"support", support}};
  }
};

std::vector<ScoredRow> means_of(const ClassReport& report) {
  const DecisionCounts all = report.total();
  std::vector<ScoredRow> rows;
  if (!report.exclusive) rows.emplace_back("micro avg", all);
  rows.emplace_back("macro avg", report.macro(), all.there);
  rows.emplace_back("weighted avg", report.weighted(), all.there);
  return rows;
}
}  // namespace

void ClassReport::add(size_t predicted, size_t label) {
  ++counts[predicted].predicted, ++counts[label].there;
  counts[label].both += predicted == label;
  ++confusion[{label, predicted}];
}

DecisionCounts ClassReport::total() const {
  DecisionCounts total;
  for (const DecisionCounts& of_class : counts) total += of_class;
  return total;
}

ClassReport::Scores ClassReport::mean(bool weighted) const {
  const auto of = [&](double (DecisionCounts::*score)() const) {
    std::vector<double> values;
    double weights = 0;
    for (const DecisionCounts& of_class : counts) {
      const double weight = weighted ? static_cast<double>(of_class.there) : 1;
      values.push_back((of_class.*score)() * weight), weights += weight;
    }
    return weights > 0 ? numpy_sum(values) / weights : 0;
  };
  return {of(&DecisionCounts::precision), of(&DecisionCounts::recall), of(&DecisionCounts::f1)};
}

const std::string* ClassReport::only_answer() const {
  size_t answers = 0, labels = 0, last = 0;
  for (size_t i = 0; i < names.size() && exclusive; ++i) {
    answers += counts[i].predicted > 0, labels += counts[i].there > 0;
    if (counts[i].predicted > 0) last = i;
  }
  return answers == 1 && labels > 1 ? &names[last] : nullptr;
}

std::vector<std::pair<std::string, double>> ClassReport::metrics() const {
  return {{"accuracy", total().recall()}, {"f1_macro", macro().f1}, {"f1_weighted", weighted().f1}};
}

std::string ClassReport::text() const {
  size_t width = std::string_view("weighted avg").size();
  for (const std::string& name : names) width = std::max(width, count_code_points(name));
  std::string lines = padded("", width) + "  precision  recall      F1  support\n";
  const auto add = [&](const ScoredRow& row) {
    const Scores& scores = row.scores;
    lines += padded(row.name, width) +
             printed("     %.4f  %.4f  %.4f  %7zd\n", scores.precision, scores.recall, scores.f1, row.support);
  };
  const size_t shown = std::min(names.size(), kMostRows);
  for (size_t i = 0; i < shown; ++i) add({names[i], counts[i]});
  if (shown < names.size()) lines += "... and " + std::to_string(names.size() - shown) + " more (--json has all)\n";
  for (const ScoredRow& row : means_of(*this)) add(row);
  if (!exclusive || names.size() > kMostColumns) return lines;
  lines += "confusion matrix, a row for each class and a column for what was predicted:\n" + padded("", width);
  const Json square = json()["confusion"];
  std::vector<size_t> widths;
  for (const std::string& name : names) {
    widths.push_back(std::max<size_t>(count_code_points(name), 6));
    lines += "  " + right(name, widths.back());
  }
  for (size_t i = 0; i < names.size(); ++i) {
    lines += "\n" + padded(names[i], width);
    for (size_t k = 0; k < names.size(); ++k) lines += "  " + right(square[i][k].dump(), widths[k]);
  }
  return lines + "\n";
}

Json ClassReport::json() const {
  Json json{{"classes", Json::object()}};
  for (size_t i = 0; i < names.size(); ++i) json["classes"][names[i]] = ScoredRow(names[i], counts[i]).json();
  for (const ScoredRow& row : means_of(*this)) json[row.name] = row.json();
  std::vector square(exclusive && names.size() <= kMostSquare ? names.size() : 0, std::vector<int64_t>(names.size()));
  for (const auto& [pair, count] : confusion)
    if (!square.empty()) square[pair.first][pair.second] = count;
    else json["confusion_pairs"].push_back({names[pair.first], names[pair.second], count});
  if (!square.empty()) json["confusion"] = square;
  return json;
}

std::vector<Entity> find_entities(std::span<const std::string> tags) {
  std::vector<Entity> found;
  bool open = false;  // whether the last entity goes on
  for (size_t i = 0; i < tags.size(); ++i) {
    const std::string_view tag = tags[i];
    // A tag without a prefix, such as a part of speech, continues its label.
    const bool has_prefix = tag.size() > 2 && tag[1] == '-', is_outside = tag.empty() || tag == "O";
    const char prefix = is_outside ? 'O' : has_prefix ? tag[0] : 'I';
    const std::string_view label = has_prefix ? tag.substr(2) : tag;
    if (prefix == 'O') {
      open = false;
      continue;
    }
    const auto at = static_cast<int64_t>(i);
    const bool goes_on = open && (prefix == 'I' || prefix == 'E') && found.back().label == label;
    if (goes_on) found.back().end = at + 1;
    else found.push_back({at, at + 1, std::string(label)});
    open = prefix == 'B' || prefix == 'I';
  }
  return found;
}

void count_entities(std::span<const std::string> predicted, std::span<const std::string> there, EntityCounts& counts) {
  const std::vector<Entity> found = find_entities(predicted), wanted = find_entities(there);
  for (const Entity& entity : wanted) ++counts[entity.label].there;
  for (const Entity& entity : found) {
    DecisionCounts& of_label = counts[entity.label];
    ++of_label.predicted, of_label.both += contains(wanted, entity);
  }
}
}  // namespace linnet
