#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include "app/cli/commands.h"
#include "app/cli/input_lines.h"
#include "app/cli/print-inl.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "data/examples/images/image_folder.h"
#include "data/examples/text/record_reader.h"
#include "tasks/predictor.h"

namespace linnet {
namespace {
// Inputs read ahead, so that texts of similar length are computed together; output keeps their order.
constexpr size_t kAhead = 1024, kRows = 16;

struct PredictArguments : InferenceOptions {
  std::string model;
  std::vector<std::string> inputs, data;
  int64_t top = 1;
  bool json = false, csv = false;
  DataConfig columns;  // names of the columns to read
};

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

class Predictions {
 public:
  explicit Predictions(const PredictArguments& arguments)
      : arguments_(arguments), ahead_(isatty(STDIN_FILENO) && arguments.inputs.empty() ? 1 : kAhead),
        predictor_(open_predictor(
            arguments.model, arguments, ahead_ == 1 ? 1 : kRows, !arguments.columns.pair_column.empty())),
        phase_(std::string("predicting, ") + input_name() + "s:") {
    if (arguments.top > predictor_->outputs())
      fail_user("--top ", arguments.top, ": the model has ", predictor_->outputs(), " classes");
    if (!arguments.csv) return;
    for (const std::string& name : predictor_->heading(arguments.top)) print("{},", name);
    print("{}\n", input_name());
  }

  const Predictor& predictor() const { return *predictor_; }

  void add(std::string input) {
    waiting_.push_back(std::move(input));
    if (waiting_.size() == ahead_) flush();
  }

  void flush() {
    if (predictor_->takes_images()) predict_readable();
    else predict(waiting_);
    done_ += static_cast<int64_t>(waiting_.size());
    waiting_.clear();
    if (!isatty(STDOUT_FILENO)) phase_.tick(done_);  // at a terminal the output shows progress
    flush_output();
  }

  // Damaged images are reported as they come; the others are still classified.
  void check_all_were_read() const {
    if (unreadable_ > 0)
      fail_user(unreadable_, unreadable_ == 1 ? " image" : " images", " of ", done_, " could not be classified");
  }

 private:
  void predict(const std::vector<std::string>& inputs) {
    const std::vector<Answer> answers = predictor_->answer(inputs, arguments_.top);
    for (size_t i = 0; i < inputs.size(); ++i) print_answer(inputs[i], answers[i]);
  }

  void predict_readable() {
    try {
      return predict(waiting_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUser) throw;
    }
    for (const std::string& image : waiting_) try {
        predict({image});
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kUser) throw;
        std::fprintf(stderr, "linnet: %s\n", error.what());  // an error, whatever LINNET_LOG is
        ++unreadable_;
      }
  }

  const char* input_name() const { return predictor_->takes_images() ? "image" : "text"; }

  void print_answer(const std::string& input, const Answer& answer) const {
    if (arguments_.json) {
      Json json{{input_name(), input}};
      json.update(answer.json);
      return print_json(json);
    }
    for (const std::string& cell : answer.cells) print("{}{}", arguments_.csv ? csv_field(cell) : cell, separator());
    std::string shown = arguments_.csv ? csv_field(input) : input;
    if (!arguments_.csv) std::ranges::replace(shown, '\n', ' ');  // texts may have several lines
    print("{}\n", shown);
  }
  char separator() const { return arguments_.csv ? ',' : '\t'; }

  const PredictArguments& arguments_;
  const size_t ahead_;
  std::unique_ptr<Predictor> predictor_;
  std::vector<std::string> waiting_;
  int64_t done_ = 0, unreadable_ = 0;
  Phase phase_;
};

int predict(PredictArguments& arguments) {
  if (arguments.json && arguments.csv) fail_user("give either --json or --csv");
  arguments.inputs.insert(arguments.inputs.end(), arguments.data.begin(), arguments.data.end());
  use_isa_of(arguments.model);
  Predictions predictions(arguments);
  int64_t texts = 0, with_tab = 0;
  const bool images = predictions.predictor().takes_images(), pairs = predictions.predictor().takes_pairs();
  try {
    const auto add_text = [&](const std::string& text) {
      ++texts, with_tab += text.find('\t') != text.npos;
      predictions.add(text);
    };
    if (arguments.inputs.empty()) arguments.inputs = {"-"};
    for (const std::string& path : arguments.inputs) {
      if (path == "-") {
        for_each_line({path}, [&](const std::string& line, const std::string&) { add_text(line); });
        continue;
      }
      if (path.find(' ') != path.npos && !file_exists(path))
        fail_user("there is no file '", path, "'", missing_model_hint(path));
      if (!images || has_records(path)) {
        predictions.predictor().for_each_text(path, arguments.columns, add_text);
        continue;
      }
      if (!std::filesystem::is_directory(path)) {
        predictions.add(path);
        continue;
      }
      const std::vector<std::string> found = find_images(path);
      if (found.empty()) fail_user("'", path, "' holds no images (.png, .jpg, .jpeg, .bmp)");
      warn_of_foreign_images(path, found.size());
      for (const std::string& image : found) predictions.add(image);
    }
  } catch (const Error&) {
    predictions.flush();  // keep the answers before a bad line
    throw;
  }
  predictions.flush();
  // Texts rarely have tabs. If all do, the lines are most likely those of a table.
  if (!images && !pairs && texts > 0 && with_tab == texts)
    log_warning(
        "every line has a tab, and the whole line was taken for the text; of a file whose name ends in .tsv or .csv it "
        "is one of the columns");
  predictions.check_all_were_read();
  return 0;
}
}  // namespace

void add_predict_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand(
      "predict", "tell the classes of texts or images: a line of label, probability and input for each", predict);
  command
      .take("model", arguments.model, "a run of classification or of images, or the folder of a text classifier",
          {.required = true, .type = "MODEL"})
      .take("inputs", arguments.inputs,
          "files with a text on each line, tables (.csv, .tsv) or JSON lines (.jsonl); images, folders or tables of "
          "them (default: standard input, a text or the path of an image on each line)",
          {.type = "FILE"})
      .take("--data", arguments.data, "the same as an input", {.type = "FILE"})
      .take("--text-column", arguments.columns.text_column,
          "the column or field with the text (default: as in training, else the usual names, else the first)",
          {.type = "NAME"})
      .take("--pair-column", arguments.columns.pair_column, "of pairs: that with the second text", {.type = "NAME"})
      .take("--top", arguments.top, "the K likeliest classes instead of one", {.type = "K", .least = 1, .most = 1e6})
      .flag("--json", arguments.json, "a JSON object on each line")
      .flag("--csv", arguments.csv, "comma-separated values with a heading")
      .take_load(arguments)
      .take_adapters(arguments.adapters);
}
}  // namespace linnet
