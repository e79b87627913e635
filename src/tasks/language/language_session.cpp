#include "tasks/language/language_session.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "data/metrics/text_scores.h"
#include "tasks/text_files.h"

namespace linnet {
namespace {
ChunkOptions chunk_options(const Config& config, const CausalModel& model, const LanguageOptions& language) {
  ChunkOptions options;
  if (language.packed)
    options.separator = language.documents.begin, options.separator_ends = language.documents.begin_ends;
  options.length = config.data.context > 0 ? config.data.context : model.usual_length();
  if (language.packed) options.length = std::min(options.length, model.max_length());  // as longest_chat()
  if (options.length > model.max_length())
    fail_user("context = ", options.length, ", and the model takes ", model.max_length(),
        " tokens (--set context=", model.max_length(), ")");
  options.rows = config.data.batch_size > 0 ? config.data.batch_size : config.data.batch_tokens / options.length;
  if (options.rows < 1)
    fail_user("batch_tokens = ", config.data.batch_tokens, " does not hold one chunk of ", options.length, " tokens");
  return options;
}

constexpr int64_t kSampleContext = 1024;  // of samples during training
constexpr int64_t kProbeLength = 16;      // of the loss by which tensor parallelism divides the model
constexpr int64_t kDropEvery = 64;        // batches after which a mapped file's pages are dropped

// A document begins with the token that the tokenizer puts before texts, or without one with the separator.
DocumentTokens document_tokens(const TextCoder& coder) {
  const int32_t begin = coder.begin(), end = coder.separator();
  if (begin < 0 || begin == end) return {end, true};
  return {begin, end < 0};
}

// Appends documents, each tokenized by itself and followed by an end token.
void encode_documents(const TextCoder& coder, const std::vector<std::string>& texts, std::vector<int32_t>& ids) {
  const auto [begin, begin_ends] = document_tokens(coder);
  if (begin < 0) fail_user("the tokenizer has no token that begins or ends a document, as JSON lines need");
  if (begin_ends) ids.push_back(begin);
  for (const std::string& text : texts) {
    if (begin_ends) coder.encode(text, ids);
    else coder.encode_whole(text, ids);
    if (const int32_t end = begin_ends ? begin : coder.separator(); begin_ends || ids.back() != end) ids.push_back(end);
  }
}

// `before`: the token in front of the text, as context for its first one; -1: the text is whole.
LanguageText encode_language_text(const TextCoder& coder, const std::vector<std::string>& texts, bool packed,
    int32_t before, const std::string& name) {
  const TimedPhase phase("tokenizing " + name);
  std::vector<int32_t> ids;
  const int64_t words = sum_of<int64_t>(texts, [&](const std::string& text) { return count_words(text); });
  if (packed) {
    encode_documents(coder, texts, ids);
  } else {
    if (before >= 0) ids.push_back(before);
    for (const std::string& text : texts) before >= 0 ? coder.encode(text, ids) : coder.encode_whole(text, ids);
  }
  if (const int64_t unknown = coder.unknown_count(ids); unknown > 0)
    log_warning(unknown, " of ", ids.size(), " characters of ", name, " are not in the vocabulary");
  return {TokenStream(ids, coder.vocab_size()), words, packed, document_tokens(coder)};
}

// Other programs may have written the file with or without begin tokens.
DocumentTokens find_document_tokens(const TokenStream& tokens, const TextCoder& coder) {
  constexpr int64_t kLooked = 1 << 16;
  const DocumentTokens documents = document_tokens(coder);
  if (documents.begin_ends) return documents;
  std::vector<int32_t> first(std::min(tokens.size(), kLooked));
  tokens.read(0, static_cast<int64_t>(first.size()), first.data());
  if (contains(first, documents.begin)) return documents;
  return {coder.separator(), true};
}

LanguageText map_language_tokens(const Config& config, const TextCoder& coder, const std::string& path) {
  TokenStream tokens(path, static_cast<int>(config.data.token_bytes), coder.vocab_size());
  const DocumentTokens documents = find_document_tokens(tokens, coder);
  return {std::move(tokens), 0, documents.begin >= 0, documents};
}

// The end of a token file, with the token before it as context.
LanguageText last_part(const Config& config, const LanguageText& all) {
  const int64_t size = all.tokens.size();
  const auto cut = static_cast<int64_t>(static_cast<double>(size) * (1 - config.data.valid_share));
  const int64_t first = std::max<int64_t>(0, std::min(cut, size) - 1);
  return {all.tokens.part(first, size - first), 0, all.packed, all.documents};
}

LanguageText load_language_text(const Config& config, const TextCoder& coder, const std::string& path) {
  if (is_token_file(path)) return map_language_tokens(config, coder, path);
  return encode_language_text(coder, read_texts(config.data, path), has_documents(path), -1, "'" + path + "'");
}

// Token files: the tokenizer is unknown, or elsewhere.
LanguageData load_language_tokens(
    const Config& config, const std::string& path, std::shared_ptr<const TextCoder> coder) {
  const bool named = !config.data.tokenizer_dir.empty() || !config.model.from.empty();
  if (!coder) coder = named ? make_text_coder(config, {}) : make_number_coder(config.data.vocab_size);
  LanguageText all = map_language_tokens(config, *coder, path);
  if (!config.data.valid_text.empty())
    return {coder, all, load_language_text(config, *coder, data_path(config.data, config.data.valid_text))};
  const LanguageText valid = last_part(config, all);
  LanguageText train = all;
  train.tokens = all.tokens.part(0, all.tokens.size() - (valid.tokens.size() - 1));
  return {coder, train, valid};
}
}  // namespace

LanguageSession::LanguageSession(
    const Config& config, std::shared_ptr<CausalModel> causal_model, const LanguageOptions& options)
    : Session(config, *causal_model, options.training, options.verify_plans,
          [&model = *causal_model](Trace& trace) {
            return causal_loss(model, trace, 1, std::min<int64_t>(model.max_length(), kProbeLength));
          }),
      chunks(chunk_options(config, *causal_model, options)), packed(options.packed), model(std::move(causal_model)) {
  const double smoothing = training ? config.train.label_smoothing : 0;
  if (options.teacher) options.teacher->declare(store);
  plan(token_inputs(chunks, packed), {[this, smoothing, teacher = options.teacher](Trace& trace) {
    if (teacher && trace.options().training)
      return teacher->causal_loss(*model, trace, chunks.rows, chunks.length, packed, smoothing);
    return causal_loss(*model, trace, chunks.rows, chunks.length, packed, smoothing);
  }});
  if (options.sample_length == 0) return;
  generator = std::make_unique<CausalGenerator>(*model, layout, store, shared,
      CausalOptions{.max_length = std::min(model->max_length(), kSampleContext),
          .flat_name = trainer->state().evaluated(),
          .threads = trainer->options().threads,
          .verify_plans = options.verify_plans,
          .cache_in_arena = true});
}

void LanguageSession::allocate() {
  Session::allocate();
  if (generator) generator->bind();
}

TaskEvaluation LanguageSession::evaluate(const LanguageText& text, const SharedWork& ranks) {
  OwnedBatch buffer(token_inputs(chunks, packed));
  int64_t done = 0;
  const auto [nats, tokens] = total_loss(scoring_batches(text.tokens, chunks), ranks, [&](int64_t index) {
    fill_scoring_batch(text.tokens, chunks, index, buffer);
    if (++done % kDropEvery == 0) text.tokens.drop_pages();
    return trainer->evaluate(buffer.batch);
  });
  TaskEvaluation result{nats / static_cast<double>(tokens), tokens, {{"perplexity", perplexity(nats, tokens)}}, {}};
  if (text.words > 0) {
    result.metrics.emplace_back("word_perplexity", perplexity(nats, text.words));
    result.metrics.emplace_back("words", static_cast<double>(text.words));
  }
  return result;
}

LanguageData load_language_data(const Config& config, std::shared_ptr<const TextCoder> coder) {
  const std::string path = text_path(config, config.data.text, "text");
  if (is_token_file(path)) return load_language_tokens(config, path, std::move(coder));
  std::vector<std::string> texts = read_texts(config.data, path), end;
  const bool own = config.data.valid_text.empty();
  if (own && !texts.empty()) end = split_end(texts, config.data.valid_share);
  const size_t bytes = sum_of<size_t>(texts, &std::string::size);
  if (bytes == 0) fail_user("'", path, "' holds no text to train on");
  if (!coder) coder = make_text_coder(config, texts);
  const bool packed = has_documents(path);
  LanguageText train = encode_language_text(*coder, texts, packed, -1, "the training text");
  texts.clear();
  int32_t last = 0;
  train.tokens.read(train.tokens.size() - 1, 1, &last);
  LanguageText valid = own ? encode_language_text(*coder, end, packed, last, "the validation text")
                           : load_language_text(config, *coder, data_path(config.data, config.data.valid_text));
  if (valid.tokens.size() < 2)
    fail_user("there is no validation text: valid_share = ", config.data.valid_share, " of '", path,
        "' is empty, and valid_text is not given");
  return {std::move(coder), std::move(train), std::move(valid)};
}

LanguageText load_evaluated_text(
    const Config& config, const TextCoder& coder, const std::string& own, const std::string& split) {
  const std::string file = evaluated_text(config, own, split);
  if (!file.empty()) return load_language_text(config, coder, file);
  const std::string path = text_path(config, config.data.text, "text");
  if (is_token_file(path)) return last_part(config, map_language_tokens(config, coder, path));
  std::vector<std::string> texts = read_texts(config.data, path);
  if (texts.empty()) fail_user("'", path, "' holds no text");
  const std::vector<std::string> end = split_end(texts, config.data.valid_share);
  std::vector<int32_t> before;
  coder.encode(texts.back(), before);
  return encode_language_text(
      coder, end, has_documents(path), before.empty() ? -1 : before.back(), "the validation text");
}
}  // namespace linnet
