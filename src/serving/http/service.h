// Answers requests: finds the named model, submits the work and sends the result. Independent of sockets.
#pragma once
#include <condition_variable>
#include <stop_token>
#include <thread>
#include "base/stopping_threads.h"
#include "serving/http/api_keys.h"
#include "serving/http/api_request.h"
#include "serving/http/http.h"
#include "serving/http/metrics.h"
#include "serving/http/text_answer.h"
#include "serving/loaded/fair_queue.h"
#include "serving/loaded/loaded_model.h"

namespace linnet {
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
};

class Service : public HttpHandler {
 public:
  // Loads the models. User error if one cannot be loaded, or for two of one name.
  explicit Service(const ServiceOptions& options);
  // Waits for running computations.
  ~Service() override;

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

  Model load(const std::string& description);
  void reload_all();
  Model find(const std::string& name, std::initializer_list<ModelKind> kinds) const;
  std::optional<ApiError> foreign(const HttpRequest& head) const;
  std::string client_of(const HttpRequest& request) const;
  void answer(HttpRequest& request, const Exchange& exchange);
  void route(HttpRequest& request, const Exchange& exchange);
  // `client` takes turns with others; see TextWorker.
  void write_text(TextCall call, const Exchange& exchange, const std::string& client);
  void translate(InputCall call, const Exchange& exchange, const std::string& client);
  void embed(InputCall call, bool openai, const Exchange& exchange, const std::string& client);
  void classify(InputCall call, const Exchange& exchange, const std::string& client);
  void rerank(InputCall call, const Exchange& exchange, const std::string& client);
  void find_spans(InputCall call, const Exchange& exchange);
  // Submits all texts to the model, or none on an error.
  void submit(const Model& model, std::vector<TextOrder> orders, const std::shared_ptr<TextAnswer>& answer,
      const std::string& client);
  TextJob prepare(const ServedModel& model, const TextRequest& request, bool translation = false) const;
  void compute_rows(const Model& model, InputCall& call, const Exchange& exchange, const std::string& client,
      const std::function<std::string(std::vector<float>&& rows, int64_t tokens)>& format);
  TextAnswer::Sink sink(const std::string& model);
  static ModelDescription describe(const ServedModel& model);
  std::string metrics_text() const;
  std::string models_text() const;

  const ServiceOptions options_;
  Metrics metrics_;
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
