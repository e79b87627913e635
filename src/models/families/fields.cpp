#include "models/families/fields.h"
#include <array>
#include "base/text.h"

namespace linnet {
namespace {
constexpr std::array<std::pair<const char*, Activation>, 9> kActivationWords{{
    {"relu", Activation::kRelu},
    {"gelu", Activation::kGelu},
    {"gelu_python", Activation::kGelu},
    {"gelu_new", Activation::kGeluTanh},
    {"gelu_pytorch_tanh", Activation::kGeluTanh},
    {"gelu_fast", Activation::kGeluTanh},
    {"silu", Activation::kSilu},
    {"swish", Activation::kSilu},
    {"tanh", Activation::kTanh},
}};
}  // namespace

constinit const Words<Activation> kActivations = kActivationWords;

int64_t integer_in(const ConfigFile& file, const std::string& key, const Range& range) {
  const int64_t value = file.integer(key);
  if (value < range.least || value > range.most) file.fail(quoted(key), " is ", value, ", out of range");
  return value;
}

size_t word_index(
    const ConfigFile& file, const std::string& key, const std::vector<const char*>& words, size_t standard) {
  if (!file.has(key)) return standard;
  const std::string word = file.text(key);
  for (size_t i = 0; i < words.size(); ++i)
    if (word == words[i]) return i;
  file.fail(quoted(key), " is ", quoted(word), ", Linnet supports ", joined(words));
}

double positive_of(const ConfigFile& file, const std::string& key, double standard) {
  const double value = file.number(key, standard);
  if (!(value > 0)) file.fail(quoted(key), " is not a positive number");
  return value;
}

double probability_of(const ConfigFile& file, const std::string& key, double standard) {
  const double value = file.number(key, standard);
  if (!(value >= 0 && value < 1)) file.fail(quoted(key), " is not a probability below 1");
  return value;
}

void check_multiple(const ConfigFile& file, const char* key, int64_t value, const char* of, int64_t divisor) {
  if (value % divisor != 0) file.fail(quoted(key), " ", value, " is not a multiple of ", quoted(of), " ", divisor);
}
}  // namespace linnet
