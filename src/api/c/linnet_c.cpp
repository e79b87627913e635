// Implements include/linnet/linnet_c.h over serving/loaded/loaded_model.h. guarded() turns exceptions into codes.
#include <linnet/linnet_c.h>
#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <new>
#include "base/fail.h"
#include "base/files.h"
#include "base/process.h"
#include "data/text/unicode/utf8.h"
#include "formats/packed_model.h"
#include "models/families/gguf.h"
#include "serving/loaded/loaded_model.h"

struct linnet_model {
  std::unique_ptr<linnet::LoadedModel> resident;
  const linnet::ForkGuard guard = {};
};

namespace linnet {
namespace {
// Thread-local like errno, as another thread's call may fail before linnet_last_error() is called.
thread_local std::string last_error;

struct CallError {
  linnet_status status;
  std::string message;
};

template <class... Parts> [[noreturn]] void fail(linnet_status status, const Parts&... message) {
  throw CallError{status, text_of_parts(message...)};
}

linnet_status status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUser:
    case ErrorKind::kShape: return LINNET_USER_ERROR;
    case ErrorKind::kNumeric: return LINNET_NUMERIC_ERROR;
    case ErrorKind::kSystem: return LINNET_SYSTEM_ERROR;
    case ErrorKind::kInternal: break;
  }
  return LINNET_INTERNAL_ERROR;
}

linnet_status remember(linnet_status status, const char* message) noexcept {
  try {
    last_error = message;
  } catch (...) {
    last_error.clear();
  }
  return status;
}

template <class Action> linnet_status guarded(const Action& action) noexcept {
  const DefaultFloats floats;
  try {
    last_error.clear();
    action();
    return LINNET_OK;
  } catch (const CallError& error) {
    return remember(error.status, error.message.c_str());
  } catch (const Error& error) {
    return remember(status_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    return remember(LINNET_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    return remember(LINNET_INTERNAL_ERROR, error.what());
  } catch (...) {
    return remember(LINNET_INTERNAL_ERROR, "an unknown exception");
  }
}

void need(const void* pointer, const char* name) {
  if (!pointer) fail(LINNET_BAD_ARGUMENT, name, " is NULL");
}

LoadedModel& loaded(const linnet_model* model) {
  need(model, "model");
  if (model->guard.is_child()) fail(LINNET_USER_ERROR, "the model was opened by another process: open it after fork()");
  return *model->resident;
}

std::string text_of(const char* text, const char* name) {
  need(text, name);
  if (const size_t at = invalid_utf8_at(text); at != std::string::npos)
    fail(LINNET_USER_ERROR, name, ": byte ", at + 1, " is not valid UTF-8");
  return text;
}

// Callers compiled with an older header pass shorter options; missing ones have their defaults.
template <class Options> Options options_of(const Options* given, void (*init)(Options*), const char* name) {
  Options options;
  init(&options);
  if (!given) return options;
  if (given->size < sizeof(size_t) || given->size > sizeof(Options))
    fail(LINNET_BAD_ARGUMENT, name, "->size is ", given->size, "; set it with the function that ends in _init");
  std::memcpy(&options, given, given->size);
  options.size = sizeof(Options);
  return options;
}

char* copy_of(const std::string& text) {
  char* copy = new char[text.size() + 1];
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

RowWorker& rows_of(const linnet_model* model, ModelKind kind, const char* what) {
  const LoadedModel& opened = loaded(model);
  if (opened.kind != kind)
    fail(LINNET_BAD_ARGUMENT, "'", opened.folder, "' ", what, "; its kind is ", enum_name(opened.kind));
  return *opened.rows;
}

TextWorker& writer_of(const linnet_model* model) {
  const LoadedModel& opened = loaded(model);
  if (!opened.text)
    fail(LINNET_BAD_ARGUMENT, "'", opened.folder, "' writes no texts; its kind is ", enum_name(opened.kind));
  return *opened.text;
}

void compute_rows(RowWorker& worker, const char* const* texts, size_t count, float* rows) {
  if (count == 0) return;
  need(texts, "texts"), need(rows, "rows");
  std::vector<RowText> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(worker.model().encode(text_of(texts[i], "a text")));
  const auto promise = std::make_shared<std::promise<RowOutcome>>();
  std::future<RowOutcome> future = promise->get_future();
  const auto finished = [promise](RowOutcome&& found) { promise->set_value(std::move(found)); };
  if (!worker.submit(std::move(tokens), finished)) fail(LINNET_BUSY, "too many texts wait for the model");
  const RowOutcome outcome = future.get();
  if (!outcome.error.empty()) fail(LINNET_USER_ERROR, outcome.error);
  std::ranges::copy(outcome.rows, rows);
}

std::string write(TextWorker& worker, TextJob job, linnet_text_callback callback, void* user) {
  const auto text = std::make_shared<HeardText>();
  const int64_t order = worker.submit({.job = std::move(job), .events = text->events()});
  if (order < 0) fail(LINNET_BUSY, "too many texts wait for the model");
  std::string heard;
  bool wanted = true;
  for (std::optional<std::string> piece = "";;) {
    while (!text->next(piece, std::chrono::hours(1))) continue;
    if (!piece) break;
    if (!wanted) continue;
    heard += *piece;
    wanted = !callback || callback(user, piece->c_str(), piece->size()) == 0;
    if (!wanted) worker.cancel(order);
  }
  const TextOutcome& outcome = text->outcome();
  if (!outcome.error.empty()) fail(status_of(outcome.kind), outcome.error);
  return wanted ? outcome.text.text : heard;
}

TextRequest request_of(const linnet_generate_options& given, const char* prompt) {
  TextRequest request{.where = "the prompt"};
  const std::string text = text_of(prompt, "prompt");
  given.is_chat ? request.messages = ask(text, "") : request.prompt = text;
  TextGenerationOptions& options = request.options;
  if (given.max_tokens > 0) options.max_tokens = given.max_tokens;
  if (given.temperature >= 0) options.temperature = given.temperature;
  if (given.top_p > 0) options.top_p = given.top_p;
  if (given.top_k >= 0) options.top_k = given.top_k;
  if (given.repetition_penalty > 0) options.repetition_penalty = given.repetition_penalty;
  if (given.beams > 0) options.beams = given.beams;
  if (given.stop) options.stop.push_back(text_of(given.stop, "stop"));
  options.ignore_end = given.ignore_end != 0, options.seed = given.seed;
  return request;
}

// Insufficient room for a job is a user error, not an internal one.
TextJob checked(const TextWorker& worker, TextJob job) {
  if (job.choice.beams > worker.model().beams())
    fail(LINNET_USER_ERROR, "a search of ", job.choice.beams, " beams needs linnet_model_options.beams to be as many");
  job.choice.max_tokens = std::min(job.choice.max_tokens, worker.model().room());
  return job;
}
}  // namespace
}  // namespace linnet

using namespace linnet;

extern "C" {

const char* linnet_version(void) { return LINNET_VERSION; }
int linnet_c_version(void) { return LINNET_C_VERSION; }
const char* linnet_last_error(void) { return last_error.c_str(); }

void linnet_model_options_init(linnet_model_options* options) {
  if (options) *options = {sizeof(linnet_model_options), 0, 8, 0, 0, 1024, nullptr};
}

void linnet_generate_options_init(linnet_generate_options* options) {
  if (options) *options = {sizeof(linnet_generate_options), 0, -1, 0, -1, 0, 0, 0, 1, nullptr, 0};
}

linnet_status linnet_model_open(const char* path, const linnet_model_options* given, linnet_model** model) {
  if (model) *model = nullptr;
  return guarded([&] {
    need(path, "path"), need(model, "model");
    const linnet_model_options options = options_of(given, linnet_model_options_init, "options");
    if (options.threads < 0 || options.threads > 512 || options.slots < 1 || options.slots > 1024 ||
        options.beams < 0 || options.beams > 1024 || options.max_length < 0 || options.waiting < 0)
      fail(LINNET_BAD_ARGUMENT, "a member of options is out of range");
    use_packed_models();
    use_gguf_models();
    auto opened = std::make_unique<linnet_model>();
    // A packed file says itself; a search for scales among its weights would read all of them.
    const char* const as_it_is = is_packed(path) ? "none" : "";
    LoadedModelOptions loading{
        {.threads = options.threads, .quantize = options.quantize ? options.quantize : as_it_is}};
    loading.text = {.slots = options.slots, .beams = options.beams, .max_length = options.max_length};
    loading.limits.waiting = options.waiting, loading.check = WeightCheck::kLater;
    opened->resident = open_loaded_model(path, loading);
    *model = opened.release();
  });
}

void linnet_model_close(linnet_model* model) {
  if (model && model->guard.is_child()) (void)model->resident.release();  // its threads cannot be waited for
  delete model;
}

linnet_model_kind linnet_model_get_kind(const linnet_model* model) {
  return model ? static_cast<linnet_model_kind>(model->resident->kind) : LINNET_LANGUAGE;
}

size_t linnet_model_width(const linnet_model* model) {
  return model && model->resident->rows ? model->resident->rows->model().width : 0;
}

const char* linnet_model_class_name(const linnet_model* model, size_t index) {
  if (!model || !model->resident->rows) return nullptr;
  const std::vector<std::string>& classes = model->resident->rows->model().classes;
  return index < classes.size() ? classes[index].c_str() : nullptr;
}

linnet_status linnet_encode(
    const linnet_model* model, const char* text, int32_t* tokens, size_t capacity, size_t* count) {
  return guarded([&] {
    need(count, "count");
    const TextRequest request{.prompt = text_of(text, "text"), .where = "the text"};
    const auto& rows = loaded(model).rows;
    const std::vector<int32_t> found =
        rows ? rows->model().encode(request.prompt).tokens : writer_of(model).model().prepare(request).prompt;
    *count = found.size();
    if (found.size() > capacity)
      fail(LINNET_BUFFER_TOO_SMALL, "the text has ", found.size(), " tokens, and there are ", capacity, " places");
    if (!found.empty()) need(tokens, "tokens");
    std::ranges::copy(found, tokens);
  });
}

linnet_status linnet_embed(linnet_model* model, const char* const* texts, size_t count, float* rows) {
  return guarded([&] { compute_rows(rows_of(model, ModelKind::kEmbedder, "embeds no texts"), texts, count, rows); });
}

linnet_status linnet_classify(linnet_model* model, const char* const* texts, size_t count, float* rows) {
  return guarded(
      [&] { compute_rows(rows_of(model, ModelKind::kClassifier, "classifies no texts"), texts, count, rows); });
}

linnet_status linnet_generate(linnet_model* model, const char* prompt, const linnet_generate_options* given,
    linnet_text_callback callback, void* user, char** text) {
  if (text) *text = nullptr;
  return guarded([&] {
    TextWorker& worker = writer_of(model);
    const auto options = options_of(given, linnet_generate_options_init, "options");
    TextJob job = checked(worker, worker.model().prepare(request_of(options, prompt)));
    const std::string written = write(worker, std::move(job), callback, user);
    if (text) *text = copy_of(written);
  });
}

linnet_status linnet_translate(linnet_model* model, const char* text, char** translation) {
  if (translation) *translation = nullptr;
  return guarded([&] {
    TextWorker& worker = writer_of(model);
    need(translation, "translation");
    if (!worker.model().answers())
      fail(LINNET_BAD_ARGUMENT, "'", model->resident->folder, "' translates no texts; its kind is language");
    const TextRequest request{.prompt = text_of(text, "text"), .where = "the text"};
    const bool blank = request.prompt.find_first_not_of(" \t\r\n") == std::string::npos;
    *translation = copy_of(
        blank ? "" : write(worker, checked(worker, worker.model().prepare_translation(request)), nullptr, nullptr));
  });
}

void linnet_string_free(char* text) { delete[] text; }

}  // extern "C"
