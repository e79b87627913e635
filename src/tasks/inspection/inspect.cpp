#include "base/fail.h"
#include "base/text.h"
#include "data/text/unicode/utf8.h"
#include "models/families/family.h"
#include "models/nn/model_file.h"
#include "tasks/inference.h"
#include "tasks/inspection/question.h"
#include "tasks/language/language_model.h"
#include "tasks/masked/masked_task.h"
#include "tasks/task_table.h"
#include "tasks/texts/text_classifier.h"
#include "tasks/translation/translation_model.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
using TokenText = std::function<std::string(int32_t)>;

// A token as in the text, with the space before a word. WordPiece's "##ing" and parts of characters stay as they are.
std::string token_text(const Tokenizer& tokenizer, int32_t id) {
  if (id >= tokenizer.vocab_size()) return "<" + std::to_string(id) + ">";  // models may round their vocabulary up
  std::string piece = tokenizer.piece(id);
  if (tokenizer.kind() == "char" || tokenizer.kind() == "word") return piece;
  const std::string mark = "\u2581";  // SentencePiece's sign for a space
  const auto* pretrained = dynamic_cast<const PretrainedTokenizer*>(&tokenizer);
  if (pretrained && pretrained->kind() == "bpe" && piece.find(mark) == piece.npos) {
    const std::string text = pretrained->decode(std::span(&id, 1), false);
    return !text.empty() && invalid_utf8_at(text) == text.npos ? text : piece;
  }
  replace_all(piece, mark, " ");
  return piece;
}

std::string token_text(const TextCoder& coder, int32_t id) {
  if (coder.pretrained()) return token_text(*coder.pretrained(), id);
  std::string text = coder.decode({id});
  if (text.size() > 1 && text.ends_with(' ')) text.pop_back();  // of token numbers
  return text.empty() ? "<" + std::to_string(id) + ">" : text;
}

void check_text_length(const std::vector<int32_t>& ids, int64_t most, const std::string& what) {
  if (ids.empty()) fail_user("the ", what, " has no tokens");
  most = std::min(most, kMostInspectedTokens);
  if (std::ssize(ids) > most)
    fail_user("the ", what, " has ", ids.size(), " tokens; at most ", most, " can be looked at");
}

InspectedSequence shown(const std::string& name, const std::vector<int32_t>& ids, const TokenText& text) {
  return {name, mapped(ids, text)};
}

InspectedAnswer shown(const FoundAnswer& found, const TokenText& text) {
  constexpr size_t kLikeliest = 5;
  const std::vector<double>& all = found.log_probabilities;
  std::vector<int32_t> order = numbers_below<int32_t>(all.size());
  const size_t count = std::min(kLikeliest, order.size());
  const auto likelier = [&](int32_t a, int32_t b) { return all[a] > all[b]; };
  std::ranges::partial_sort(order, order.begin() + count, likelier);
  order.resize(count);
  InspectedAnswer answer{.text = text(found.id), .likeliest = {}, .baseline = found.baseline, .shares = found.shares};
  for (const int32_t id : order) answer.likeliest.emplace_back(text(id), std::exp(all[id]));
  answer.log_probability = all[found.id];
  return answer;
}

// `sequences`: texts of the question's ids. `answer_text`: text of an answer's id.
Inspection inspection_of(const std::string& folder, const char* kind, const InspectOptions& options,
    const Question& question, std::vector<InspectedSequence> sequences, const TokenText& answer_text) {
  Findings found = look_inside(question, options.steps, options.threads);
  return {.model = folder,
      .kind = kind,
      .sequences = std::move(sequences),
      .attention = std::move(found.attention),
      .answers = mapped(found.answers, [&](const FoundAnswer& answer) { return shown(answer, answer_text); })};
}

int32_t class_of(const std::vector<std::string>& classes, const std::string& name) {
  const auto found = std::ranges::find(classes, name);
  if (found == classes.end()) fail_user("there is no class '", name, "'; the model has ", first_names(classes));
  return static_cast<int32_t>(found - classes.begin());
}

// The framed translation to inspect: the given one, or the model's own.
std::vector<int32_t> translation_of(
    const std::string& folder, const TranslationModel& model, const InspectOptions& options) {
  std::string text;
  if (options.answer) {
    text = *options.answer;
  } else {
    Translator translator({folder}, inference_config(folder, {{.threads = options.threads}}));
    text = translator.translate({options.text}, 1)[0][0].text;
  }
  std::vector<int32_t> ids;
  model.tokenizers.target->encode(text, ids);
  const SentenceFrame frame = model.tokenizers.frame();
  frame_sentence(ids, frame.target_begin, frame.target_end);
  return ids;
}

Inspection inspect_encoder(const std::string& folder, const InspectOptions& options) {
  if (options.answer) fail_user("--answer: '", folder, "' is an encoder, which answers nothing");
  PretrainedModel opened = open_pretrained(folder);
  auto& model = opened.as<SentenceEncoder>();
  const auto tokenizer = load_pretrained_tokenizer(folder);
  const std::vector<int32_t> ids = tokenizer->encode(options.text, EncodeOptions{.offsets = false}).ids;
  check_text_length(ids, model.encoder.config.max_seq_len, "text");
  Question question = ask(model, ids);
  question.load = weights_of(folder, &opened);
  const TokenText text = [&](int32_t id) { return token_text(*tokenizer, id); };
  return inspection_of(folder, "encoder", options, question, {shown("text", ids, text)}, text);
}
}  // namespace

Inspection inspect_language_model(const std::string& folder, const InspectOptions& options) {
  const OpenedLanguageModel opened = open_language_model(folder);
  const TokenText text = [&](int32_t id) { return token_text(*opened.coder, id); };
  std::vector<int32_t> ids, answer;
  opened.coder->encode_whole(options.text, ids);
  if (ids.empty() && opened.coder->start() >= 0) ids.push_back(opened.coder->start());
  if (ids.empty()) fail_user("the text has no tokens");
  const auto last = static_cast<int64_t>(ids.size()) - 1;
  std::vector<QuestionAnswer> answers{{.position = last}};
  if (options.answer) {
    opened.coder->encode(*options.answer, answer);
    if (answer.empty()) fail_user("the answer has no tokens");
    answers.clear();
    for (size_t i = 0; i < answer.size(); ++i)
      answers.push_back({.position = last + static_cast<int64_t>(i), .id = answer[i]});
    ids.insert(ids.end(), answer.begin(), answer.end() - 1);
  }
  check_text_length(ids, opened.model->max_length(), "text");
  Question question = ask(*opened.model, ids);
  question.answers = std::move(answers);
  question.load = opened.weights();
  return inspection_of(folder, "language model", options, question, {shown("text", ids, text)}, text);
}

Inspection inspect_translation(const std::string& folder, const InspectOptions& options) {
  const OpenedTranslationModel opened = open_translation_model(folder);
  const TokenizerPair& tokenizers = opened.tokenizers;
  std::vector<int32_t> source;
  tokenizers.source->encode(options.text, source);
  if (source.empty()) fail_user("the text has no tokens");
  const SentenceFrame frame = tokenizers.frame();
  frame_sentence(source, frame.source_begin, frame.source_end);
  check_text_length(source, opened.config.model.max_seq_len, "text");
  std::vector<int32_t> target_in = translation_of(folder, opened, options);
  const std::vector<int32_t> target(target_in.begin() + 1, target_in.end());
  target_in.pop_back();
  check_text_length(target, opened.config.model.max_seq_len, "translation");
  Question question = ask(*opened.model, source, target_in);
  for (size_t i = 0; i < target.size(); ++i)
    question.answers.push_back({.position = static_cast<int64_t>(i), .id = target[i]});
  question.load = opened.weights();
  const TokenText of_source = [&](int32_t id) { return token_text(*tokenizers.source, id); };
  const TokenText of_target = [&](int32_t id) { return token_text(*tokenizers.target, id); };
  return inspection_of(folder, "translation", options, question,
      {shown("source", source, of_source), shown("target", target_in, of_target)}, of_target);
}

Inspection inspect_classifier(const std::string& folder, const InspectOptions& options) {
  OpenedTextClassifier opened = open_text_classifier(folder);
  auto& model = opened.model.as<SequenceClassifier>();
  const std::vector<int32_t> ids = opened.tokenizer->encode(options.text, EncodeOptions{.offsets = false}).ids;
  check_text_length(ids, model.encoder.config.max_seq_len, "text");
  Question question = ask(model, ids);
  question.answers = {{}};
  if (options.answer) question.answers[0].id = class_of(opened.outputs, *options.answer);
  question.load = opened.weights();
  return inspection_of(folder, "classifier", options, question,
      {shown("text", ids, [&](int32_t id) { return token_text(*opened.tokenizer, id); })},
      [&](int32_t id) { return opened.outputs[id]; });
}

Inspection inspect_masked_model(const std::string& folder, const InspectOptions& options) {
  MaskedModel opened = make_masked_model({}, folder);
  MaskedLanguageModel& model = opened.model();
  const PretrainedTokenizer& tokenizer = *opened.tokenizer;
  const TokenText text = [&](int32_t id) { return token_text(tokenizer, id); };
  const std::vector<int32_t> ids = tokenizer.encode(options.text, EncodeOptions{.offsets = false}).ids;
  check_text_length(ids, model.encoder.config.max_seq_len, "text");
  Question question = ask(model, ids);
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] == tokenizer.roles().mask) question.answers.push_back({.position = static_cast<int64_t>(i)});
  if (options.answer) {
    std::vector<int32_t> answer;
    tokenizer.encode(*options.answer, answer);
    if (answer.size() != question.answers.size())
      fail_user("the answer has ", answer.size(), " tokens, the text ", question.answers.size(), " masks (",
          text(tokenizer.roles().mask), ")");
    for (size_t i = 0; i < answer.size(); ++i) question.answers[i].id = answer[i];
  }
  question.load = weights_of(folder, RunFolder(folder).has_config() ? nullptr : &opened.pretrained);
  return inspection_of(folder, "masked language model", options, question, {shown("text", ids, text)}, text);
}

Inspection inspect_model(const std::string& folder, const InspectOptions& options) {
  if (const std::optional<Config> run = run_config(folder)) {
    const TaskActions& task = task_actions(*run);
    if (!task.inspect) fail_user("run '", folder, "' ", task.no_inspection);
    return task.inspect(folder, options);
  }
  if (is_translation_folder(folder)) return inspect_translation(folder, options);
  if (is_text_classifier_folder(folder)) return inspect_classifier(folder, options);
  const ConfigFile config(folder + "/config.json");
  if (find_family(config).kind != FamilyKind::kEncoder) return inspect_language_model(folder, options);
  return named_head(config) == ModelHead::kTokens ? inspect_masked_model(folder, options)
                                                  : inspect_encoder(folder, options);
}
}  // namespace linnet
