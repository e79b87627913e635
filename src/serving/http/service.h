// What the server answers: finds the model that a request names, gives it the work and writes the answer when it comes.
// It knows nothing of sockets.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "serving/loaded/loaded_model.h"
#include "serving/http/api_keys.h"
#include "serving/http/api_request.h"
#include "serving/http/http.h"
#include "serving/http/metrics.h"
#include "serving/http/text_answer.h"

namespace linnet {

struct ServiceOptions {
  std::vector<std::string> models;  // FOLDER, or NAME=FOLDER; a folder's own name is the last part of its path
  LoadedModelOptions resident;      // its adapters are for a service of one model
  std::vector<std::string> drafts;  // draft models: NAME=FOLDER, of the model NAME, or FOLDER, of the only model
  int64_t max_tokens = 0;           // that a request may ask for; 0: as many as a text has room for
  std::string api_key_file;         // "": no key is needed
  bool log_requests = true;
  bool log_text = false;  // the bodies of requests, too
};

struct ServedModel {
  std::string name;
  int64_t created = 0;  // when it was loaded, in seconds since 1970
  std::unique_ptr<LoadedModel> resident;
};

class Service : public HttpHandler {
 public:
  // Loads the models. User error for one that cannot be loaded, and for two of one name.
  explicit Service(const ServiceOptions& options);
  // Waits for what the models still compute.
  ~Service() override;

  std::optional<HttpResponse> refuse(const HttpRequest& head) override;
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override;
  HttpResponse error(int status, const std::string& message) override;
  void finished(const HttpRequest& request, const std::string& id, int status, double seconds) override;

  // Loads models and keys anew in a thread of its own; requests are answered by what there was until then. What cannot
  // be loaded stays as it was.
  void reload();
  // For /metrics; called in the server's thread.
  void count_connections(std::function<int64_t()> count) { connections_ = std::move(count); }
  std::vector<std::string> names() const;

 private:
  using Exchange = std::shared_ptr<HttpExchange>;
  using Model = std::shared_ptr<ServedModel>;

  Model load(const std::string& description) const;
  void check_drafts() const;
  void check_adapters() const;
  std::string draft_of(const std::string& model) const;
  void reload_all();
  Model find(const std::string& name, std::initializer_list<ModelKind> kinds) const;
  void route(HttpRequest& request, const Exchange& exchange);
  void write_text(TextCall call, const Exchange& exchange);
  void translate(InputCall call, const Exchange& exchange);
  void embed(InputCall call, bool openai, const Exchange& exchange);
  void classify(InputCall call, const Exchange& exchange);
  // Gives texts to the model: all of them, or an error.
  void submit(const Model& model, std::vector<TextOrder> orders, const std::shared_ptr<TextAnswer>& answer);
  TextJob prepare(const ServedModel& model, const TextRequest& request, bool translation = false) const;
  void compute_rows(const Model& model, InputCall& call, const Exchange& exchange,
                    const std::function<std::string(std::vector<float>&& rows, int64_t tokens)>& format);
  TextAnswer::Sink sink(const std::string& model);
  static ModelDescription describe(const ServedModel& model);
  std::string metrics_text() const;
  std::string models_text() const;

  const ServiceOptions options_;
  Metrics metrics_;
  std::function<int64_t()> connections_;

  mutable std::mutex mutex_;  // of what follows
  std::vector<Model> models_;
  ApiKeys keys_;
  std::map<std::string, std::string> notes_;  // by request: what its line in the log adds

  std::mutex reload_mutex_;
  std::thread reload_thread_;
  std::atomic<bool> reloading_{false}, reload_again_{false};
};

}  // namespace linnet
