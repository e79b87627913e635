#include "serving/http/service.h"
#include <fmt/format.h>
#include <sys/stat.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <filesystem>
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
constexpr size_t kMostLoggedText = 2000;  // bytes of a body

constexpr std::string_view kModelPrefix = "/v1/models/";

// The host in "localhost:8080" or "[::1]:8080", in lower case.
std::string host_name(std::string_view host) {
  return lower_ascii(host.substr(0, host.starts_with('[') ? host.find(']') + 1 : host.find(':')));
}

// Parses "NAME=FOLDER" or "FOLDER". A name may have "/" if FOLDER exists; otherwise all of it is a path that has "=".
std::pair<std::string, std::string> split_model(const std::string& description) {
  const size_t at = description.find('=');
  if (at != 0 && at != description.npos && !file_exists(description) &&
      (description.find('/') > at || file_exists(description.substr(at + 1))))
    return {description.substr(0, at), description.substr(at + 1)};
  // The last part, also of "runs/gpt/" and "..".
  const std::filesystem::path whole = std::filesystem::absolute(description + "/.").lexically_normal();
  std::string name = whole.parent_path().filename().string();
  if (constexpr std::string_view kEnding = kPackedEnding; name.size() > kEnding.size() && name.ends_with(kEnding))
    name.resize(name.size() - kEnding.size());
  return {name, description};
}

// A part of a URL without its escapes: "a%2Fb" is "a/b".
std::string unescaped(std::string part) {
  for (size_t at = 0; (at = part.find('%', at)) != std::string::npos && part.size() - at > 2; ++at) {
    unsigned byte = 0;
    if (const char* digits = &part[at + 1];
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2 && byte != 0)
      part.replace(at, 3, 1, static_cast<char>(byte));
  }
  return part;
}

std::string escaped(std::string value) {
  for (const auto& [from, to] : {std::pair{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}}) replace_all(value, from, to);
  return value;
}

std::string number(double value) {
  const bool is_whole = value == std::floor(value) && std::abs(value) < 1e15;
  return is_whole ? fmt::format("{:.0f}", value) : fmt::format("{:.9g}", value);
}

std::string metric_line(const std::string& name, const ServiceMetrics::Labels& labels, double value) {
  std::string line = name;
  for (const auto& [key, text] : labels)
    line += (&text == &labels.begin()->second ? "{" : ",") + key + "=\"" + escaped(text) + "\"";
  return line + (labels.empty() ? " " : "} ") + number(value) + "\n";
}
}  // namespace

Service::Service(const ServiceOptions& options) : options_(options) {
  const auto names = mapped(options_.models, [](const std::string& model) { return split_model(model).first; });
  for (const std::string& draft : options_.drafts) {
    const auto [name, folder] = split_model(draft);
    if (folder == draft && names.size() > 1)
      fail_user("there are several models; --draft NAME=", draft, " says whose draft model it is");
    if (folder != draft && !contains(names, name)) fail_user("--draft ", draft, ": there is no model \"", name, "\"");
  }
  if (!options_.resident.adapters.empty() && options_.models.size() > 1)
    fail_user("there are several models; --adapter is for a server of one, whose requests choose by \"adapter\"");
  if (!options.api_key_file.empty()) keys_ = ApiKeys::load(options.api_key_file);
  for (size_t i = 0; i < names.size(); ++i) {
    if (contains(std::span(names).first(i), names[i]))
      fail_user("two models are called \"", names[i], "\"; NAME=FOLDER gives one of them another name");
    models_.push_back(load(options.models[i]));
  }
}

Service::~Service() {
  if (reload_thread_.joinable()) reload_thread_.join();
}

Service::Model Service::load(const std::string& description) {
  auto model = std::make_unique<ServedModel>();
  const auto [name, folder] = split_model(description);
  model->name = name;
  LoadedModelOptions resident = options_.resident;
  for (const std::string& draft : options_.drafts)
    if (const auto [of, its_folder] = split_model(draft); its_folder == draft || of == name) {
      resident.draft = its_folder;
      break;
    }
  model->resident = open_loaded_model(folder, resident);
  if (model->resident->spans) model->span_thread.emplace(1);
  model->created = std::time(nullptr);
  return {model.release(), [this](ServedModel* unused) {
            const std::lock_guard lock(unused_mutex_);
            unused_.emplace_back(unused);
            unused_changed_.notify_one();
          }};
}

std::vector<std::string> Service::names() const {
  const std::lock_guard lock(mutex_);
  return mapped(
      models_, [&](const Model& model) { return model->name + " (" + enum_name(model->resident->kind) + ")"; });
}

void Service::reload() {
  const std::lock_guard lock(reload_mutex_);
  reload_again_ = true;
  if (reloading_.exchange(true)) return;
  if (reload_thread_.joinable()) reload_thread_.join();
  reload_thread_ = std::thread([this] {
    for (;;) {
      while (reload_again_.exchange(false)) reload_all();
      const std::lock_guard inner(reload_mutex_);
      if (reload_again_) continue;
      reloading_ = false;
      return;
    }
  });
}

void Service::reload_all() {
  const auto attempt = [](const std::string& what, const auto& action) {
    try {
      action();
      log_info("loaded " + what + " again");
    } catch (const std::exception& error) {
      log_warning(what + " could not be loaded again; what was loaded stays as it was: " + error.what());
    }
  };
  if (!options_.api_key_file.empty())
    attempt("the keys", [&] {
      ApiKeys keys = ApiKeys::load(options_.api_key_file);
      const std::lock_guard lock(mutex_);
      keys_ = std::move(keys);
    });
  for (size_t i = 0; i < options_.models.size(); ++i)
    attempt("'" + options_.models[i] + "'", [&] {
      Model model = load(options_.models[i]);
      {
        const std::lock_guard lock(mutex_);
        models_[i].swap(model);
      }
      model.reset();
      std::vector<std::unique_ptr<ServedModel>> old;  // finish their requests, then end
      std::unique_lock lock(unused_mutex_);
      unused_changed_.wait(lock, [&] { return !unused_.empty(); });
      old.swap(unused_);
      lock.unlock();
    });
  metrics_.add("linnet_reloads_total", {});
}

// Refuses requests by pages of other sites: browsers say where a page is from.
std::optional<ApiError> Service::foreign(const HttpRequest& head) const {
  const std::string_view host = head.header("host"), origin = head.header("origin");
  for (const std::string_view name : {host, std::string_view(head.host)})
    if (!allowed_hosts_.empty() && !name.empty() && !contains(allowed_hosts_, host_name(name)))
      return ApiError(403, "this server is not called \"" + host_name(name).substr(0, 200) +
                               "\"; linnet serve --allowed-host NAME adds a name");
  const bool is_other =
      !origin.empty() && origin != "http://" + std::string(host) && origin != "https://" + std::string(host);
  if (is_other || head.header("sec-fetch-site") == "cross-site")
    return ApiError(403, "a page of another site may not use this server");
  return {};
}

struct Service::Route {
  const char *path, *method;
  bool needs_key;
  void (*answer)(const Call& call);
  std::optional<ModelKind> asks = {};  // the kind of model that answers this path
};

std::span<const Service::Route> Service::routes() {
  using C = const Call&;
  static constexpr Route kRoutes[] = {
      {"/", "GET", false, [](C c) { c.to->respond(try_page()); }},
      {"/health", "GET", false, [](C c) { c.to->respond({.body = "{\"status\":\"ok\"}\n"}); }},
      {"/metrics", "GET", true,
          [](C c) {
            c.to->respond({.type = "text/plain; version=0.0.4; charset=utf-8", .body = c.service.metrics_text()});
          }},
      {"/v1/models", "GET", true, [](C c) { c.to->respond({.body = c.service.models_text() + "\n"}); }},
      {"/v1/completions", "POST", true, [](C c) { c.service.write_text(parse_completion_call(c.request.body), c); },
          ModelKind::kLanguage},
      {"/v1/chat/completions", "POST", true, [](C c) { c.service.write_text(parse_chat_call(c.request.body), c); }},
      {"/v1/embeddings", "POST", true, [](C c) { c.service.embed(parse_embedding_call(c.request.body), true, c); }},
      {"/translate", "POST", true, [](C c) { c.service.translate(c.inputs(), c); }, ModelKind::kTranslation},
      {"/classify", "POST", true, [](C c) { c.service.classify(c.inputs(), c); }, ModelKind::kClassifier},
      {"/predict", "POST", true, [](C c) { c.service.find_spans(c.inputs(), c); }, ModelKind::kSpans},
      {"/rerank", "POST", true, [](C c) { c.service.rerank(parse_rerank_call(c.request.body), c); }},
      {"/v1/rerank", "POST", true, [](C c) { c.service.rerank(parse_rerank_call(c.request.body), c); }},
      {"/embed", "POST", true, [](C c) { c.service.embed(c.inputs(), false, c); }, ModelKind::kEmbedder},
      {kModelPrefix.data(), "GET", true,
          [](C c) {
            const std::string name = unescaped(c.request.path.substr(kModelPrefix.size()));
            c.to->respond({.body = format_model(describe(*c.service.find(name, {}))) + "\n"});
          }},
  };
  return kRoutes;
}

const Service::Route* Service::find_route(std::string_view path) {
  for (const Route& route : routes())
    if (path == route.path && path != kModelPrefix) return &route;
  return path.starts_with(kModelPrefix) && path.size() > kModelPrefix.size() ? &routes().back() : nullptr;
}

std::optional<HttpResponse> Service::refuse(const HttpRequest& head) {
  const Route* route = find_route(head.path);
  if (const auto why = foreign(head)) return error_response(*why);
  if (!route) return error_response(ApiError(404, "there is no " + head.path.substr(0, 200), "", "unknown_url"));
  const bool head_only = head.method == "HEAD" && std::string_view(route->method) == "GET";
  if (head.method != route->method && !head_only) {
    HttpResponse response = error_response(ApiError(405, std::string(route->path) + " takes " + route->method));
    response.headers.emplace_back("Allow", route->method);
    return response;
  }
  const std::lock_guard lock(mutex_);
  if (route->needs_key && keys_.needed() && !keys_.accept(head.header("authorization")))
    return error_response(ApiError(401,
        head.header("authorization").empty() ? "a key is needed: Authorization: Bearer KEY"
                                             : "this is not the right key",
        "", "invalid_api_key"));
  return {};
}

HttpResponse Service::error(int status, const std::string& message) {
  return error_response(ApiError(status, message));
}

void Service::finished(
    const HttpRequest& request, const std::string& id, int status, double seconds, const std::string& note) {
  const Route* route = find_route(request.path);
  const std::string path = route ? route->path : "other";
  metrics_.add("linnet_requests_total", {{"path", path}, {"status", std::to_string(status)}});
  metrics_.observe("linnet_request_seconds", {{"path", path}}, seconds);
  if (!options_.log_requests) return;
  // A client may send anything; a request's log entry is one line.
  std::string shown = request.path.substr(0, 100);
  std::ranges::replace_if(
      shown, [](char c) { return c < ' ' || c == 127; }, '?');
  log_info(
      fmt::format("request {}: {} {} {}, {:.3f} s{}{}", id, request.method.empty() ? "-" : request.method.substr(0, 16),
          shown, status, seconds, note.empty() ? "" : ", ", note));
}

// By API key if required; other clients cannot fake it.
std::string Service::client_of(const HttpRequest& request) const {
  const std::lock_guard lock(mutex_);
  return std::string(keys_.needed() ? key_of(request.header("authorization")) : request.client);
}

void Service::handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
  if (request.method != "POST") return answer(request, exchange);
  const std::string client = client_of(request);
  const auto shared = std::make_shared<HttpRequest>(std::move(request));
  request_threads_.run(client, [this, shared, exchange] { answer(*shared, exchange); });
}

void Service::answer(HttpRequest& request, const Exchange& exchange) {
  answer_errors(exchange, [&] {
    if (options_.log_text && !request.body.empty())
      log_info("request " + exchange->id() + " says " + one_line(request.body.substr(0, kMostLoggedText)));
    if (const Route* route = find_route(request.path)) route->answer({*this, request, exchange, client_of(request)});
  });
}

void Service::answer_errors(const Exchange& exchange, FunctionRef<void()> call) {
  try {
    call();
  } catch (const ApiError& error) {
    exchange->respond(error_response(error));
  } catch (const Error& error) {
    exchange->respond(error_response(ApiError(error.kind() == ErrorKind::kUser ? 422 : 500, error.what())));
  } catch (const std::bad_alloc&) {
    exchange->respond(error_response(ApiError(503, "out of memory")));
  } catch (const std::exception& error) {
    exchange->respond(error_response(ApiError(500, std::string("internal error: ") + error.what())));
  }
}

// The model of that name, or without a name the only one of these kinds. No kinds: any.
Service::Model Service::find(const std::string& name, std::initializer_list<ModelKind> kinds) const {
  const auto does = [&](const Model& model) { return kinds.size() == 0 || contains(kinds, model->resident->kind); };
  const std::lock_guard lock(mutex_);
  if (name.empty()) {
    if (std::ranges::count_if(models_, does) == 1) return *std::ranges::find_if(models_, does);
    if (std::ranges::any_of(models_, does))
      throw ApiError(400, "\"model\" is missing, and several models do this", "model");
    std::string other;  // what another loaded model does
    for (const Route& route : routes())
      if (!models_.empty() && route.asks == models_[0]->resident->kind)
        other = "; \"" + models_[0]->name + "\" answers at " + route.path;
    throw ApiError(400, "no model that is loaded does this" + other, "model");
  }
  const auto found = std::ranges::find(models_, name, [](const Model& model) { return model->name; });
  if (found == models_.end())
    throw ApiError(
        404, "there is no model \"" + name + "\"; /v1/models lists those there are", "model", "model_not_found");
  if (!does(*found))
    throw ApiError(400,
        "the model \"" + name + "\" does not do this: its kind is " + enum_name((*found)->resident->kind), "model");
  return *found;
}

ModelDescription Service::describe(const ServedModel& model) {
  const LoadedModel& resident = *model.resident;
  ModelDescription description{.name = model.name, .kind = enum_name(resident.kind), .created = model.created};
  if (resident.text) {
    description.chat = resident.text->model().has_chat_template();
    description.room = resident.text->model().room();
  } else if (resident.rows) {
    description.classes = resident.rows->model().classes;
  }
  return description;
}

std::string Service::models_text() const {
  const std::lock_guard lock(mutex_);
  return format_models(mapped(models_, [](const Model& model) { return describe(*model); }));
}

std::string Service::metrics_text() const {
  std::string text = metrics_.text();
  std::map<std::string, std::string> lines;  // by name
  const auto add = [&](const char* name, const ServiceMetrics::Labels& labels, auto value) {
    lines[name] += metric_line(name, labels, static_cast<double>(value));
  };
  {
    const std::lock_guard lock(mutex_);
    for (const Model& model : models_) {
      const ServiceMetrics::Labels labels{{"model", model->name}};
      if (model->resident->rows) add("linnet_waiting", labels, model->resident->rows->waiting());
      if (!model->resident->text) continue;
      const TextWorker::Load load = model->resident->text->load();
      const EngineCounts& counts = load.counts;
      add("linnet_slots", labels, load.slots);
      add("linnet_running", labels, load.running);
      add("linnet_waiting", labels, load.waiting);
      add("linnet_prefix_cache_hits_total", labels, counts.prefix_hits);
      add("linnet_prefix_cache_misses_total", labels, counts.prefix_misses);
      add("linnet_prefix_cache_tokens_total", labels, counts.reused_tokens);
      add("linnet_prefix_cache_bytes", labels, counts.prefix_bytes);
      add("linnet_draft_tokens_total", labels, counts.guessed);
      add("linnet_draft_accepted_total", labels, counts.accepted);
    }
  }
  if (connections_) add("linnet_connections", {}, connections_());
  add("process_resident_memory_bytes", {}, resident_bytes());
  for (const auto& [name, series] : lines)
    text += "# TYPE " + name + (name.ends_with("_total") ? " counter\n" : " gauge\n") + series;
  return text;
}

ApiKeys ApiKeys::load(const std::string& path) {
  ApiKeys keys;
  const std::string text = read_input(path);
  for (const std::string_view line : split(without_mark(text), '\n'))
    if (const size_t end = line.find_last_not_of(" \t\r") + 1; end > 0 && line[0] != '#')
      keys.keys_.emplace_back(line.substr(0, end));
  if (keys.keys_.empty()) fail_user("'", path, "' holds no key");
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & (S_IRGRP | S_IROTH)) != 0)
    log_warning("'" + path + "' holds keys, and other users may read it: chmod 600 " + path);
  return keys;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned char>(a[i] ^ (b.empty() ? '\0' : b[i % b.size()]));
  // volatile: the compiler must not end the loop at the first difference.
  const volatile unsigned char result = difference;
  return result == 0;
}

std::string_view key_of(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (lower_ascii(authorization.substr(0, kScheme.size())) != kScheme) return {};
  authorization.remove_prefix(std::min(authorization.find_first_not_of(' ', kScheme.size()), authorization.size()));
  return authorization;
}

bool ApiKeys::accept(std::string_view authorization) const {
  const std::string_view key = key_of(authorization);
  bool accepted = false;
  for (const std::string& known : keys_) accepted |= equal_in_constant_time(key, known);  // always checks all
  return accepted;
}

void ServiceMetrics::add(const std::string& counter, const Labels& labels, double value) {
  const std::lock_guard lock(mutex_);
  counters_[counter][labels] += value;
}

void ServiceMetrics::observe(const std::string& histogram, const Labels& labels, double seconds) {
  const std::lock_guard lock(mutex_);
  Histogram& found = histograms_[histogram][labels];
  ++found.counts[std::ranges::lower_bound(kBounds, seconds) - kBounds.begin()];
  found.sum += seconds;
}

std::string ServiceMetrics::text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [name, series] : counters_) {
    text += "# TYPE " + name + " counter\n";
    for (const auto& [labels, value] : series) text += metric_line(name, labels, value);
  }
  for (const auto& [name, series] : histograms_) {
    text += "# TYPE " + name + " histogram\n";
    for (const auto& [labels, histogram] : series) {
      uint64_t count = 0;
      for (size_t i = 0; i < histogram.counts.size(); ++i) {
        Labels with_bound = labels;
        with_bound["le"] = i < kBounds.size() ? number(kBounds[i]) : "+Inf";
        text += metric_line(name + "_bucket", with_bound, static_cast<double>(count += histogram.counts[i]));
      }
      text += metric_line(name + "_sum", labels, histogram.sum);
      text += metric_line(name + "_count", labels, static_cast<double>(count));
    }
  }
  return text;
}
}  // namespace linnet
