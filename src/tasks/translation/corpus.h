// The sentences of a configuration: files of parallel text, or a generated task.
#pragma once
#include "config/config.h"
#include "data/examples/text/parallel_text.h"

namespace linnet {
struct Corpus {
  ParallelText train, valid, test;
  std::vector<int> test_formats;  // dates task: the format of each test line
};

// Without validation files holds out evenly spread training pairs. Error(kUser) names what is missing or malformed.
Corpus load_training_corpus(const Config& config);

Corpus load_test_corpus(const Config& config);  // the test split; an error if not configured

ParallelText load_valid_split(const Config& config);  // as in load_training_corpus()
}  // namespace linnet
