// `linnet translate`, `linnet embed`, `linnet score`, `linnet predict` and `linnet tokenizer`: inputs in, lines out.
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include "app/cli/commands.h"
#include "app/cli/streams-inl.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "base/numbers.h"
#include "base/text.h"
#include "data/examples/images/image_dataset.h"
#include "data/examples/text/parallel_text.h"
#include "data/examples/text/record_reader.h"
#include "data/examples/text/token_chunks.h"
#include "data/text/trained_tokenizers.h"
#include "engine/kernels/processor.h"
#include "models/families/sentence_embedder.h"
#include "serving/loaded/workers.h"
#include "tasks/predictor.h"
#include "tasks/task_table.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
struct TranslateArguments : InferenceOptions {
  std::vector<std::string> folders;
  int n_best = 1;
};

int translate_input(const TranslateArguments& arguments) {
  const Config config = inference_config(arguments.folders.front(), arguments);
  for (const std::string& folder : arguments.folders)
    if (const char* why = task_actions(inference_config(folder, arguments)).no_translation)
      fail_user("run '", folder, "' ", why);
  if (arguments.n_best > config.train.beam)
    fail_user("--n-best ", arguments.n_best, " needs a beam at least as large, which is ", config.train.beam);
  force_isa(config.train.isa);
  Translator translator(arguments.folders, config, parse_adapters(arguments.adapters));
  int64_t number = 0;
  answer_lines([&](const std::vector<std::string>& lines) {
    for (const std::vector<Translation>& best : translator.translate(lines, arguments.n_best)) {
      ++number;
      for (const Translation& translation : best) {
        if (arguments.n_best > 1) print("{}\t{:.6f}\t", number, translation.score);
        print("{}\n", translation.text);
      }
    }
    flush_output("cannot write the translations");
  });
  if (translator.cut_lines() > 0)
    log_warning(translator.cut_lines(), translator.cut_lines() == 1 ? " line was" : " lines were",
        " longer than max_seq_len = ", translator.longest(), " tokens and cut");
  return 0;
}

struct EmbedArguments : ModelLoad {
  std::string folder, prompt;
  int64_t dimensions = 0;
  bool json = false;
};

void print_vectors(const EmbedArguments& arguments, const std::vector<std::string>& lines,
    std::span<const float> embeddings, size_t width) {
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (arguments.json) out += "{\"text\":" + Json(lines[i]).dump() + ",\"embedding\":[";
    append_shortest(out, embeddings.subspan(i * width, width), arguments.json ? ',' : ' ');
    out += arguments.json ? "]}\n" : "\n";
  }
  print_text(out);
  flush_output();
}

int embed_input(const EmbedArguments& arguments) {
  const std::unique_ptr<RowModel> embedder = open_embedder(arguments.folder, arguments);
  const size_t width = embedder->width;
  if (arguments.dimensions > static_cast<int64_t>(width))
    fail_user("--dimensions is ", arguments.dimensions, ", and the model gives ", width);
  const size_t kept = arguments.dimensions > 0 ? static_cast<size_t>(arguments.dimensions) : width;
  const std::string prompt = embedder->prompt(arguments.prompt);
  int64_t full = 0;
  answer_lines([&](const std::vector<std::string>& lines) {
    std::vector<RowText> sentences;
    for (const std::string& line : lines) {
      sentences.push_back(embedder->encode(prompt + line));
      full += std::ssize(sentences.back().tokens) >= embedder->max_tokens;
    }
    std::vector<float> rows = embedder->compute(sentences);
    shorten_rows(rows, width, kept, embedder->is_normalized);
    print_vectors(arguments, lines, rows, kept);
  });
  if (full > 0)
    fmt::print(stderr,
        "linnet: {} of these texts {} the {} tokens that the model reads; what follows them was not read\n", full,
        full == 1 ? "fills" : "fill", embedder->max_tokens);
  return 0;
}

struct ScoreArguments : InferenceOptions {
  std::string model, source, target;
  std::vector<std::string> inputs, data;
  bool json = false;
};

int score(ScoreArguments& arguments) {
  if (arguments.source.empty() != arguments.target.empty()) fail_user("--source and --target go together");
  arguments.inputs.insert(arguments.inputs.end(), arguments.data.begin(), arguments.data.end());
  if (!arguments.source.empty() && !arguments.inputs.empty())
    fail_user("give either files of pairs, or --source and --target");
  use_isa_of(arguments.model);
  const std::unique_ptr<Scorer> scorer = open_scorer(arguments.model, arguments);
  const bool pairs = scorer->takes_pairs();
  const auto print_score = [&](const std::string& text, const std::string& source) {
    const TextScore found = scorer->score(text, source);
    if (found.score && arguments.json) {
      print_json({{"text", source}, {"pair", text}, {"score", *found.score}});
    } else if (found.score) {
      print("{:.6f}\t{}\t{}\n", *found.score, source, text);
    } else if (arguments.json) {
      Json json;
      if (pairs) json["source"] = source;
      json[pairs ? "target" : "text"] = text;
      json["log_probability"] = found.log_probability;
      json["tokens"] = found.tokens;
      print_json(json);
    } else {
      print("{:.6f}\t{}\t{}{}{}\n", found.log_probability, found.tokens, source, pairs ? "\t" : "", text);
    }
    flush_output();
  };
  if (!arguments.source.empty()) {
    if (!pairs) fail_user("--source and --target are for models of translation");
    const ParallelText read = read_pair(arguments.source, arguments.target);
    for (size_t i = 0; i < read.source.size(); ++i) print_score(read.target[i], read.source[i]);
  } else {
    for_each_line(arguments.inputs, [&](const std::string& line, const std::string& where) {
      if (!pairs) return print_score(line, "");
      const auto [source, target] = split_pair(line, where);
      print_score(target, source);
    });
  }
  if (scorer->cut_texts() > 0) log_warning(scorer->cut_texts(), " pairs were longer than the model takes and cut");
  return 0;
}

// Inputs read ahead, so that texts of similar length are computed together; output keeps their order.
constexpr size_t kAhead = 1024, kRows = 16;

struct PredictArguments : InferenceOptions {
  std::string model;
  std::vector<std::string> inputs, data;
  int64_t top = 1;
  bool json = false, csv = false;
  DataConfig columns;  // names of the columns to read
};

std::string csv_field(std::string text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  replace_all(text, "\"", "\"\"");
  return "\"" + text + "\"";
}

class Predictions {
 public:
  explicit Predictions(const PredictArguments& arguments)
      : arguments_(arguments), ahead_(isatty(STDIN_FILENO) && arguments.inputs.empty() ? 1 : kAhead),
        predictor_(open_predictor(
            arguments.model, arguments, ahead_ == 1 ? 1 : kRows, !arguments.columns.pair_column.empty())),
        phase_(std::string("predicting, ") + input_name() + "s:") {
    if (const int64_t most = predictor_->choices(); arguments.top > most)
      fail_user("--top ", arguments.top, ": the model ",
          most > 1 ? "has " + std::to_string(most) + " classes" : "does not choose one of several classes");
    if (!arguments.json && arguments.top > 1 && predictor_->heading(arguments.top) == predictor_->heading(1))
      fail_user("--top ", arguments.top, ": --json lists several answers of this model, its lines have one");
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
      } else if (path.find(' ') != path.npos && !file_exists(path)) {
        fail_user("there is no file '", path, "'", missing_model_hint(path));
      } else if (!images || has_records(path)) {
        predictions.predictor().for_each_text(path, arguments.columns, add_text);
      } else if (!std::filesystem::is_directory(path)) {
        predictions.add(path);
      } else {
        const std::vector<std::string> found = find_images(path, true);
        if (found.empty()) fail_user("'", path, "' holds no images (.png, .jpg, .jpeg, .bmp)");
        for (const std::string& image : found) predictions.add(image);
      }
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

struct TokenizerArguments {
  std::string model, text_column = "text";
  std::vector<std::string> files;
  BpeTrainingOptions training;
  bool special = false, pieces = false, skip_special = false, target = false;
};

// From a run, a model folder, or a tokenizer file.
struct OpenedTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  const PretrainedTokenizer* pretrained;  // of a model folder; null: Linnet's own kinds
};

OpenedTokenizer open_tokenizer(const TokenizerArguments& arguments) {
  OpenedTokenizer opened;
  const bool is_run = RunFolder(arguments.model).has_config();
  if (arguments.target && !is_run) fail_user("--target is for runs; a model folder's target.spm can be named itself");
  opened.tokenizer = is_run ? load_run_tokenizer(arguments.model, arguments.target)
                            : std::shared_ptr<const Tokenizer>(load_pretrained_tokenizer(arguments.model));
  opened.pretrained = dynamic_cast<const PretrainedTokenizer*>(opened.tokenizer.get());
  return opened;
}

int encode_input(const TokenizerArguments& arguments) {
  const auto [tokenizer, pretrained] = open_tokenizer(arguments);
  if (arguments.special && !pretrained)
    fail_user("--special: the tokenizer of '", arguments.model, "' has no template that adds special tokens");
  InputLines input;  // keeps carriage returns, which are text to a tokenizer
  std::vector<TokenId> ids;
  for (std::string_view line; input.next(line);) {
    ids.clear();
    if (arguments.special) ids = pretrained->encode(line, {.offsets = false}).ids;
    else tokenizer->encode(line, ids);
    print_text(joined(ids, " ", [&, &tokenizer = tokenizer](TokenId id) {
      return arguments.pieces ? tokenizer->piece(id) : std::to_string(id);
    }) + "\n");
  }
  return 0;
}

std::vector<TokenId> parse_ids(std::string_view line, int64_t line_number, int64_t vocab_size) {
  const std::string where = "standard input: line " + std::to_string(line_number) + ": ";
  std::vector<TokenId> ids;
  std::istringstream words{std::string(line)};
  for (std::string word; words >> word;) {
    const auto id = parse_number<TokenId>(word);
    if (!id || *id < 0) fail_user(where, "'", one_line(word.substr(0, 20)), "' is not a token id");
    if (*id >= vocab_size) fail_user(where, "token ", *id, " is outside the vocabulary of ", vocab_size);
    ids.push_back(*id);
  }
  return ids;
}

int decode_input(const TokenizerArguments& arguments) {
  const auto [tokenizer, pretrained] = open_tokenizer(arguments);
  InputLines input;
  for (std::string_view line; input.next(line);) {
    const std::vector<TokenId> ids = parse_ids(line, input.number(), tokenizer->vocab_size());
    // Linnet's own tokenizers always leave special tokens out.
    print_text((pretrained ? pretrained->decode(ids, arguments.skip_special) : tokenizer->decode(ids)) + "\n");
  }
  return 0;
}

// Adds a text file a few megabytes at a time, as a corpus may exceed memory.
int train_tokenizer(const TokenizerArguments& arguments) {
  if (file_exists(arguments.model + "/tokenizer.json"))
    fail_user("'", arguments.model, "' has a tokenizer already; name a new folder");
  BpeTrainer trainer(arguments.training);
  for (const std::string& path : arguments.files) {
    if (has_documents(path)) {
      read_documents(path, arguments.text_column, [&](const std::string& text) { trainer.add(text); });
      continue;
    }
    LineReader lines(path);
    std::string text;
    for (std::string line; lines.next(line);) {
      text += line + (lines.line_was_ended() ? "\n" : "");
      if (text.size() > (4 << 20)) trainer.add(std::exchange(text, ""));
    }
    trainer.add(text);
    if (lines.line_number() == 0 && arguments.files.size() == 1) fail_user("'", path, "' is empty");
  }
  const auto tokenizer = trainer.train();
  tokenizer->save_pretrained(arguments.model);
  const int64_t size = tokenizer->vocab_size(), asked = arguments.training.vocab_size;
  print("{}: {} tokens{}\n", arguments.model, size, size < asked ? "; the text gives no more" : "");
  return 0;
}
}  // namespace

void add_translate_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand("translate", "translate standard input, line by line", translate_input);
  command
      .take("run", arguments.folders,
          "the run folder; with several of them, whose vocabularies are the same, the mean of the models' "
          "probabilities decides",
          {.required = true})
      .take("--beam", arguments.beams, "beam size (default: the run's); 1 is greedy", {.least = 1, .most = 1024})
      .take("--n-best", arguments.n_best, "the N best translations of each line: number, score, text, with tabs",
          {.least = 1, .most = 1024})
      .take_load(arguments)
      .take_languages(arguments.languages.source, arguments.languages.target)
      .take_adapters(arguments.adapters);
}

void add_embed_command(Command& linnet) {
  auto [command, arguments] =
      linnet.subcommand("embed", "a line of numbers for each line of standard input", embed_input);
  command
      .take("MODEL", arguments.folder,
          "a BERT folder, as sentence-transformers writes them, or a run of a masked language model",
          {.required = true})
      .take("--prompt", arguments.prompt, "a name of config_sentence_transformers.json's prompts, such as query",
          {.type = "NAME"})
      .take("--dimensions", arguments.dimensions, "keep so many numbers of each embedding (Matryoshka embeddings)",
          {.type = "N", .least = 1, .most = 1e6})
      .flag("--json", arguments.json, "lines of {\"text\": ..., \"embedding\": [...]}")
      .take_load(arguments)
      .take_adapters(arguments.adapters);
}

void add_score_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand("score",
      "tell how likely texts or translations are: a line of log probability, tokens and input for each", score);
  command
      .take("model", arguments.model,
          "a run or model folder of a language model or of translation, or a cross-encoder's folder",
          {.required = true, .type = "MODEL"})
      .take("inputs", arguments.inputs,
          "files with a text on each line; of translation source<TAB>target, of a cross-encoder text<TAB>text "
          "(default: standard input)",
          {.type = "FILE"})
      .take("--data", arguments.data, "the same as an input", {.type = "FILE"})
      .take("--source", arguments.source, "of translation: sources in a file of their own ...", {.type = "FILE"})
      .take("--target", arguments.target, "... and their translations", {.type = "FILE"})
      .flag("--json", arguments.json, "a JSON object on each line")
      .take_load(arguments)
      .take_languages(arguments.languages.source, arguments.languages.target);
}

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

void add_tokenizer_command(Command& linnet) {
  Command tokenizer = linnet.subcommand("tokenizer", "text to token ids and back, and new vocabularies");
  constexpr const char* kModel = "a run or model folder, or a tokenizer's file";
  constexpr const char* kTarget = "of a run with two vocabularies: that of the translations";
  auto [train, trained] = tokenizer.subcommand("train", "learn a byte-level BPE from text files", train_tokenizer);
  train.take("model", trained.model, "the folder to write: tokenizer.json, tokenizer_config.json", {.required = true})
      .take("files", trained.files, "text files, tables, JSON lines or folders of them", {.required = true})
      .take("--text-column", trained.text_column, "of tables and JSON lines: the field with the text", {.type = "NAME"})
      .take("--vocab-size", trained.training.vocab_size, "tokens, with the 256 bytes and the special one",
          {.show_default = true})
      .take("--min-count", trained.training.min_count, "pairs that are rarer are not merged", {.show_default = true});
  auto [encode, encoded] = tokenizer.subcommand("encode", "the token ids of each line of standard input", encode_input);
  encode.take("model", encoded.model, kModel, {.required = true, .type = "MODEL"})
      .flag("--tokens", encoded.pieces, "the pieces instead of their ids")
      .flag("--target", encoded.target, kTarget)
      .flag("--special", encoded.special, "with the special tokens that the model's template adds");
  auto [decode, decoded] =
      tokenizer.subcommand("decode", "the text of each line of token ids on standard input", decode_input);
  decode.take("model", decoded.model, kModel, {.required = true})
      .flag("--target", decoded.target, kTarget)
      .flag("--skip-special", decoded.skip_special, "leave special tokens out");
}
}  // namespace linnet
