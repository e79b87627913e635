// A JSON object of settings, such as config.json: read and changed by key, written back with all its keys in order.
#pragma once
#include "base/fail.h"
#include "base/files.h"
#include "base/json.h"

namespace linnet {
std::string quoted(const std::string& key);  // with its quotes, for messages

// All errors are user errors of one line that names file and key. A key whose value is null counts as absent.
class ConfigFile {
 public:
  ConfigFile() = default;                        // {}
  explicit ConfigFile(const std::string& path);  // reads a file
  static ConfigFile if_exists(const std::string& path) { return file_exists(path) ? ConfigFile(path) : ConfigFile(); }
  // `name` stands for the path in messages.
  static ConfigFile parse(const std::string& text, const std::string& name);

  bool has(const std::string& key) const { return find(key) != nullptr; }
  bool mentions(const std::string& key) const { return json_.contains(key); }  // also as null
  // An absent key without a fallback is an error, as is a value of another type.
  int64_t integer(const std::string& key) const;
  int64_t integer(const std::string& key, int64_t fallback) const { return has(key) ? integer(key) : fallback; }
  int64_t size(const std::string& key) const;  // an integer from 1 to 2^30
  int64_t size(const std::string& key, int64_t fallback) const { return has(key) ? size(key) : fallback; }
  double number(const std::string& key, double fallback) const;
  bool flag(const std::string& key, bool fallback) const;
  bool is_text(const std::string& key) const;  // whether the value is a string
  std::string text(const std::string& key) const;
  std::string text(const std::string& key, const std::string& fallback) const {
    return has(key) ? text(key) : fallback;
  }
  std::vector<std::string> texts(const std::string& key) const;  // a list of strings; empty when absent
  std::vector<int64_t> integers(const std::string& key) const;   // a list, or one integer; empty when absent
  std::vector<double> numbers(const std::string& key) const;     // a list, or one number; empty when absent
  std::vector<std::vector<int64_t>> integer_lists(const std::string& key) const;  // empty when absent
  ConfigFile object(const std::string& key) const;                                // {} when absent
  std::vector<ConfigFile> objects(const std::string& key) const;  // a list of objects; empty when absent
  std::vector<std::string> keys() const;                          // in order
  size_t count(const std::string& key) const;                     // members of an object or list; 0 for anything else
  bool is_empty(const std::string& key) const;                    // a list or an object of nothing

  // Accepts `supported` or an absent key; else "config.json: "key" is true, Linnet supports only false".
  void require_flag(const std::string& key, bool supported) const;
  // The value, one of `supported`; the first if the key is absent.
  std::string choice(const std::string& key, std::initializer_list<const char*> supported) const;
  // "'path': problem"
  template <class... Parts> [[noreturn]] void fail(const Parts&... problem) const {
    fail_user("'", path_, "': ", problem...);
  }

  void set(const std::string& key, Json value) { json_[key] = std::move(value); }
  void set(const std::string& key, const ConfigFile& value) { json_[key] = value.json_; }
  void set_null(const std::string& key) { json_[key] = nullptr; }
  void erase(const std::string& key) { json_.erase(key); }

  std::string dump() const { return json_.dump(2) + "\n"; }  // indented by two, with a final newline
  void save(const std::string& path) const;
  const std::string& path() const { return path_; }

 private:
  const Json* find(const std::string& key) const;  // null when absent
  // Error unless it is of the kind that `is` tests and `expected` names.
  const Json* find(const std::string& key, bool (Json::*is)() const, const char* expected) const;
  const Json& at(const std::string& key) const;
  ConfigFile part(const Json& object) const;  // of this file
  template <class T> std::vector<T> list_of(
      const std::string& key, const Json& value, bool (Json::*is)() const, const char* expected) const;

  Json json_ = Json::object();
  std::string path_ = "config.json";
};

// Keys for classifiers: "id2label", "label2id", "problem_type", and whether texts are pairs.
int64_t label_count(const ConfigFile& config);                   // 2 by default
std::vector<std::string> label_names(const ConfigFile& config);  // in order; "LABEL_0" by default
void name_labels(ConfigFile& config, const std::vector<std::string>& classes);

// "regression", "multi_label_classification" or another of transformers' words; "" by default.
std::string problem_type(const ConfigFile& config);
void set_problem_type(ConfigFile& config, const std::string& type);
// Whether the model learned from pairs of texts, by a key of Linnet's own, as transformers keeps no such record.
bool has_pairs(const ConfigFile& config);
void set_pairs(ConfigFile& config, bool pairs);
// Whether sentence-transformers scores pairs with it, by a file of its own since version 6.
bool is_cross_encoder(const std::string& folder);
// Whether the model learned that a question may have no answer, by a key of Linnet's own.
bool may_lack_answers(const ConfigFile& config);
void set_may_lack_answers(ConfigFile& config);
}  // namespace linnet
