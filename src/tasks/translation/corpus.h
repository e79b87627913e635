// The sentences a configuration names: files of parallel text, or a generated task.
#pragma once
#include "config/config.h"
#include "data/examples/text/parallel_text.h"

namespace linnet {

struct Corpus {
  ParallelText train, valid, test;
  std::vector<int> test_formats;  // the dates task: which format each test line is written in
};

// Reads train and valid. Without validation files held_out_pairs of the training text, evenly spread, become it.
// Throws Error(kUser) naming what is missing or malformed.
Corpus load_training_corpus(const Config& config);

// The test split; an error when the configuration names none.
Corpus load_test_corpus(const Config& config);

// The valid split, as load_training_corpus gives it.
ParallelText load_valid_split(const Config& config);

}  // namespace linnet
