#include <functional>

#include "base/error.h"
#include "config/hints.h"
#include "app/bench/workload.h"

namespace linnet {
namespace {

struct Row {
  const char* name;
  const char* description;
  std::function<Workload(const WorkloadOptions&)> make;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> rows = {
      {"r-64", "Transformer d 256, 2+2 layers, batch 16, length 64",
       [](auto& o) { return transformer_workload(o, 64); }},
      {"r-128", "the same, length 128", [](auto& o) { return transformer_workload(o, 128); }},
      {"r-256", "the same, length 256", [](auto& o) { return transformer_workload(o, 256); }},
      {"r-384", "the same, length 384", [](auto& o) { return transformer_workload(o, 384); }},
      {"cnn-128", "conv 3x3 + relu + pool + dense on 28x28, batch 128", [](auto& o) { return cnn_workload(o, 128); }},
      {"cnn-1024", "the same, batch 1024", [](auto& o) { return cnn_workload(o, 1024); }},
      {"resnet20", "ResNet-20 on 32x32, batch 128", [](auto& o) { return resnet_workload(o, 20, 32, 128); }},
      {"resnet18", "ResNet-18 on 224x224, batch 8", [](auto& o) { return resnet_workload(o, 18, 224, 8); }},
      {"gpt-6l", "GPT, 6 layers, d 384, 8 x 256 tokens, vocabulary 65",
       [](auto& o) { return gpt_workload(o, false, 8); }},
      {"gpt2-124m", "GPT-2 124M, 2 x 1024 tokens", [](auto& o) { return gpt_workload(o, true, 2); }},
      {"gpt2-124m-8", "the same, 8 x 1024 tokens, for a GPU", [](auto& o) { return gpt_workload(o, true, 8); }},
      {"bert-base", "BERT-base, masked language model, 4 x 512 tokens", [](auto& o) { return bert_workload(o, 4); }},
      {"bert-base-32", "the same, 32 x 512 tokens, for a GPU", [](auto& o) { return bert_workload(o, 32); }},
  };
  return rows;
}

}  // namespace

std::vector<WorkloadRow> workload_rows() {
  std::vector<WorkloadRow> result;
  for (const Row& row : rows()) result.push_back({row.name, row.description});
  return result;
}

Workload make_workload(const std::string& name, const WorkloadOptions& options) {
  std::vector<std::string> names;
  for (const Row& row : rows()) {
    if (name != row.name) {
      names.emplace_back(row.name);
      continue;
    }
    if (options.batch > 0 && name.starts_with("r-")) fail_user("the batch of " + name + " is 16 and cannot be chosen");
    Workload workload = row.make(options);
    workload.name = row.name, workload.description = row.description;
    return workload;
  }
  fail_user("there is no workload \"" + name + "\" (did you mean \"" + nearest(name, names) + "\"?)");
}

}  // namespace linnet
