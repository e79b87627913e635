#include "tasks/translation/corpus.h"
#include <algorithm>
#include <cmath>
#include "base/fail.h"
#include "base/numbers.h"
#include "data/examples/batch.h"
#include "data/examples/text/dates.h"
#include "data/text/tokenizer.h"
#include "training/run/memory_report.h"

namespace linnet {
namespace {
constexpr uint32_t kFirstRandomSymbol = 0x4E00;  // CJK: a long range of letters

// Refuses a generated text larger than memory at once: an extra zero, for example.
void check_samples(const char* key, int64_t count, double bytes_each) {
  const double bytes = static_cast<double>(count) * bytes_each, available = static_cast<double>(available_memory());
  if (bytes > available)
    fail_user(key, " = ", count, " would take ", static_cast<int64_t>(bytes / 1e6), " MB, and the machine has ",
        static_cast<int64_t>(available / 1e6), " MB available");
}

constexpr double kDatePairBytes = 250;  // two strings, their tokens and offsets

ParallelText generate_dates(
    const Config& config, DateSplit split, const char* key, int64_t count, std::vector<int>* formats) {
  check_samples(key, count, kDatePairBytes);
  ParallelText text;
  for (int64_t i = 0; i < count; ++i) {
    DateExample example = make_date(static_cast<uint64_t>(config.train.seed), split, static_cast<uint64_t>(i));
    text.source.push_back(std::move(example.written));
    text.target.push_back(std::move(example.iso));
    if (formats) formats->push_back(example.format);
  }
  return text;
}

// Symbol `index` in UTF-8: three bytes, from U+4E00 on without surrogates.
void append_symbol(std::string& line, uint64_t index) {
  uint64_t point = kFirstRandomSymbol + index;
  if (point >= 0xD800) point += 0x800;
  line += static_cast<char>(0xE0 | point >> 12);
  line += static_cast<char>(0x80 | (point >> 6 & 0x3F));
  line += static_cast<char>(0x80 | (point & 0x3F));
}

// Random symbols for measurements, in lengths uniform from half of max_seq_len to all of it.
std::vector<std::string> random_lines(const Config& config, uint64_t stream, int64_t count) {
  const auto symbols = static_cast<uint64_t>(std::max<int64_t>(1, config.data.vocab_size - kSpecialTokenCount));
  const auto longest = static_cast<uint64_t>(config.model.max_seq_len - 1);
  uint64_t state = static_cast<uint64_t>(config.train.seed) * 1000003 + stream;
  std::vector<std::string> lines;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t length = i == 0 ? longest : longest / 2 + next_splitmix64(state) % (longest - longest / 2 + 1);
    std::string line;
    for (uint64_t j = 0; j < length; ++j) append_symbol(line, (i == 0 ? j : next_splitmix64(state)) % symbols);
    lines.push_back(std::move(line));
  }
  return lines;
}

ParallelText generate_random(const Config& config, uint64_t split, const char* key, int64_t count) {
  constexpr double kTokenBytes = 3 + 4;  // as text and as a number
  check_samples(key, count, 2 * (100 + kTokenBytes * 0.75 * static_cast<double>(config.model.max_seq_len)));
  return {random_lines(config, 2 * split, count), random_lines(config, 2 * split + 1, count)};
}

// Examples of a task that the program makes itself. `formats`: of dates.
ParallelText generate(
    const Config& config, DateSplit split, const char* key, int64_t count, std::vector<int>* formats = nullptr) {
  if (task_row(config).origin == ExampleOrigin::kDates) return generate_dates(config, split, key, count, formats);
  return generate_random(config, static_cast<uint64_t>(split), key, count);
}

bool reads_files(const Config& config) { return task_row(config).origin == ExampleOrigin::kFiles; }

ParallelText read_split(const Config& config, const char* name, const std::string& tsv, const std::string& source,
    const std::string& target) {
  const DataConfig& data = config.data;
  if (!tsv.empty()) return read_table(data_path(data, tsv), {data.text_column, data.label_column});
  if (source.empty() || target.empty())
    fail_user("no ", name, " text: give ",
        std::string(name) == "train" ? "--data PAIRS.tsv, or --source FILE --target FILE, or the keys " : "", name,
        "_source and ", name, "_target, or ", name, "_tsv");
  return read_pair(data_path(data, source), data_path(data, target));
}

bool has_valid_files(const DataConfig& data) {
  return !data.valid_tsv.empty() || !data.valid_source.empty() || !data.valid_target.empty();
}

// The number of training pairs held out: at most half.
int64_t held_out_pairs(const DataConfig& data, int64_t total) {
  constexpr int64_t kMostByShare = 500;  // more would slow evaluation
  int64_t count = data.held_out_pairs;
  if (count == 0)
    count = std::clamp<int64_t>(std::llround(data.held_out * static_cast<double>(total)), 1, kMostByShare);
  return std::min(count, total / 2);
}

// Takes every k-th pair, so that a sorted file is held out evenly.
void hold_out(Corpus& corpus, const DataConfig& data) {
  const auto total = static_cast<int64_t>(corpus.train.source.size());
  const int64_t count = held_out_pairs(data, total);
  if (count == 0) fail_user("no validation text, and the training text has only one pair");
  std::vector<bool> chosen;
  for (int64_t i = 0, held = 0; i < total; ++i) {
    chosen.push_back((i + 1) * count / total > held);
    held += chosen.back();
  }
  keep_together(chosen, mapped(corpus.train.source, [](const std::string& line) { return fnv1a(line); }));
  ParallelText kept;
  for (size_t i = 0; i < chosen.size(); ++i) {
    ParallelText& to = chosen[i] ? corpus.valid : kept;
    to.source.push_back(std::move(corpus.train.source[i]));
    to.target.push_back(std::move(corpus.train.target[i]));
  }
  corpus.train = std::move(kept);
}
}  // namespace

Corpus load_training_corpus(const Config& config) {
  const DataConfig& data = config.data;
  Corpus corpus;
  if (!reads_files(config)) {
    corpus.train = generate(config, DateSplit::kTrain, "train_samples", data.train_samples);
    corpus.valid = generate(config, DateSplit::kValid, "valid_samples", data.valid_samples);
    return corpus;
  }
  corpus.train = read_split(config, "train", data.train_tsv, data.train_source, data.train_target);
  if (has_valid_files(data))
    corpus.valid = read_split(config, "valid", data.valid_tsv, data.valid_source, data.valid_target);
  else hold_out(corpus, data);
  return corpus;
}

Corpus load_test_corpus(const Config& config) {
  const DataConfig& data = config.data;
  Corpus corpus;
  if (reads_files(config)) corpus.test = read_split(config, "test", data.test_tsv, data.test_source, data.test_target);
  else corpus.test = generate(config, DateSplit::kTest, "test_samples", data.test_samples, &corpus.test_formats);
  return corpus;
}

ParallelText load_valid_split(const Config& config) {
  const DataConfig& data = config.data;
  if (reads_files(config) && has_valid_files(data))
    return read_split(config, "valid", data.valid_tsv, data.valid_source, data.valid_target);
  return load_training_corpus(config).valid;
}
}  // namespace linnet
