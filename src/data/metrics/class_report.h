// Precision, recall and F1 of each class and their means, the same doubles as scikit-learn's classification_report.
#pragma once
#include <string>
#include <utility>
#include <vector>
#include "base/json.h"
#include "data/metrics/decision_counts.h"

namespace linnet {

struct ClassReport {
  struct Scores {
    double precision = 0, recall = 0, f1 = 0;
  };
  // Classes with a confusion matrix, of which each example has one; or decisions about each name by itself, as with
  // several labels or entities.
  explicit ClassReport(std::vector<std::string> names = {}, bool exclusive = true)
      : names(std::move(names)), counts(this->names.size()), confusion(exclusive ? counts.size() * counts.size() : 0) {}

  void add(size_t predicted, size_t label);  // of classes

  Scores macro() const { return mean(false); }    // the mean of the classes
  Scores weighted() const { return mean(true); }  // by how many examples a class has
  DecisionCounts total() const;                   // over all decisions ("micro")
  // F1 of two classes is that of the second, of more it is macro(), as in GLUE.
  double f1() const { return counts.size() == 2 ? counts[1].f1() : macro().f1; }

  // The class that all examples were taken for, though not all are of it; null where there is none.
  const std::string* only_answer() const;

  // "accuracy", "f1_macro" and "f1_weighted" of classes.
  std::vector<std::pair<std::string, double>> metrics() const;

  // Lines for people: a table, and the confusion matrix where it is small enough to read.
  std::string text() const;
  // "classes", "macro avg", "weighted avg" and "micro avg" or "confusion" (a row for each class, a column for what was
  // predicted).
  Json json() const;

  std::vector<std::string> names;
  std::vector<DecisionCounts> counts;
  std::vector<int64_t> confusion;  // [names, names], row by label; empty: decisions

 private:
  Scores mean(bool weighted) const;
};

}  // namespace linnet
