#include "serving/loaded/workers.h"
#include <algorithm>
#include "base/error.h"
#include "base/fail.h"
#include "base/files.h"
#include "engine/kernels/reduce/reduce.h"
#include "models/families/sentence_embedder.h"
#include "models/families/static_scales.h"
#include "models/nn/forward.h"
#include "models/nn/model_file.h"
#include "tasks/texts/text_classifier.h"
#include "training/run/pretrained_run.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {
constexpr int64_t kRows = 16;  // texts computed at once
constexpr int64_t kAhead = 1;

// From a model folder, or a run of a masked language model.
SentenceEmbedder open_sentences(const std::string& folder, const ModelLoad& options) {
  const ForwardOptions computing{.threads = options.threads,
      .quantization = folder_quantization(folder, options.quantize, options.keep),
      .device = options.device};
  const std::vector<AdapterFolder> adapters = parse_adapters(options.adapters);
  const RunFolder run(folder);
  if (!run.has_config()) return SentenceEmbedder(folder, kRows, computing, adapters);
  const Config config = run.load_config();
  if (task_kind(config) != TaskKind::kMaskedLanguage && config.data.task != "embeddings")
    fail_user("run '", folder, "' embeds no sentences: it learned ", task_row(config).description,
        "; a run of embeddings or of a masked language model does");
  refuse_adapters(folder, adapters);
  return SentenceEmbedder(
      open_run_model(folder), read_sentence_pooling(model_description(folder)), kRows, computing, weights_of(folder));
}

class Embedder : public RowModel {
 public:
  Embedder(const std::string& folder, const ModelLoad& options)
      : embedder_(open_sentences(folder, options)),
        tokenizer_(RunFolder(folder).has_config() ? open_run_tokenizer(folder) : load_pretrained_tokenizer(folder)),
        prompts_(read_sentence_prompts(folder)) {
    width = static_cast<size_t>(embedder_.width()), is_normalized = embedder_.is_normalized();
    vocab_size = embedder_.vocab_size(), max_tokens = embedder_.max_tokens();
  }
  std::string prompt(const std::string& name) const override { return prompts_.of(name); }
  RowText encode(const std::string& text, const std::string* pair) const override {
    if (pair) fail_user("the model embeds single texts, and two were given");
    return {tokenizer_->encode(text, {.max_length = max_tokens, .offsets = false}).ids};
  }
  int64_t padded_length(int64_t tokens) const override { return embedder_.padded_length(tokens); }
  std::vector<float> compute(const std::vector<RowText>& texts) override {
    return embedder_.embed(mapped(texts, &RowText::tokens));
  }

 private:
  SentenceEmbedder embedder_;  // before the tokenizer: it reports unsuitable folders
  std::unique_ptr<PretrainedTokenizer> tokenizer_;
  const SentencePrompts prompts_;
};

// Computes in fp32, or with the quantized weights, like text models, whatever a run was trained with.
class RowClassifier : public RowModel {
 public:
  RowClassifier(const std::string& folder, const ModelLoad& options)
      : opened_(open_text_classifier(folder, parse_adapters(options.adapters))), problem_(opened_.problem()),
        lengths_(text_lengths(opened_.config, opened_.model.as<TextClassifier>())) {
    if (opened_.model.head == ModelHead::kTokenClasses || opened_.model.head == ModelHead::kSpans)
      fail_user("'", folder, "' labels words or finds answers; `linnet predict` does that");
    classes = opened_.outputs, width = classes.size();
    vocab_size = opened_.tokenizer->vocab_size(), max_tokens = lengths_.back();
    is_reranker = problem_ == TextProblem::kNumbers && width == 1 && takes(true);
    auto& model = opened_.model.as<TextClassifier>();
    std::vector<Forward::Function> functions;
    for (const bool pairs : {false, true})
      for (const int64_t length : lengths_) {
        if (!takes(pairs)) continue;
        functions.emplace_back([&model, length, pairs](Trace& trace) {
          const TensorType ids{DType::kI32, {kRows, length}};
          const Tensor tokens = trace.input("tokens", ids), lengths = trace.input("lengths", {DType::kI32, {kRows}});
          trace.graph().output("logits", model.logits(tokens, lengths, pairs ? trace.input("types", ids) : Tensor{}));
        });
      }
    const int threads = options.threads > 0 ? options.threads : static_cast<int>(opened_.config.train.threads);
    forward_.emplace(*opened_.model.module, functions,
        ForwardOptions{.threads = threads,
            .quantization = folder_quantization(folder, options.quantize, options.keep),
            .device = options.device,
            .pack_weights = !is_packed(folder)});  // as in SentenceEmbedder
    forward_->load(folder, opened_.weights());
  }
  RowText encode(const std::string& text, const std::string* pair) const override {
    if (!takes(pair != nullptr))
      fail_user(pair ? "the model reads single texts, and two were given" : "the model reads two texts at a time");
    const EncodeOptions options{.max_length = max_tokens, .offsets = false};
    if (!pair) return {opened_.tokenizer->encode(text, options).ids};
    Encoding encoding = opened_.tokenizer->encode_pair(text, *pair, options);
    return {std::move(encoding.ids), {encoding.segments.begin(), encoding.segments.end()}};
  }
  int64_t padded_length(int64_t tokens) const override {
    return *std::ranges::lower_bound(lengths_, std::min(tokens, max_tokens));
  }
  std::vector<float> compute(const std::vector<RowText>& texts) override {
    std::vector<float> logits;
    for (size_t first = 0; first < texts.size(); first += kRows)
      add_logits(std::span(texts).subspan(first, std::min<size_t>(kRows, texts.size() - first)), logits);
    forward_->check_weights();
    if (problem_ == TextProblem::kSeveralClasses)
      for (float& logit : logits) logit = static_cast<float>(sigmoid(logit));
    if (problem_ != TextProblem::kOneClass) return logits;
    const std::vector<double> rows = softmax_rows(logits, width);
    return {rows.begin(), rows.end()};
  }

 private:
  // A run takes its training format. Folders do not say, except those that judge pairs.
  bool takes(bool pairs) const { return pairs ? opened_.pairs || !opened_.is_run : !opened_.pairs; }

  void add_logits(std::span<const RowText> texts, std::vector<float>& logits) {
    const auto longest = max_of<int64_t>(texts, [](const RowText& text) { return text.tokens.size(); });
    const bool pairs = !texts[0].segments.empty();
    const auto shape = std::ranges::lower_bound(lengths_, longest);
    const auto length = static_cast<size_t>(*shape);
    std::vector<int32_t> tokens(kRows * length, 0), types = tokens;
    std::vector<int32_t> lengths(kRows, 1);  // unused rows have one token each
    for (size_t row = 0; row < texts.size(); ++row) {
      const auto begin = static_cast<std::ptrdiff_t>(row * length);
      std::ranges::copy(texts[row].tokens, tokens.begin() + begin);
      std::ranges::copy(texts[row].segments, types.begin() + begin);
      lengths[row] = static_cast<int32_t>(texts[row].tokens.size());
    }
    forward_->set("tokens", tokens);
    forward_->set("lengths", lengths);
    if (pairs) forward_->set("types", types);
    const auto function = static_cast<size_t>(shape - lengths_.begin()) + (pairs && takes(false) ? lengths_.size() : 0);
    const auto found = forward_->run(function).output("logits");
    logits.insert(logits.end(), found.begin(), found.begin() + (texts.size() * width));
  }

  OpenedTextClassifier opened_;
  const TextProblem problem_;
  const std::vector<int64_t> lengths_;
  std::optional<Forward> forward_;
};
}  // namespace

struct TextWorker::Order : TextOrder {
  int64_t number;
  std::string client;
  int64_t begun = 0;  // texts
};

struct TextWorker::Sample {
  std::shared_ptr<const Order> order;
  int64_t index;
  WrittenRow row;
  std::vector<WrittenToken> tokens = {};
};

TextEvents HeardText::events() {
  const std::shared_ptr<HeardText> self = shared_from_this();
  const auto token = [self](int64_t, const std::string& piece, const WrittenToken*) {
    if (piece.empty()) return;
    const std::lock_guard lock(self->mutex_);
    self->pieces_.push_back(piece);
    self->changed_.notify_all();
  };
  const auto finished = [self](int64_t, TextOutcome&& outcome) {
    const std::lock_guard lock(self->mutex_);
    self->outcome_ = std::move(outcome);
    self->changed_.notify_all();
  };
  return {token, finished};
}

bool HeardText::next(std::optional<std::string>& piece, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, patience, [&] { return !pieces_.empty() || outcome_; })) return false;
  piece.reset();
  if (pieces_.empty()) return true;
  piece = std::move(pieces_.front());
  pieces_.pop_front();
  return true;
}

bool HeardText::ended() const {
  const std::lock_guard lock(mutex_);
  return outcome_.has_value();
}

TextWorker::TextWorker(std::unique_ptr<TextModel> model, const TextWorkerLimits& limits)
    : model_(std::move(model)), limits_(limits) {}

TextWorker::~TextWorker() = default;

bool TextWorker::submit(
    std::vector<TextOrder> orders, const std::string& client, const std::function<void(int64_t)>& begin) {
  const int64_t texts = sum_of<int64_t>(orders, &TextOrder::samples);
  const std::lock_guard lock(mutex_);
  const int64_t slots = model_->engine().slots() / model_->engine().beams();
  if (texts_ + texts > slots + limits_.waiting * TextWorkerLimits::kClients) return false;
  if (find_or(texts_of_, client, 0) + texts > slots + limits_.waiting) return false;
  texts_ += texts, texts_of_[client] += texts;
  for (TextOrder& order : orders) {
    if (begin) begin(next_order_);
    waiting_.push(client, std::make_shared<Order>(Order{std::move(order), next_order_++, client}));
  }
  wake_.notify_one();
  return true;
}

int64_t TextWorker::submit(TextOrder order) {
  int64_t id = -1;
  std::vector<TextOrder> orders;
  orders.push_back(std::move(order));
  submit(std::move(orders), "", [&](int64_t number) { id = number; });
  return id;
}

void TextWorker::cancel(int64_t order) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(order);
  wake_.notify_one();
}

TextWorker::Load TextWorker::load() const {
  const std::lock_guard lock(mutex_);
  const int64_t at_once = model_->engine().slots() / model_->engine().beams();
  return {at_once, std::min(texts_, at_once), std::max<int64_t>(0, texts_ - at_once), counts_};
}

void TextWorker::work(const std::stop_token& stop) {
  Engine& engine = model_->engine();
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, stop, [&] { return engine.busy() || !waiting_.empty() || !cancelled_.empty(); });
      if (stop.stop_requested() && waiting_.empty() && !engine.busy()) return;
    }
    try {
      cancel_orders();
      while (std::unique_ptr<Sample> sample = next_sample()) begin(std::move(sample));
      if (engine.busy()) engine.step(model_->pool());
      {
        const std::lock_guard lock(mutex_);
        counts_ = engine.counts();
      }
      model_->check_weights();
      collect();
    } catch (const Error& error) {  // current texts are lost; the model continues
      fail_all(error.what(), error.kind());
    } catch (const std::exception& error) {
      fail_all(error.what(), ErrorKind::kInternal);
    }
  }
}

void TextWorker::cancel_orders() {
  std::vector<int64_t> orders;
  const auto is_cancelled = [&](int64_t order) { return contains(orders, order); };
  std::vector<std::shared_ptr<Order>> removed;
  {
    const std::lock_guard lock(mutex_);
    if (cancelled_.empty()) return;
    orders.swap(cancelled_);
    waiting_.remove_if([&](const std::shared_ptr<Order>& order) {
      if (!is_cancelled(order->number)) return false;
      removed.push_back(order);
      return true;
    });
  }
  for (const std::shared_ptr<Order>& order : removed)
    for (int64_t i = order->begun; i < order->samples; ++i) {
      Sample sample{order, i, WrittenRow(order->job)};
      finish(sample, {.id = -1, .result = {}, .reason = EndReason::kCancelled});
      forget(sample);
    }
  for (const auto& [id, sample] : samples_)
    if (is_cancelled(sample->order->number)) model_->engine().cancel(id);
}

// The next text once the engine has slots for it; kAhead more are submitted to begin in the step that frees slots. The
// engine serves in order of submission. Without a client name ("") there is one client, and the engine gets everything.
std::unique_ptr<TextWorker::Sample> TextWorker::next_sample() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return nullptr;
  const std::shared_ptr<Order>& next = waiting_.front();
  const int64_t ahead = kAhead * slots_of(*next);
  if (!next->client.empty() && slots_taken() >= model_->engine().slots() + ahead) return nullptr;
  auto sample = std::make_unique<Sample>(Sample{next, next->begun++, WrittenRow(next->job)});
  waiting_.end_turn(next->begun == next->samples);
  return sample;
}

// An encoder-decoder gives each text the slots of a whole search.
int64_t TextWorker::slots_of(const TextOrder& order) const {
  return model_->answers() ? model_->engine().beams() : order.job.choice.beams;
}

int64_t TextWorker::slots_taken() const {
  return sum_of<int64_t>(samples_, [&](const auto& sample) { return slots_of(*sample.second->order); });
}

void TextWorker::begin(std::unique_ptr<Sample> sample) {
  const std::shared_ptr<const Order> order = sample->order;
  try {
    GenerateRequest request = model_->engine_request(order->job, static_cast<uint64_t>(sample->index));
    request.listener = [this, heard_by = sample.get()](const GeneratedToken& heard) {
      hear(*heard_by, heard);
      return !heard_by->row.stopped();
    };
    samples_[model_->engine().submit(std::move(request))] = std::move(sample);
  } catch (const std::exception& error) {
    const auto* known = dynamic_cast<const Error*>(&error);
    const ErrorKind kind = known ? known->kind() : ErrorKind::kInternal;
    order->events.finished(sample->index, {.error = error.what(), .kind = kind});
    forget(*sample);
  }
}

// Removes a finished text whose listener was called.
void TextWorker::forget(const Sample& sample) {
  const std::lock_guard lock(mutex_);
  --texts_;
  if (--texts_of_[sample.order->client] == 0) texts_of_.erase(sample.order->client);
}

void TextWorker::hear(Sample& sample, const GeneratedToken& heard) {
  if (heard.token < 0) return;  // a search only knows its text at the end
  const TextOrder& order = *sample.order;
  if (order.alternatives >= 0) {
    const double log_sum = log_sum_exp_of(heard.logits);
    const auto chance = [&](int32_t token) {
      return TokenChance{token, model_->piece_of(token), heard.logits[token] - log_sum};
    };
    WrittenToken token{chance(heard.token)};
    if (const int64_t count = std::min(order.alternatives, std::ssize(heard.logits)); count > 0) {
      std::vector<float> values(count);
      std::vector<int32_t> ids(values.size());
      top_k_rows(1, std::ssize(heard.logits), count, heard.logits.data(), values.data(), ids.data());
      for (const int32_t id : ids) token.likeliest.push_back(chance(id));
    }
    sample.tokens.push_back(std::move(token));
  }
  const std::string piece = sample.row.push(heard.token);
  if (order.events.token)
    order.events.token(sample.index, piece, order.alternatives >= 0 ? &sample.tokens.back() : nullptr);
}

void TextWorker::collect() {
  for (FinishedRequest& finished : model_->engine().take_finished()) {
    const std::unique_ptr<Sample> sample = std::move(samples_.extract(finished.id).mapped());
    finish(*sample, std::move(finished));
    forget(*sample);
  }
}

void TextWorker::finish(Sample& sample, FinishedRequest finished) {
  const TextEvents& events = sample.order->events;
  const std::string rest = sample.row.finish(finished.result);
  if (!rest.empty() && events.token) events.token(sample.index, rest, nullptr);
  const bool whole = finished.reason != EndReason::kCancelled;
  events.finished(sample.index, {written_text(finished.result, sample.row, whole), std::move(sample.tokens)});
}

void TextWorker::fail_all(const std::string& why, ErrorKind kind) {
  for (const auto& [id, sample] : samples_) model_->engine().cancel(id);
  model_->engine().take_finished();
  for (const auto& [id, sample] : std::exchange(samples_, {})) {
    sample->order->events.finished(sample->index, {.error = why, .kind = kind});
    forget(*sample);
  }
}

void RowModel::check(const std::vector<int32_t>& tokens) const {
  for (const int32_t token : tokens)
    if (token >= vocab_size) fail_user("there is no token ", token, "; the model has ", vocab_size);
  if (std::ssize(tokens) > max_tokens)
    fail_user("a text has ", tokens.size(), " tokens, and the model takes ", max_tokens);
}

std::unique_ptr<RowModel> open_embedder(const std::string& folder, const ModelLoad& options) {
  return std::make_unique<Embedder>(folder, options);
}

std::unique_ptr<RowModel> open_row_classifier(const std::string& folder, const ModelLoad& options) {
  return std::make_unique<RowClassifier>(folder, options);
}

bool RowWorker::submit(std::vector<RowText> texts, Finished finished, const std::string& client) {
  const auto count = std::ssize(texts);
  if (count == 0) return finished({}), true;
  const auto order = std::make_shared<Order>(Order{std::move(texts), std::move(finished), client});
  order->outcome.rows.resize(order->texts.size() * model_->width);
  order->by_length = numbers_below<size_t>(order->texts.size());
  std::ranges::stable_sort(order->by_length, {}, [&](size_t text) { return order->texts[text].tokens.size(); });
  const std::lock_guard lock(mutex_);
  int64_t& of_client = texts_of_[client];
  if (of_client > 0 && of_client + count > limit_) return false;
  texts_ += count, of_client += count;
  orders_.push(client, order);
  wake_.notify_one();
  return true;
}

int64_t RowWorker::waiting() const {
  const std::lock_guard lock(mutex_);
  return texts_;
}

void RowWorker::work(const std::stop_token& stop) {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (!wake_.wait(lock, stop, [&] { return !orders_.empty(); })) return;
    }
    const Turn turn = next_turn();
    compute(turn);
    for (const auto& [order, text] : turn) {
      if (++order->done < order->texts.size()) continue;
      order->finished(std::move(order->outcome));
      const std::lock_guard lock(mutex_);
      texts_ -= std::ssize(order->texts);
      if ((texts_of_[order->client] -= std::ssize(order->texts)) == 0) texts_of_.erase(order->client);
    }
  }
}

RowWorker::Turn RowWorker::next_turn() {
  Turn turn;
  const std::lock_guard lock(mutex_);
  while (!orders_.empty() && (turn.size() < kTogether || orders_.front()->client.empty())) {
    const std::shared_ptr<Order>& order = orders_.front();
    turn.emplace_back(order, order->by_length[order->begun++]);
    orders_.end_turn(order->begun == order->texts.size());
  }
  return turn;
}

// Batches texts of one padded length, so that a text's padding only depends on itself.
void RowWorker::compute(const Turn& turn) try {
  std::map<std::pair<int64_t, bool>, Turn> by_length;
  for (const auto& [order, text] : turn) {
    const RowText& row = order->texts[text];
    by_length[{model_->padded_length(std::ssize(row.tokens)), row.segments.empty()}].emplace_back(order, text);
  }
  const size_t width = model_->width;
  for (const auto& [length, alike] : by_length) {
    try {
      const std::vector<float> rows =
          model_->compute(mapped(alike, [](const auto& item) { return item.first->texts[item.second]; }));
      for (size_t k = 0; k < alike.size(); ++k)
        std::copy_n(rows.begin() + k * width, width, alike[k].first->outcome.rows.begin() + (alike[k].second * width));
    } catch (const std::exception& error) {
      for (const auto& [order, text] : alike) order->outcome.error = error.what();
    }
  }
} catch (const std::exception& error) {
  for (const auto& [order, text] : turn) order->outcome.error = error.what();
}
}  // namespace linnet
