#include "models/families/activations.h"

namespace linnet {
namespace {

struct Row {
  const char* name;
  Activation activation;
};
// The first of an activation is what is written.
constexpr Row kRows[] = {{"relu", Activation::kRelu},
                         {"gelu", Activation::kGelu},
                         {"gelu_python", Activation::kGelu},
                         {"gelu_new", Activation::kGeluTanh},
                         {"gelu_pytorch_tanh", Activation::kGeluTanh},
                         {"gelu_fast", Activation::kGeluTanh},
                         {"silu", Activation::kSilu},
                         {"swish", Activation::kSilu}};

}  // namespace

Activation activation_of(const ConfigFile& config, const std::string& key, Activation standard) {
  if (!config.has(key)) return standard;
  const std::string name = config.text(key);
  std::string known;
  for (const Row& row : kRows) {
    if (name == row.name) return row.activation;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  config.fail("\"" + key + "\" is \"" + name + "\", Linnet supports " + known);
}

const char* activation_name(Activation activation) {
  for (const Row& row : kRows)
    if (row.activation == activation) return row.name;
  return "relu";
}

double positive_of(const ConfigFile& config, const std::string& key, double standard) {
  const double value = config.number(key, standard);
  if (!(value > 0)) config.fail("\"" + key + "\" is not a positive number");
  return value;
}

double probability_of(const ConfigFile& config, const std::string& key, double standard) {
  const double value = config.number(key, standard);
  if (!(value >= 0 && value < 1)) config.fail("\"" + key + "\" is not a probability below 1");
  return value;
}

void check_heads(const ConfigFile& config, const std::string& width, const std::string& heads) {
  if (config.size(width) % config.size(heads) != 0)
    config.fail("\"" + width + "\" " + std::to_string(config.size(width)) + " is not a multiple of \"" + heads + "\" " +
                std::to_string(config.size(heads)));
}

}  // namespace linnet
