// Extractive question answering by the first and last token of an answer (Rajpurkar et al. 2016). Long texts are read
// in overlapping chunks; if none has an answer, there is none.
#include "base/fail.h"
#include "base/log.h"
#include "data/metrics/text_scores.h"
#include "data/text/unicode/utf8.h"
#include "models/families/config_file.h"
#include "tasks/texts/marked_texts.h"
#include "tasks/texts/text_task.h"

namespace linnet {
namespace {
// A question with its context, uncut.
struct Tokens {
  Encoding encoding;
  size_t begin = 0, end = 0;  // the context's tokens
};

Tokens question_tokens(const TextRecord& record, const PretrainedTokenizer& tokenizer) {
  Tokens tokens{.encoding = tokenizer.encode_pair(record.text, record.pair, {})};
  const Encoding& encoding = tokens.encoding;
  std::vector<TokenId> question;
  tokenizer.encode(record.text, question);
  size_t own = 0;  // tokens so far that are not the template's
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    if (encoding.special[i]) continue;
    if (own++ < question.size()) continue;
    if (tokens.end == 0) tokens.begin = i;
    tokens.end = i + 1;
  }
  if (tokens.end == 0) tokens.begin = tokens.end = encoding.ids.size() - static_cast<size_t>(encoding.special.back());
  return tokens;
}

// A chunk's first and last token in the range; its very first (template) token if it lacks a part of the range.
std::array<float, 2> answer_positions(
    const std::vector<TextRange>& offsets, size_t first, size_t last, const TextRange& range) {
  if (first == last || offsets[first].begin > range.begin || offsets[last - 1].end < range.end) return {0, 0};
  size_t begin = first, end = last - 1;
  while (begin < last && offsets[begin].begin <= range.begin) ++begin;
  while (end > first && offsets[end - 1].end >= range.end) --end;
  return {static_cast<float>(begin - 1), static_cast<float>(end)};
}

// The `most` likeliest positions, best first.
std::vector<size_t> best_positions(
    std::span<const float> logits, size_t side, const std::vector<TextRange>& offsets, size_t most) {
  std::vector<size_t> positions;
  for (size_t i = 0; i < offsets.size(); ++i)
    if (offsets[i] != TextRange{}) positions.push_back(i);
  const auto count = static_cast<std::ptrdiff_t>(std::min(most, positions.size()));
  std::partial_sort(positions.begin(), positions.begin() + count, positions.end(),
      [&](size_t a, size_t b) { return std::pair(-logits[2 * a + side], a) < std::pair(-logits[2 * b + side], b); });
  positions.resize(count);
  return positions;
}

// Byte-level tokens include the space before a word.
TextRange without_spaces(const std::string& text, TextRange range) {
  while (range.begin < range.end && is_python_space(utf8_code_point_at(text, range.begin)))
    range.begin += utf8_length_at(text, range.begin);
  return range;
}

struct Candidate {
  TextRange range;  // bytes of the context; empty: no answer
  double score;     // the sum of both logits
  double probability = 0;
};

class Answers : public TextTask {
 public:
  Answers() : TextTask("answers", TextProblem::kSpans, LabelForm::Kind::kClass, span_loss) {}

  TextRecords read(const std::string& path, const DataConfig& data) const override { return read_answers(path, data); }
  void for_each_text(const std::string& path, const DataConfig& data, bool, const UseText& use) const override {
    for_each_question(path, data, use);
  }
  Names outputs(const TextRecords&, const std::string&) const override { return {"start", "end"}; }
  Names outputs_of(const PretrainedModel&) const override { return {"start", "end"}; }
  bool are_pairs() const override { return true; }
  LabelForm form(const Names&, const TextClassifier&, TextUse) const override { return {.kind = labels, .numbers = 2}; }

  void set_up(
      PretrainedModel& model, const Config& config, const TextRecords& train, const TextRecords*) const override {
    if (const int64_t longest = longest_text(config, model.as<TextClassifier>());
        config.answers.stride >= longest && !train.records.empty())
      log_warning(text_of_parts("answers.stride = ", config.answers.stride, " fills a window of ", longest,
          " tokens: windows share half of the room beside the question instead"));
    if (lacks_answers(train)) set_may_lack_answers(model.config);
  }

  TextExamples encode(const TextRecords& records, const PretrainedTokenizer& tokenizer, const Names& outputs,
      const TextClassifier& model, const Config& config, int64_t longest, TextUse use) const override {
    TextExamples examples(form(outputs, model, use));
    for (size_t record = 0; record < records.records.size(); ++record)
      add_windows(
          records.records[record], static_cast<int64_t>(record), tokenizer, config.answers, longest, use, examples);
    return examples;
  }

  Measures measure(const TextRecords& records, const TextExamples& examples,
      std::span<const std::vector<float>> predicted, const Names&, const Config& config) const override {
    AnswersConfig options = config.answers;
    options.may_lack = options.may_lack || lacks_answers(records);
    const std::vector<std::vector<Candidate>> found = candidates(records, examples, predicted, options);
    AnswerScore all, with, without;
    double count_with = 0;
    const auto add = [](AnswerScore& sum, const AnswerScore& score) { sum.exact += score.exact, sum.f1 += score.f1; };
    for (size_t i = 0; i < records.records.size(); ++i) {
      const TextRecord& record = records.records[i];
      const TextRange& best = found[i][0].range;
      const std::vector<std::string> wanted = answer_texts(record);
      const AnswerScore score = score_answer(
          std::string_view(record.pair).substr(best.begin, best.end - best.begin), wanted, options.may_lack);
      add(all, score), add(wanted.empty() ? without : with, score);
      count_with += !wanted.empty();
    }
    const auto count = static_cast<double>(records.records.size());
    Metrics metrics{{"exact_match", all.exact / count}, {"f1", all.f1 / count}};
    if (count_with > 0 && count_with < count) {
      metrics.emplace_back("answered_exact_match", with.exact / count_with);
      metrics.emplace_back("answered_f1", with.f1 / count_with);
      metrics.emplace_back("unanswered_exact_match", without.exact / (count - count_with));
    }
    return {std::move(metrics)};
  }

  // Answers with offsets in code points, like Python's.
  std::vector<Answer> answers(const TextRecords& records, const TextExamples& examples,
      std::span<const std::vector<float>> logits, const Names&, const Config& config, int64_t top) const override {
    std::vector<Answer> answers;
    const auto found = candidates(records, examples, logits, config.answers);
    for (size_t i = 0; i < found.size(); ++i) {
      const std::string& context = records.records[i].pair;
      const auto describe = [&](const Candidate& candidate) {
        const TextRange& bytes = candidate.range;
        Json json{{"answer", context.substr(bytes.begin, bytes.end - bytes.begin)}, {"score", candidate.probability}};
        if (bytes == TextRange{}) return json;
        const TextRange range = code_point_offsets(context, {&bytes, 1})[0];
        json["start"] = range.begin, json["end"] = range.end;
        return json;
      };
      Answer& answer = answers.emplace_back();
      answer.json = describe(found[i][0]);
      answer.cells = {answer.json["answer"].text(), cell(found[i][0].probability)};
      for (const char space : {'\n', '\t'}) std::ranges::replace(answer.cells[0], space, ' ');
      for (size_t k = 0; top > 1 && k < std::min(found[i].size(), static_cast<size_t>(top)); ++k)
        answer.json["top"].push_back(describe(found[i][k]));
    }
    return answers;
  }
  Names heading(const Names&, int64_t) const override { return {"answer", "score"}; }
  int64_t choices(const Names&, const Config& config) const override { return config.answers.candidates; }

 private:
  static bool lacks_answers(const TextRecords& records) {
    return std::ranges::any_of(records.records, [](const TextRecord& record) { return record.label.empty(); });
  }

  static void add_windows(const TextRecord& record, int64_t index, const PretrainedTokenizer& tokenizer,
      const AnswersConfig& options, int64_t longest, TextUse use, TextExamples& examples) {
    const Tokens tokens = question_tokens(record, tokenizer);
    const Encoding& encoding = tokens.encoding;
    const size_t around = encoding.ids.size() - (tokens.end - tokens.begin), most = static_cast<size_t>(longest);
    if (encoding.ids.size() > most && around >= most)
      fail_user(record.where, record.where.empty() ? "" : ": ", "a question of ", around,
          " tokens leaves no room for a text: a window has ", most, " (--set context=N)");
    // A stride of the whole room would never move on.
    const size_t room = most - around, wanted = static_cast<size_t>(options.stride);
    const size_t stride = wanted < room ? wanted : room / 2;
    const std::vector<TextRange> ranges = use == TextUse::kAsk ? std::vector<TextRange>{} : text_ranges(record.label);
    const auto part = [&](const auto& all, size_t begin, size_t end) {
      std::decay_t<decltype(all)> window(all.begin(), all.begin() + tokens.begin);
      window.insert(window.end(), all.begin() + begin, all.begin() + end);
      window.insert(window.end(), all.begin() + tokens.end, all.end());
      return window;
    };
    for (size_t begin = tokens.begin;; begin += room - stride) {
      const size_t end = std::min(begin + room, tokens.end);
      std::array<float, 2> label{0, 0};
      if (!ranges.empty()) label = answer_positions(encoding.offsets, begin, end, ranges[0]);
      for (float& position : label)  // in the chunk
        if (position > 0) position -= static_cast<float>(begin - tokens.begin);
      examples.types.push_back(part(encoding.segments, begin, end));
      examples.add(part(encoding.ids, begin, end), label);
      if (use != TextUse::kTrain) {
        examples.records.push_back(index);
        std::vector<TextRange>& offsets = examples.offsets.emplace_back(part(encoding.offsets, begin, end));
        std::fill_n(offsets.begin(), tokens.begin, TextRange{});
        std::fill(offsets.begin() + (tokens.begin + end - begin), offsets.end(), TextRange{});
      }
      if (end == tokens.end) break;
    }
  }

  // Each record's candidates, best first, chosen as in transformers' utils_qa.py.
  static std::vector<std::vector<Candidate>> candidates(const TextRecords& records, const TextExamples& examples,
      std::span<const std::vector<float>> logits, const AnswersConfig& options) {
    std::vector<std::vector<Candidate>> all(records.records.size());
    std::vector<double> none(all.size(), INFINITY);  // the lowest score of "no answer" over the chunks
    for (size_t i = 0; i < logits.size(); ++i) {
      const auto record = static_cast<size_t>(examples.records[i]);
      const std::vector<TextRange>& offsets = examples.offsets[i];
      none[record] = std::min(none[record], double{logits[i][0]} + double{logits[i][1]});
      const auto most = static_cast<size_t>(options.candidates);
      const std::vector<size_t> ends = best_positions(logits[i], 1, offsets, most);
      for (const size_t begin : best_positions(logits[i], 0, offsets, most))
        for (const size_t end : ends)
          if (end >= begin && end - begin < static_cast<size_t>(options.longest))
            all[record].push_back(
                {without_spaces(records.records[record].pair, {offsets[begin].begin, offsets[end].end}),
                    double{logits[i][2 * begin]} + double{logits[i][2 * end + 1]}});
    }
    for (size_t record = 0; record < all.size(); ++record) choose(all[record], {{}, none[record]}, options);
    return all;
  }

  static void choose(std::vector<Candidate>& found, const Candidate& none, const AnswersConfig& options) {
    std::ranges::stable_sort(found, {}, [](const Candidate& candidate) { return -candidate.score; });
    if (std::ssize(found) > options.candidates) found.resize(options.candidates);
    const bool is_none = found.empty() || (options.may_lack && none.score - found[0].score > options.threshold);
    if (is_none) found.insert(found.begin(), none);
    else if (options.may_lack)
      found.insert(std::find_if(found.begin() + 1, found.end(),
                       [&](const Candidate& candidate) { return candidate.score < none.score; }),
          none);
    double best = -INFINITY, sum = 0;
    for (const Candidate& candidate : found) best = std::max(best, candidate.score);
    for (Candidate& candidate : found) sum += candidate.probability = std::exp(candidate.score - best);
    for (Candidate& candidate : found) candidate.probability /= sum;
  }
};
}  // namespace

const TextTask& answers_task() { return only<Answers>(); }
}  // namespace linnet
