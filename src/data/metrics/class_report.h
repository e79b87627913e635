// Precision, recall and F1 of classes and entities, equal to scikit-learn's classification_report and seqeval.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>
#include "base/json.h"

namespace linnet {
struct DecisionCounts {
  int64_t predicted = 0, there = 0, both = 0;

  void add(bool is_predicted, bool is_there) {
    predicted += is_predicted, there += is_there, both += is_predicted && is_there;
  }
  DecisionCounts& operator+=(const DecisionCounts& other) {
    predicted += other.predicted, there += other.there, both += other.both;
    return *this;
  }
  double precision() const { return share(both, predicted); }  // 0 if nothing was predicted, or is there
  double recall() const { return share(both, there); }
  double f1() const { return share(2 * both, predicted + there); }

 private:
  static double share(int64_t part, int64_t all) {
    return all > 0 ? static_cast<double>(part) / static_cast<double>(all) : 0;
  }
};

struct ClassReport {
  struct Scores {
    double precision = 0, recall = 0, f1 = 0;
  };
  // Classes with a confusion matrix, one per example; or independent decisions about each name (labels, entities).
  explicit ClassReport(std::vector<std::string> names = {}, bool exclusive = true)
      : names(std::move(names)), counts(this->names.size()), exclusive(exclusive) {}

  void add(size_t predicted, size_t label);  // of classes

  Scores macro() const { return mean(false); }    // the mean of the classes
  Scores weighted() const { return mean(true); }  // by how many examples a class has
  DecisionCounts total() const;                   // over all decisions ("micro")
  // With two classes F1 of the second, otherwise macro(), as in GLUE.
  double f1() const { return counts.size() == 2 ? counts[1].f1() : macro().f1; }

  // The class predicted for all examples, though not all are of it; null if there is none.
  const std::string* only_answer() const;

  std::vector<std::pair<std::string, double>> metrics() const;

  // A table, and the confusion matrix if it is small enough to read.
  std::string text() const;
  // "classes", "macro avg", "weighted avg" and "micro avg" or "confusion" (rows: true classes, columns: predicted); of
  // more than 100 classes "confusion_pairs", [true class, predicted class, count] of pairs that occur.
  Json json() const;

  std::vector<std::string> names;
  std::vector<DecisionCounts> counts;
  bool exclusive;
  std::map<std::pair<size_t, size_t>, int64_t> confusion;  // by label and prediction, of those that occur

 private:
  Scores mean(bool weighted) const;
};

// Entities by the tags of words: B-PER, I-PER, O (Ramshaw & Marcus 1995), E- and S- for the last, only word.
struct Entity {
  int64_t begin, end;  // words, [begin, end)
  std::string label;   // "PER"
  bool operator==(const Entity&) const = default;
};

// As in conlleval and seqeval: an I- after nothing of its label begins an entity.
std::vector<Entity> find_entities(std::span<const std::string> tags);
// Counts the entities of a text by label; one is right if its words and its label are.
using EntityCounts = std::map<std::string, DecisionCounts>;
void count_entities(std::span<const std::string> predicted, std::span<const std::string> there, EntityCounts& counts);
}  // namespace linnet
