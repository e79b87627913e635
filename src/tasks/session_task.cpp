#include "tasks/session_task.h"
#include <malloc.h>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>
#include "base/process_memory.h"
#include "training/run/pretrained_run.h"

namespace linnet {
namespace {
// Returns freed memory to the system, so that it does not count.
uint64_t trimmed_resident_bytes() {
  malloc_trim(0);
  return resident_bytes();
}
}  // namespace

// With a memory limit training steps are planned for what the process leaves of it. The plans and what follows take
// memory too, known only afterwards: planning repeats until all fits or takes no less.
void SessionTask::prepare(Capacity capacity) {
  constexpr uint64_t kMargin = 256 << 10;
  const bool must_suffice = capacity == Capacity::kMustSuffice;
  uint64_t reserve = 1 << 20, peak = UINT64_MAX;
  for (;;) {
    session_.reset();
    session_ = make_session(config_, must_suffice);
    session_->finish_planning(trimmed_resident_bytes() + reserve);
    if (must_suffice) check_fits(session_->store, advice());
    if (must_suffice || fits(session_->store)) session_->allocate(), begin();
    forecast_ = forecast_memory(trimmed_resident_bytes(), session_->store);
    const uint64_t limit = session_->trainer->options().memory, before = std::exchange(peak, forecast_.peak());
    if (limit == 0 || peak <= limit) return;
    if (peak >= before) break;
    reserve += peak - limit + kMargin;
  }
  if (must_suffice) check_limit(*session_, peak, advice());
}

const PretrainedModel* SessionTask::starts_from() const {
  const PretrainedModel* model = pretrained();
  return model && !model->folder.empty() ? model : nullptr;
}

void SessionTask::initialize() {
  const PretrainedModel* from = starts_from();
  TrainingState& state = trainer().state();
  if (from && !state.layout().division()) {  // the folder has all parameters, or missing ones are drawn
    state.initialize_constants();
    load_initial_weights(state, *from, config_);
  } else {
    state.initialize();  // divided ones are read later (training/run/run_checkpoints.h)
  }
  if (teacher_) teacher_->load(store(), trainer().pool());
}

const std::shared_ptr<const Teacher>& SessionTask::teacher(
    const std::vector<std::string>& classes, const EncodeText& encode) {
  if (!teacher_) teacher_ = Teacher::open(config_, classes, encode);
  return teacher_;
}

namespace {
namespace fs = std::filesystem;

// The size of a file or of all files below a folder; 0 if there is none.
uint64_t bytes_at(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    const uint64_t bytes = fs::file_size(path, error);
    return error ? 0 : bytes;
  }
  uint64_t bytes = 0;
  for (auto entry = fs::recursive_directory_iterator(path, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    std::error_code unreadable;
    if (entry->is_regular_file(unreadable)) bytes += entry->file_size(unreadable);
  }
  return bytes;
}

constexpr int64_t kUnknownTokens = 1 << 20;  // assumed for a missing text
constexpr int64_t kBytesPerSubword = 4;      // of English, about; fewer elsewhere
}  // namespace

int64_t DataAtHand::assumed_tokens(const DataConfig& data) const {
  if (bytes == 0) return kUnknownTokens;
  const bool one_a_character = data.tokenizer == "char" || data.tokenizer == "byte";
  return std::max<int64_t>(1, static_cast<int64_t>(bytes) / (one_a_character ? 1 : kBytesPerSubword));
}

DataAtHand data_at_hand(const std::string& name, const std::vector<std::string>& paths, bool exact, uint64_t quick) {
  DataAtHand data;
  std::string missing;
  for (const std::string& path : paths) {
    const uint64_t bytes = bytes_at(path);
    if (bytes == 0 && missing.empty()) missing = path;
    data.bytes += bytes;
  }
  if (paths.empty() || !missing.empty()) {
    data.why_not = "No " + name + " was " + (paths.empty() ? "given" : "found at '" + missing + "'");
  } else if (!exact && data.bytes > quick) {
    char megabytes[32];
    std::snprintf(megabytes, sizeof megabytes, "%.1f", static_cast<double>(data.bytes) / 1e6);
    data.why_not = "The " + name + " has " + megabytes + " MB and was not read (--exact reads it)";
  } else {
    data.read = true;
  }
  return data;
}

DataAtHand text_at_hand(const Config& config, bool exact) {
  std::vector<std::string> paths;
  for (const std::string* name : {&config.data.text, &config.data.valid_text})
    if (!name->empty()) paths.push_back(data_path(config.data, *name));
  if (config.data.text.empty()) paths.clear();
  return data_at_hand("text", paths, exact);
}
}  // namespace linnet
