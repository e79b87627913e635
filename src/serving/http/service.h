// Answers requests: finds the named model, submits the work and sends the result. Independent of sockets.
#pragma once
#include <array>
#include "serving/http/api.h"
#include "serving/http/http.h"
#include "serving/loaded/loaded_model.h"

namespace linnet {
// Prometheus counters and histograms with labels. Safe from any thread.
// https://prometheus.io/docs/instrumenting/exposition_formats/
class ServiceMetrics {
 public:
  using Labels = std::map<std::string, std::string>;

  void add(const std::string& counter, const Labels& labels, double value = 1);
  void observe(const std::string& histogram, const Labels& labels, double seconds);
  std::string text() const;

 private:
  static constexpr std::array<double, 14> kBounds = {
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30};  // seconds
  struct Histogram {
    std::array<uint64_t, kBounds.size() + 1> counts = {};
    double sum = 0;
  };

  mutable std::mutex mutex_;
  std::map<std::string, std::map<Labels, double>> counters_;
  std::map<std::string, std::map<Labels, Histogram>> histograms_;
};

// API keys, required as "Authorization: Bearer KEY".
class ApiKeys {
 public:
  ApiKeys() = default;  // no key required
  // One key a line; skips empty lines and # comments. User error for a file without keys; warns of one that
  // others may read.
  static ApiKeys load(const std::string& path);

  bool needed() const { return !keys_.empty(); }
  // Whether the Authorization header has one of the keys. The time does not depend on how much of a key is right.
  bool accept(std::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
};

// KEY of "Bearer KEY"; "" of anything else, which is never a key.
std::string_view key_of(std::string_view authorization);

bool equal_in_constant_time(std::string_view a, std::string_view b);  // the time depends on the sizes alone

// The answer to a text request, built from events of the model's thread: whole at the end, or as a stream.
class TextAnswer : public std::enable_shared_from_this<TextAnswer> {
 public:
  struct Form {
    AnswerHead head = {};
    size_t choices = 1;
    bool stream = false, include_usage = false;
    bool translates = false;                  // a whole answer is a list of translations, else OpenAI's
    std::vector<std::string> functions = {};  // functions that a text may call
  };

  TextAnswer(std::shared_ptr<HttpExchange> exchange, Form form, ServiceMetrics& metrics)
      : exchange_(std::move(exchange)), form_(std::move(form)), metrics_(metrics), choices_(form_.choices),
        progress_(form_.choices) {}

  const std::shared_ptr<HttpExchange>& exchange() const { return exchange_; }

  // Events for an order whose samples are the choices from `first_choice`. Their texts begin with `echo`.
  TextEvents events(int64_t first_choice, const TextOrder& order, const std::string& echo);
  // Call before any order is submitted. Choices without a text stay empty; without any text the answer is finished.
  void expect(int64_t texts);
  // Ends the texts early: the client left, or they took too long.
  void abort(HttpAbort why);

 private:
  void begin_stream();
  void write_piece(int64_t choice, const std::string& piece, const WrittenToken* token);
  void hear(int64_t choice, const std::string& piece, const WrittenToken* token);
  void finish(int64_t choice, TextOutcome&& outcome);
  void finish_all();

  const std::shared_ptr<HttpExchange> exchange_;
  const Form form_;
  ServiceMetrics& metrics_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();

  struct Progress {
    std::string echo;
    std::string pending;  // held-back text that may become a call, for streams with functions
    bool begun = false;   // the first event was written
  };
  std::mutex mutex_;
  std::vector<AnswerChoice> choices_;
  std::vector<Progress> progress_;  // of each choice
  TokenUsage usage_;
  int64_t left_ = 0;
  bool heard_ = false, streaming_ = false, timed_out_ = false;
  std::string error_;
  bool bad_request_ = false;
};

// Threads that read requests and submit them to models, as the server's thread must not wait. Clients take turns.
class RequestThreads {
 public:
  // Its destructor finishes queued work.
  explicit RequestThreads(int threads) : threads_(threads, [this](const std::stop_token& stop) { work(stop); }) {}

  void run(const std::string& client, std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push(client, std::move(job));
    }
    wake_.notify_one();
  }

 private:
  void work(const std::stop_token& stop) {
    for (;;) {
      std::unique_lock lock(mutex_);
      if (!wake_.wait(lock, stop, [&] { return !jobs_.empty(); })) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.end_turn(true);
      lock.unlock();
      job();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any wake_;
  FairQueue<std::function<void()>> jobs_;
  StoppingThreads threads_;
};

struct ServiceOptions {
  std::vector<std::string> models;  // FOLDER, or NAME=FOLDER; by default the last part of the path is the name
  LoadedModelOptions resident;      // adapters only for a service of one model
  std::vector<std::string> drafts;  // draft models: NAME=FOLDER for the model NAME, or FOLDER for the only model
  int64_t max_tokens = 0;           // most of a request; 0: as many as a text has room for
  std::string api_key_file;         // "": no key required
  bool log_requests = true;
  bool log_text = false;  // request bodies too
};

struct ServedModel {
  std::string name;
  int64_t created = 0;  // loading time, seconds since 1970
  std::unique_ptr<LoadedModel> resident;
  std::optional<RequestThreads> span_thread = {};  // computes spans, for which the threads of requests must not wait
};

class Service : public HttpHandler {
 public:
  // Loads the models. User error if one cannot be loaded, or for two of one name.
  explicit Service(const ServiceOptions& options);
  ~Service() override;  // waits for running computations

  std::optional<HttpResponse> refuse(const HttpRequest& head) override;
  bool is_urgent(const HttpRequest& head) override { return head.path == "/health"; }
  // Reads bodies and prepares prompts in its own threads.
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override;
  HttpResponse error(int status, const std::string& message) override;
  void finished(
      const HttpRequest& request, const std::string& id, int status, double seconds, const std::string& note) override;

  // Reloads models and keys in its own thread while the old ones answer. What cannot be loaded stays unchanged.
  void reload();
  // For /metrics; called in the server's thread.
  void count_connections(std::function<int64_t()> count) { connections_ = std::move(count); }
  // The only accepted host names (lower case, no port), against DNS rebinding. Call before the first request.
  void allow_hosts(std::vector<std::string> names) { allowed_hosts_ = std::move(names); }
  std::vector<std::string> names() const;

 private:
  using Exchange = std::shared_ptr<HttpExchange>;
  using Model = std::shared_ptr<ServedModel>;

  // A request, and to whom the answer goes.
  struct Call {
    Service& service;
    HttpRequest& request;
    const Exchange& to;
    const std::string& client;  // takes turns with others; see TextWorker
    InputCall inputs() const { return parse_inputs_call(request.body, request.path); }
  };
  struct Route;                                           // a path and what answers it
  static std::span<const Route> routes();                 // the last row is /v1/models/NAME
  static const Route* find_route(std::string_view path);  // null: there is none
  Model load(const std::string& description);
  void reload_all();
  Model find(const std::string& name, std::initializer_list<ModelKind> kinds) const;
  std::optional<ApiError> foreign(const HttpRequest& head) const;
  std::string client_of(const HttpRequest& request) const;
  void answer(HttpRequest& request, const Exchange& exchange);
  static void answer_errors(const Exchange& exchange, FunctionRef<void()> call);  // that `call` throws
  void write_text(TextCall call, const Call& from);
  void translate(InputCall call, const Call& from);
  void embed(InputCall call, bool openai, const Call& from);
  void classify(InputCall call, const Call& from);
  void rerank(InputCall call, const Call& from);
  void find_spans(InputCall call, const Call& from);
  // Submits all texts to the model, or none on an error.
  void submit(const Model& model, std::vector<TextOrder> orders, const std::shared_ptr<TextAnswer>& answer,
      const std::string& client);
  TextJob prepare(const ServedModel& model, const TextRequest& request, bool translation = false) const;
  void compute_rows(const Model& model, InputCall& call, const Call& from,
      const std::function<std::string(std::vector<float>&& rows, int64_t tokens)>& format);
  static ModelDescription describe(const ServedModel& model);
  std::string metrics_text() const;
  std::string models_text() const;

  const ServiceOptions options_;
  ServiceMetrics metrics_;
  std::function<int64_t()> connections_;

  std::vector<std::string> allowed_hosts_;  // empty: any

  // Unused models. Their last user must not wait for their end, so the loading thread destroys them.
  std::mutex unused_mutex_;
  std::condition_variable unused_changed_;
  std::vector<std::unique_ptr<ServedModel>> unused_;

  mutable std::mutex mutex_;  // guards all below
  std::vector<Model> models_;
  ApiKeys keys_;

  std::mutex reload_mutex_;
  std::thread reload_thread_;
  std::atomic<bool> reloading_{false}, reload_again_{false};

  RequestThreads request_threads_{2};  // last, as they use all above
};
}  // namespace linnet
