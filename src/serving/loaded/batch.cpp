#include "serving/loaded/batch.h"
#include <algorithm>
#include <condition_variable>
#include "base/fail.h"
#include "base/json.h"
#include "base/numbers.h"
#include "base/text.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
bool is_blank(const std::string& line) { return line.find_first_not_of(" \t\r") == std::string::npos; }

// A request, and its answer once there.
struct Item {
  TextRequest request;
  int64_t index = 0;
  std::vector<int32_t> prompt = {};
  bool blank = false;  // answered without the model
  // Set by the model's thread.
  std::optional<TextOutcome> written = {};
  std::optional<RowOutcome> row = {};
  std::string refusal = {};  // why it was refused
  bool done() const { return blank || written || row || !refusal.empty(); }
};

class Batch {
 public:
  Batch(LoadedModel& model, const BatchOptions& options, const TakeAnswer& take)
      : model_(model), options_(options), take_(take), most_(options.ahead) {
    // Texts take long, and an interrupt waits for those that have begun.
    if (model.text) most_ = std::min(most_, 2 * static_cast<size_t>(model.text->load().slots));
  }
  // Waits for requests under way, as the model's thread writes to it.
  ~Batch() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return std::ranges::all_of(items_, &Item::done); });
  }

  BatchCounts run(const NextLine& next, const std::function<bool()>& stopped) {
    int64_t line_number = 0;
    try {
      while (!stopped()) {
        const std::optional<std::string> line = next();
        if (!line) break;
        ++line_number;
        if (options_.json && is_blank(*line)) continue;
        if (requests_++ < options_.skip) continue;
        begin_or_refuse(*line, options_.name + ", line " + std::to_string(line_number));
        give(most_);
      }
    } catch (const Error&) {
      give(0);  // keep the answers before a wrong line
      throw;
    }
    give(0);
    if (requests_ < options_.skip && !stopped())
      fail_user(
          options_.name, " has ", requests_, " requests, and ", options_.skip, " are answered: it is another input");
    return counts_;
  }

 private:
  // One wrong request does not end the others: its JSON answer has the error. Plain text has no place for it.
  void begin_or_refuse(const std::string& line, const std::string& where) {
    try {
      begin(line, where);
    } catch (const Error& error) {
      if (!options_.json || error.kind() != ErrorKind::kUser) throw;
      Item item{.index = requests_ - 1, .refusal = error.what()};
      const Json json = Json::parse_or_null(line, JsonLimits::request());
      if (json.is_object() && json.contains("id")) item.request.id = json["id"].dump();
      keep(std::move(item));
      ++counts_.refused;
    }
  }

  TextRequest read(const std::string& line, const std::string& where) const {
    TextRequest request;
    request.options = options_.text, request.where = where;
    if (!options_.json) {
      request.prompt = line;
      return request;
    }
    if (model_.kind == ModelKind::kLanguage) return parse_text_request(line, options_.text, where);
    // For other models "text" has what parse_text_request() calls a prompt.
    const Json json = Json::parse_or_null(line, JsonLimits::request());
    if (!json.is_object()) fail_user(where, ": not a JSON object");
    if (!json.contains("text") || !json["text"].is_string()) fail_user(where, ": needs \"text\"");
    Json renamed;
    for (const auto& [key, value] : json.items()) renamed[key == "text" ? "prompt" : key] = value;
    return parse_text_request(renamed.dump(), options_.text, where);
  }

  void begin(const std::string& line, const std::string& where) {
    if (const size_t at = invalid_utf8_at(line); at != std::string::npos)
      fail_user(where, ": byte ", at + 1, " is not valid UTF-8");
    Item item{read(line, where), requests_ - 1};
    if (model_.rows) return compute_row(std::move(item));
    const bool translates = model_.kind == ModelKind::kTranslation;
    if (translates && is_blank(item.request.prompt) && !item.request.has_tokens) {
      item.blank = true;
      const std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
      return;
    }
    const TextModel& writer = model_.text->model();
    item.request.options.log_probabilities = options_.json && !translates;
    TextJob job = translates ? writer.prepare_translation(item.request) : writer.prepare(item.request);
    if (job.choice.beams > writer.beams())
      fail_user(where, ": a search of ", job.choice.beams, " beams needs --beam to be as many");
    job.choice.max_tokens = std::min(job.choice.max_tokens, writer.room());
    item.prompt = job.prompt;
    Item& kept = keep(std::move(item));
    const auto finished = [this, &kept](int64_t, TextOutcome&& outcome) {
      const std::lock_guard lock(mutex_);
      kept.written = std::move(outcome);
      changed_.notify_one();
    };
    if (model_.text->submit({.job = std::move(job), .events = {.finished = finished}}) < 0)
      fail_internal("the model has no room for a request of a batch");
  }

  void compute_row(Item item) {
    RowText text = model_.rows->model().encode(item.request.prompt);
    Item& kept = keep(std::move(item));
    const auto finished = [this, &kept](RowOutcome&& outcome) {
      const std::lock_guard lock(mutex_);
      kept.row = std::move(outcome);
      changed_.notify_one();
    };
    if (!model_.rows->submit({std::move(text)}, finished))
      fail_internal("the model has no room for a request of a batch");
  }

  Item& keep(Item item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    return items_.back();  // deque: growing at its ends keeps references valid
  }

  // Emits finished answers in order, and waits for the next while more than `most` requests are under way.
  void give(size_t most) {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (items_.empty() || (items_.size() <= most && !items_.front().done())) return;
      changed_.wait(lock, [&] { return items_.front().done(); });
      const Item item = std::move(items_.front());
      items_.pop_front();
      lock.unlock();
      take_(format(item));
      ++counts_.answers;
    }
  }

  std::string format(const Item& item) const {
    if (item.written && !item.written->error.empty()) fail_user(item.request.where, ": ", item.written->error);
    if (item.row && !item.row->error.empty()) fail_user(item.request.where, ": ", item.row->error);
    const std::string text = item.written ? item.written->text.text : "";
    if (options_.json && item.refusal.empty() && model_.kind == ModelKind::kLanguage)
      return format_written_text(item.written->text, item.request, item.index, 0, item.prompt, false);
    Json json{{"request", item.index}};
    if (!item.request.id.empty()) json["id"] = Json::parse(item.request.id, JsonLimits::request());
    if (!item.refusal.empty()) {
      json["error"] = item.refusal;
      return json.dump();
    }
    switch (model_.kind) {
      case ModelKind::kLanguage: return one_line(text);
      case ModelKind::kTranslation: json["translation"] = text; return options_.json ? json.dump() : one_line(text);
      case ModelKind::kClassifier: {
        const auto& classes = model_.rows->model().classes;
        const auto best = std::ranges::max_element(item.row->rows);
        const std::string& label = classes[best - item.row->rows.begin()];
        json["label"] = label, json["probability"] = *best;
        return options_.json ? json.dump() : label + "\t" + shortest(*best);
      }
      case ModelKind::kSpans:
      case ModelKind::kEmbedder: break;
    }
    const std::string numbers = joined(item.row->rows, options_.json ? "," : " ", shortest<float>);
    if (!options_.json) return numbers;
    const std::string head = json.dump();
    return head.substr(0, head.size() - 1) + ",\"embedding\":[" + numbers + "]}";
  }

  static std::string one_line(const std::string& text) {
    std::string line;
    for (const char c : text) line += c == '\n' ? "\\n" : std::string(1, c);
    return line;
  }

  LoadedModel& model_;
  const BatchOptions& options_;
  const TakeAnswer& take_;
  size_t most_;  // requests under way at once
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  int64_t requests_ = 0;
  BatchCounts counts_;
};
}  // namespace

BatchCounts answer_batch(LoadedModel& model, const BatchOptions& options, const NextLine& next, const TakeAnswer& take,
    const std::function<bool()>& stopped) {
  return Batch(model, options, take).run(next, stopped);
}
}  // namespace linnet
