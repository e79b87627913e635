// Shared by tasks that fine-tune a folder's language model on JSON lines.
#pragma once
#include <string>
#include <tuple>
#include <utility>
#include <vector>
#include "base/fail.h"
#include "base/log.h"
#include "tasks/language/language_model.h"
#include "tasks/session_task.h"

namespace linnet {
template <class Record> class TunedLanguageTask : public SessionTask {
 public:
  // `what` names the records in messages: "conversations".
  TunedLanguageTask(const Config& config, std::string what) : SessionTask(config), what_(std::move(what)) {}

  void open(const std::string& from) override {
    const std::string& folder = from.empty() ? config_.model.from : from;
    if (folder.empty())
      fail_user("task = \"", config_.data.task,
          "\" starts from a model folder, which is not given (--set model.from=FOLDER)");
    language_ = make_language_model(config_, from.empty() ? open_text_coder(folder) : load_text_coder(from), from);
    std::tie(train_, valid_) = load(folder);
    count_ = std::ssize(train_);
    log_info(std::to_string(count_) + " " + what_ + " to train on, " + std::to_string(valid_.size()) + " to choose by");
  }

  std::string assume(const DataAtHand& data) override {
    constexpr int64_t kRecords = 10'000;
    const std::string& folder = config_.model.from;
    language_ = make_language_model(config_,
        folder.empty() ? make_number_coder(config_.data.vocab_size) : open_text_coder(folder), "",
        /*to_plan=*/true);
    count_ = kRecords;
    assumed_bytes_ = 2 * data.bytes;
    return data.why_not + "; assuming " + std::to_string(count_) + " " + what_ + ".";
  }

  DataAtHand data_at_hand(bool exact) const override {
    DataAtHand data = text_at_hand(config_, exact);
    if (data.read && config_.model.from.empty()) data.read = false, data.why_not = "No model folder was given";
    return data;
  }

  void save_assets(const std::string& folder) const override { language_.save_assets(folder); }
  int64_t most() const override { return count_; }
  uint64_t assumed_bytes() const override { return assumed_bytes_; }
  const char* shorter_key() const override { return "context"; }

 protected:
  // Training and validation records.
  virtual std::pair<std::vector<Record>, std::vector<Record>> load(const std::string& folder) = 0;

  const PretrainedModel* pretrained() const override { return language_.pretrained ? &*language_.pretrained : nullptr; }

  LanguageModel language_;
  std::vector<Record> train_, valid_;

 private:
  const std::string what_;
  int64_t count_ = 1;  // records to train on
  uint64_t assumed_bytes_ = 0;
};

// Records of `path`, by read(path), or if empty of the run's split: test_text or validation records.
template <class Read, class Load> auto records_to_evaluate(
    const Config& config, const std::string& path, const std::string& split, const Read& read, const Load& load) {
  if (!path.empty()) return read(path);
  if (split != "test") return load().second;
  if (config.data.test_text.empty()) fail_user("the run's configuration names no test_text; --data FILE names one");
  return read(data_path(config.data, config.data.test_text));
}
}  // namespace linnet
