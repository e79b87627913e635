#include "data/examples/text/parallel_text.h"
#include <algorithm>
#include "base/fail.h"
#include "base/numbers.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "data/examples/text/record_reader.h"

namespace linnet {
namespace {
[[noreturn]] void fail_empty(const std::string& path) { fail_user("'", path, "' is empty"); }

std::string lines(size_t count) { return std::to_string(count) + (count == 1 ? " line" : " lines"); }

// The texts of a record, perhaps below "translation": of the named columns, of the usual names, or the only two.
std::pair<std::string, std::string> pair_of(const Json& given, const PairColumns& columns, const std::string& where) {
  const Json* below = given.find("translation");
  const Json& record = below && below->is_object() ? *below : given;
  const auto find = [&](const std::string& asked, std::initializer_list<const char*> usual, size_t place) {
    const Json* found = nullptr;
    if (!asked.empty()) found = record.find(asked);
    for (const char* name : usual)
      if (!found && asked.empty()) found = record.find(name);
    if (!found && asked.empty() && record.size() == 2) found = &record.items()[place].value;
    if (found && found->is_string()) return found->text();
    const std::string names = joined(record.items(), ", ", &Json::Member::key);
    fail_user(where, ": no text is called \"", asked.empty() ? *usual.begin() : asked, "\" (there are ", names,
        "); --text-column and --label-column name source and target");
  };
  return {find(columns.source, {"source", "src"}, 0), find(columns.target, {"target", "tgt"}, 1)};
}

// Whether the texts of a file's first line are names of its columns.
bool names_columns(const std::pair<std::string, std::string>& pair) {
  const std::pair names(lower_ascii(trimmed(pair.first)), lower_ascii(trimmed(pair.second)));
  return names == std::pair<std::string, std::string>("source", "target") ||
         names == std::pair<std::string, std::string>("src", "tgt");
}

// Collects tokens in blocks, so that the flat vector gets its exact size: doubling it would need up to three times its
// contents, this needs one more block.
class TokenBlocks {
 public:
  void append(std::span<const TokenId> tokens) {
    if (blocks_.empty() || blocks_.back().capacity() - blocks_.back().size() < tokens.size()) {
      blocks_.emplace_back();
      blocks_.back().reserve(std::max(kBlockTokens, tokens.size()));
    }
    blocks_.back().insert(blocks_.back().end(), tokens.begin(), tokens.end());
    size_ += std::ssize(tokens);
  }
  int64_t size() const { return size_; }
  std::vector<TokenId> take() {
    std::vector<TokenId> flat;
    flat.reserve(size_);
    for (std::vector<TokenId>& block : blocks_) {
      flat.insert(flat.end(), block.begin(), block.end());
      block = {};
    }
    return flat;
  }

 private:
  static constexpr size_t kBlockTokens = 1 << 20;
  std::vector<std::vector<TokenId>> blocks_;
  int64_t size_ = 0;
};

std::string percent(int64_t part, int64_t whole) {
  return printed("%.2f%%", whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}
}  // namespace

std::vector<std::string> read_lines(const std::string& path) {
  LineReader reader(path);
  std::vector<std::string> result;
  const TimedPhase phase("reading '" + path + "'");
  // A copy is no larger than it must be; the buffer is reused.
  for (std::string line; reader.next(line);) result.push_back(line);
  if (result.empty()) fail_empty(path);
  return result;
}

std::pair<std::string, std::string> split_pair(const std::string& line, const std::string& where) {
  const auto tabs = std::count(line.begin(), line.end(), '\t');
  if (tabs < 1 || tabs > 2)
    fail_user(where, ": expected source<TAB>target, found ",
        tabs == 0 ? (line.empty() ? "an empty line" : "no tab") : std::to_string(tabs) + " tabs");
  const size_t tab = line.find('\t'), next = std::min(line.find('\t', tab + 1), line.size());
  return {line.substr(0, tab), line.substr(tab + 1, next - tab - 1)};
}

ParallelText read_table(const std::string& path, const PairColumns& columns) {
  const TimedPhase phase("reading '" + path + "'");
  ParallelText text;
  const auto add = [&](std::pair<std::string, std::string> pair) {
    text.source.push_back(std::move(pair.first));
    text.target.push_back(std::move(pair.second));
  };
  if (has_records(path) && (!has_ending(path, ".tsv") || !columns.source.empty() || !columns.target.empty())) {
    std::vector<std::string_view> heading;
    for (const std::string* name : {&columns.source, &columns.target})
      if (!name->empty()) heading.push_back(*name);
    RecordReader reader(path, heading);
    for (Json record; reader.next(record);) add(pair_of(record, columns, reader.where()));
  } else {
    LineReader reader(path);
    for (std::string line; reader.next(line);)
      if (auto pair = split_pair(line, reader.where()); reader.line_number() > 1 || !names_columns(pair))
        add(std::move(pair));
  }
  if (text.source.empty()) fail_empty(path);
  return text;
}

ParallelText read_pair(const std::string& source_path, const std::string& target_path) {
  ParallelText text{read_lines(source_path), read_lines(target_path)};
  if (text.source.size() != text.target.size())
    fail_user("unequal line counts: '", source_path, "' has ", lines(text.source.size()), ", '", target_path, "' has ",
        lines(text.target.size()));
  return text;
}

PairDataset::PairDataset(
    const ParallelText& text, const Tokenizer& source, const Tokenizer& target, const PairLimits& limits) {
  if (text.source.size() != text.target.size()) fail_internal("parallel text with unequal sides");
  if (limits.max_seq_len < 2) fail_user("max_seq_len must be at least 2: a token and the end of the sentence");
  const SentenceFrame frame = limits.frame.value_or(SentenceFrame::of(source.special()));
  const TokenId unknown = source.special().unknown;
  const auto unknown_in = [&](const std::vector<TokenId>& ids) { return std::ranges::count(ids, unknown); };
  TokenBlocks tokens;
  std::vector<TokenId> source_ids, target_ids;
  starts_.reserve(2 * text.source.size() + 1);
  Phase phase("tokenizing");
  for (size_t line = 0; line < text.source.size(); ++line) {
    phase.tick(static_cast<int64_t>(line), std::ssize(text.source));
    source_ids.clear();
    target_ids.clear();
    source.encode(text.source[line], source_ids);
    target.encode(text.target[line], target_ids);
    const bool empty = source_ids.empty() || target_ids.empty();
    // The model reads a target without its last token, and predicts it without its first.
    const bool source_long = frame_sentence(source_ids, frame.source_begin, frame.source_end, limits.max_seq_len);
    const bool target_long = frame_sentence(target_ids, frame.target_begin, frame.target_end, limits.max_seq_len + 1);
    const bool is_long = source_long || target_long;
    if (limits.drop_long) {
      report_.dropped_empty += empty;
      report_.dropped_long += is_long && !empty;
      if (empty || is_long) continue;
    } else {
      report_.truncated += is_long;
    }
    ++report_.pairs;
    report_.unknown_source_tokens += unknown_in(source_ids);
    report_.unknown_target_tokens += unknown_in(target_ids);
    report_.source_tokens += std::ssize(source_ids);
    report_.target_tokens += std::ssize(target_ids) - 1;
    starts_.push_back(tokens.size());
    tokens.append(source_ids);
    starts_.push_back(tokens.size());
    tokens.append(target_ids);
  }
  starts_.push_back(tokens.size());
  tokens_ = tokens.take();
  if (report_.pairs == 0)
    fail_user("no sentence pair is left of ", text.source.size(), ": ", report_.dropped_empty, " have an empty side, ",
        report_.dropped_long, " have more than max_seq_len = ", limits.max_seq_len, " tokens");
}

std::span<const TokenId> PairDataset::source(int64_t pair) const {
  return {tokens_.data() + starts_[2 * pair], static_cast<size_t>(source_length(pair))};
}

std::span<const TokenId> PairDataset::target_in(int64_t pair) const {
  return {tokens_.data() + starts_[2 * pair + 1], static_cast<size_t>(target_length(pair))};
}

std::span<const TokenId> PairDataset::target_out(int64_t pair) const {
  return {tokens_.data() + starts_[2 * pair + 1] + 1, static_cast<size_t>(target_length(pair))};
}

std::vector<std::pair<int, int>> PairDataset::lengths() const {
  return mapped(size(), [&](int64_t pair) {
    return std::pair<int, int>(static_cast<int>(source_length(pair)), static_cast<int>(target_length(pair)));
  });
}

std::string DatasetReport::text() const {
  std::string text = with_commas(pairs) + " pairs, " + with_commas(source_tokens) + " source and " +
                     with_commas(target_tokens) + " target tokens (" + percent(unknown_source_tokens, source_tokens) +
                     " and " + percent(unknown_target_tokens, target_tokens) + " unknown)";
  if (dropped_empty > 0) text += ", " + with_commas(dropped_empty) + " dropped as empty";
  if (dropped_long > 0) text += ", " + with_commas(dropped_long) + " dropped as too long";
  if (truncated > 0) text += ", " + with_commas(truncated) + " truncated";
  return text;
}
}  // namespace linnet
