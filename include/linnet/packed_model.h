// A packed model (or a run, or a model folder) for C++ programs that only use it. It stands on the C interface alone,
// so that programs link linnet::linnet_c, a library without training:
//
//   linnet::PackedModel model("gpt2.linnet");
//   std::cout << model.generate("Once upon a time") << '\n';
#pragma once
#include <linnet/linnet_c.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {
// What the library refuses, or fails at, in one line.
class PackedModelError : public std::runtime_error {
 public:
  // Of the last call of this thread that failed.
  explicit PackedModelError(linnet_status status) : std::runtime_error(linnet_last_error()), status_(status) {}
  // The kind of the error.
  linnet_status status() const { return status_; }

 private:
  linnet_status status_;
};

// A loaded model. Any number of threads may use one object; a text gives the same bits whatever else is computed
// beside it. Every function throws PackedModelError, also where the model is of another kind.
class PackedModel {
 public:
  // How models are opened and texts are written, with their defaults: members as linnet_c.h describes them.
  static linnet_model_options default_options() {
    linnet_model_options options;
    linnet_model_options_init(&options);
    return options;
  }
  // The same of texts.
  static linnet_generate_options default_generate_options() {
    linnet_generate_options options;
    linnet_generate_options_init(&options);
    return options;
  }

  // Hears a text piece by piece, in whole characters; false ends the text. Must not throw.
  using Listener = std::function<bool(std::string_view piece)>;

  // Opens a file of `linnet pack`, a run or a model folder.
  explicit PackedModel(const std::string& path, const linnet_model_options& options = default_options()) {
    linnet_model* opened = nullptr;
    check(linnet_model_open(path.c_str(), &options, &opened));
    model_.reset(opened);
  }

  // What the model does.
  linnet_model_kind kind() const { return linnet_model_get_kind(model_.get()); }
  // Numbers of an embedding, or classes; 0 of models that write texts.
  size_t width() const { return linnet_model_width(model_.get()); }
  // The names of a classifier's classes, in the order of their probabilities; empty for other models.
  std::vector<std::string> classes() const {
    std::vector<std::string> names;
    for (size_t i = 0; const char* name = linnet_model_class_name(model_.get(), i); ++i) names.emplace_back(name);
    return names;
  }

  // The text that follows a prompt, or answers it, without the prompt.
  std::string generate(const std::string& prompt, const linnet_generate_options& options = default_generate_options(),
      const Listener& listener = {}) const {
    const linnet_text_callback hear = [](void* user, const char* piece, size_t size) {
      return (*static_cast<const Listener*>(user))({piece, size}) ? 0 : 1;
    };
    char* text = nullptr;
    check(linnet_generate(
        model_.get(), prompt.c_str(), &options, listener ? hear : nullptr, const_cast<Listener*>(&listener), &text));
    return taken(text);
  }
  // A translation, as `linnet translate` gives it.
  std::string translate(const std::string& text) const {
    char* translation = nullptr;
    check(linnet_translate(model_.get(), text.c_str(), &translation));
    return taken(translation);
  }
  // A row of width() numbers for each text, one after another.
  std::vector<float> embed(const std::vector<std::string>& texts) const { return rows(linnet_embed, texts); }
  // The probability of each of width() classes for each text, one text after another.
  std::vector<float> classify(const std::vector<std::string>& texts) const { return rows(linnet_classify, texts); }
  // The token ids of a text, as the model gets them.
  std::vector<int32_t> encode(const std::string& text) const {
    size_t count = 0;
    linnet_status status = linnet_encode(model_.get(), text.c_str(), nullptr, 0, &count);
    std::vector<int32_t> tokens(count);
    if (status == LINNET_BUFFER_TOO_SMALL)
      status = linnet_encode(model_.get(), text.c_str(), tokens.data(), tokens.size(), &count);
    check(status);
    return tokens;
  }

 private:
  struct Close {
    void operator()(linnet_model* model) const { linnet_model_close(model); }
  };
  using Compute = linnet_status (*)(linnet_model*, const char* const*, size_t, float*);

  static void check(linnet_status status) {
    if (status != LINNET_OK) throw PackedModelError(status);
  }
  static std::string taken(char* text) {
    const std::unique_ptr<char, void (*)(char*)> owner(text, linnet_string_free);
    return text ? text : "";
  }
  std::vector<float> rows(Compute compute, const std::vector<std::string>& texts) const {
    std::vector<const char*> pointers;
    for (const std::string& text : texts) pointers.push_back(text.c_str());
    std::vector<float> found(texts.size() * width());
    check(compute(model_.get(), pointers.data(), pointers.size(), found.data()));
    return found;
  }

  std::unique_ptr<linnet_model, Close> model_;
};
}  // namespace linnet
